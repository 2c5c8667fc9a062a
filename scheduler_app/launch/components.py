"""The processes of a stack: started, started again when they exit, ended in time."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from scheduler_app.launch import children, data_folder
from scheduler_app.launch.script import Script

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from scheduler_app.launch.nursery import Nursery

RESTART_PAUSE_S: Final = 1.0
RESTART_PAUSE_S_MAX: Final = 30.0
STEADY_AFTER_S: Final = 60.0  # what ran so long is started again as if for the first time


class Running(Protocol):
    """A process of ours, however it was started. As ``subprocess`` has it."""

    @property
    def pid(self) -> int:
        """Its number."""
        ...

    def poll(self) -> int | None:
        """Its exit code, below 0 the signal that ended it; ``None`` while it runs."""
        ...

    def wait(self) -> int:
        """It has ended; its exit code."""
        ...

    def send_signal(self, number: int, /) -> None:
        """It got the signal, unless it had ended."""
        ...

    def kill(self) -> None:
        """It ends at once."""
        ...


@dataclass(slots=True, kw_only=True)
class Component:
    """One process by its name; at most one incarnation of it runs."""

    name: str
    command: Sequence[str]
    log: Path
    process: Running | None = None
    exits: int = 0
    _started_at_s: float = 0.0  # monotonic, as all times here
    _start_after_s: float = 0.0
    _pause_s: float = RESTART_PAUSE_S

    def start(self, environ: Mapping[str, str], cwd: Path, nursery: Nursery | None = None) -> int:
        """An incarnation runs; its pid. Call it from the main thread: it ends with that.

        Divided off the nursery, which has that environment and folder; or else started by its command.
        """
        self.process = self._divided(nursery) or self._spawned(environ, cwd)
        self._started_at_s = time.monotonic()
        return self.process.pid

    def _divided(self, nursery: Nursery | None) -> Running | None:
        if nursery is None:
            return None
        divided = nursery.divide(Script(command=tuple(self.command), log=self.log))
        if divided is None:
            return None
        child, channel = divided
        channel.close()
        return child

    def _spawned(self, environ: Mapping[str, str], cwd: Path) -> Running:
        with data_folder.open_log(self.log) as log:
            return children.spawn(self.command, log=log, environ=environ, cwd=cwd)

    def is_due(self) -> bool:
        """Whether nothing runs and the pause after the last exit is over."""
        return self.process is None and time.monotonic() >= self._start_after_s

    def reap(self) -> str:
        """What became of the incarnation if it exited just now, and when the next starts."""
        if self.process is None or (code := self.process.poll()) is None:
            return ""
        self.process = None
        self.exits += 1
        now_s = time.monotonic()
        if now_s - self._started_at_s >= STEADY_AFTER_S:
            self._pause_s = RESTART_PAUSE_S
        self._start_after_s = now_s + self._pause_s
        text = f"{self.name} ended ({ending(code)}); it starts again in {self._pause_s:g} s"
        self._pause_s = min(self._pause_s * 2, RESTART_PAUSE_S_MAX)
        return text


@dataclass(slots=True)
class Components:
    """All processes of a stack."""

    members: list[Component] = field(default_factory=list)

    def pids(self) -> dict[str, int]:
        """Name and pid of each; 0 for one that does not run."""
        return {m.name: m.process.pid if m.process else 0 for m in self.members}

    def ask_to_end(self) -> None:
        """Each got SIGTERM."""
        for member in self.members:
            if member.process is not None and member.process.poll() is None:
                member.process.send_signal(signal.SIGTERM)

    def running(self) -> list[Component]:
        """Those that have not exited."""
        return [m for m in self.members if m.process is not None and m.process.poll() is None]

    def kill(self) -> list[str]:
        """None runs; the names of those that had to be killed."""
        late = self.running()
        for member in late:
            assert member.process is not None, "it is running"
            member.process.kill()
            member.process.wait()
        return [member.name for member in late]


def ending(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
