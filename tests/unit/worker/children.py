"""Real children whose deliveries only tell that they began, and end when they may."""

from __future__ import annotations

import os
import signal
import time
import uuid
from typing import TYPE_CHECKING, Any

from scheduler_app.worker import pool, witness
from scheduler_app.worker.outcome import REPORTED, Outcome

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

WITHIN_S = 10.0


def delivery(*, identity: str = "identity") -> list[Any]:
    """One of an attempt of its own."""
    return [str(uuid.uuid4()), 1, 2, 3, identity]


class Observer:
    """What a witness is told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def accepted(self, pid: int, attempt_id: str, *, pool_tells: bool) -> None:
        assert pool_tells
        self.told.append(("accepted", attempt_id))

    def expects(self, pid: int, attempt_id: str) -> None:
        self.told.append(("expects", attempt_id))

    def expects_no_more(self, pid: int) -> None:
        self.told.append(("expects no more", ""))

    def returned(self, pid: int, attempt_id: str, outcome: Outcome) -> None:
        assert outcome.what == REPORTED
        self.told.append(("returned", attempt_id))

    def broke(self, pid: int, attempt_id: str, error: str) -> None:
        self.told.append((error, attempt_id))

    def lost(self, pid: int, attempt_id: str, exit_code: int | None) -> None:
        self.told.append((f"lost {exit_code}", attempt_id))


class Stage:
    """What children do, and what becomes of it; each delivery ends once it may."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.observer = Observer()
        patch.setattr(witness, "_witness", self.observer)
        patch.setattr(pool, "start_child", lambda: None)
        patch.setattr(pool, "end_child", lambda: None)
        patch.setattr(pool, "execute_delivery", self._execute)

    def _execute(self, attempt_id: str, *_: Any) -> Outcome:
        with (self.folder / "begun").open("a") as file:
            file.write(f"{attempt_id}\n")
        while not (self.folder / attempt_id).exists() and not (self.folder / "all").exists():
            time.sleep(0.001)
        return Outcome(what=REPORTED, outcome="success")

    def begun(self) -> list[str]:
        """The attempts that some child has begun with, in order."""
        path = self.folder / "begun"
        return path.read_text().splitlines() if path.exists() else []

    def let_end(self, *deliveries: list[Any]) -> None:
        """These end at once, or as soon as they begin; without any, all do."""
        for name in [str(each[0]) for each in deliveries] or ["all"]:
            (self.folder / name).touch()


def until(condition: Any, *, turn: Any = lambda: None) -> None:
    """The condition holds; ``turn`` is called meanwhile."""
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        turn()
        time.sleep(0.002)


def end(pid: int) -> None:
    """The child is killed."""
    os.kill(pid, signal.SIGKILL)
