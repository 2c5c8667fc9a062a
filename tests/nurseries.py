"""Processes of the product for tests that start many: from the second on divided off, as `up` does it.

To load the code costs a second of a core each time. Who asks for the same environment again gets
a process that was divided off one which has loaded everything under that environment
(``scheduler_app.launch.nursery``); the first of each is started by its own command.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import OrderedDict
from multiprocessing import Pipe
from typing import TYPE_CHECKING, Final, Protocol

from scheduler_app.launch.environment import ROOT
from scheduler_app.launch.nursery import Born, Nursery
from scheduler_app.launch.script import Script

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KEPT_MAX: Final = 3  # each is a hundred megabytes
POLL_S: Final = 0.01
_SERVE: Final = """
import sys
from multiprocessing.connection import Connection
from scheduler_app.launch import nursery
fd, parent = map(int, sys.argv[1:])
sys.argv = ["manage.py"]
nursery._serve(Connection(fd), parent)
"""


class Process(Protocol):
    """What tests do with a process, as ``subprocess.Popen`` has it."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, number: int, /) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class Divided:
    """One that was divided off."""

    def __init__(self, born: Born) -> None:
        self._born = born
        self.pid = born.pid
        self.poll = born.poll
        self.kill = born.kill
        self.send_signal = born.send_signal

    def wait(self, timeout: float | None = None) -> int:
        """It has ended; its exit code."""
        if timeout is None:
            return self._born.wait()
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a process that was divided off", timeout)
            time.sleep(POLL_S)
        return code

    def terminate(self) -> None:
        """It was asked to end."""
        self.send_signal(signal.SIGTERM)


class OfTests(Nursery):
    """One that begins with an interpreter of its own: a test's own process has far too much loaded."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__()
        self._environ = {"DJANGO_SETTINGS_MODULE": "scheduler_app.config.settings", **environ}
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """It loads everything."""
        ours, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVE, str(theirs.fileno()), str(os.getpid())],
                cwd=ROOT,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._pid, self._pipe = self._process.pid, ours
        self.load(self._environ)

    def end(self) -> None:
        """It is gone; what was divided off goes on."""
        super().end()
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Nurseries:
    """Those of one test process, by their environments."""

    def __init__(self) -> None:
        self._known: OrderedDict[frozenset[tuple[str, str]], OfTests | None] = OrderedDict()

    def start(self, *arguments: str, environ: Mapping[str, str], log: Path) -> Process:
        """A ``manage.py`` process runs, whose output goes to the log. Call it from the main thread."""
        environ = {k: v for k, v in environ.items() if k != "PYTEST_CURRENT_TEST"}
        command = (sys.executable, "manage.py", *arguments)
        nursery = self._again(environ)
        divided = nursery.divide(Script(command=command, log=log)) if nursery else None
        if divided is not None:
            born, channel = divided
            channel.close()
            return Divided(born)
        with log.open("ab") as output:
            return subprocess.Popen(command, cwd=ROOT, env=environ, stdout=output, stderr=output)

    def end(self) -> None:
        """None is left."""
        while self._known:
            self._end(*self._known.popitem())

    def _again(self, environ: Mapping[str, str]) -> OfTests | None:
        """The nursery of this environment; none for the first who asks for it."""
        key = frozenset(environ.items())
        if key not in self._known:
            self._known[key] = None
            if len(self._known) > KEPT_MAX:
                self._end(*self._known.popitem(last=False))
            return None
        self._known.move_to_end(key)
        found = self._known[key]
        if found is None:
            found = self._known[key] = OfTests(environ)
            found.begin()
        return found if found.is_open else None

    @staticmethod
    def _end(_: object, nursery: OfTests | None) -> None:
        if nursery is not None:
            nursery.end()
