"""What happened outside the product: the executions' own ledger, and the bank that they wrote to."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from pathlib import Path

START: Final = "start"
END: Final = "end"
READ_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the ledger: an execution began, or came to its end."""

    what: str  # START or END
    at: float  # seconds since boot
    wall: float  # what the process took for the time, in seconds since 1970
    attempt_id: str
    fence: int
    pid: int
    flow_id: str
    run_id: str
    task_id: str
    map_index: int
    try_number: int
    resume_index: int

    @property
    def execution(self) -> tuple[str, str, str, int, int, int]:
        """The logical execution: task instance, try and resume."""
        return (
            self.flow_id,
            self.run_id,
            self.task_id,
            self.map_index,
            self.try_number,
            self.resume_index,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One write that the bank was asked for."""

    target: str  # flow/run/task/map index
    fence: int
    attempt_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bank:
    """Every write in its order, and what each target holds now."""

    written: tuple[Write, ...] = ()
    refused: tuple[Write, ...] = ()  # a greater fence had written before
    held: tuple[Write, ...] = ()


def boot_clock_s() -> float:
    """Seconds since boot, as the ledger tells them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def seconds_of(moment: str) -> float:
    """Seconds since 1970 of a time as the API writes it."""
    return datetime.fromisoformat(moment).timestamp()


def read(folder: Path) -> tuple[Line, ...]:
    """The lines of the ledger in their order; none where nothing was executed yet."""
    try:
        content = (folder / "ledger").read_text(encoding="utf-8")
    except FileNotFoundError:
        return ()
    return tuple(Line(**json.loads(line)) for line in content.splitlines() if line.endswith("}"))


def open_bank(folder: Path) -> None:
    """The bank is there, with empty books."""
    (folder / "bank").mkdir()


def read_bank(folder: Path) -> Bank:
    """The books of the bank: a file for each target."""
    written: list[Write] = []
    refused: list[Write] = []
    held: list[Write] = []
    for file in sorted((folder / "bank").iterdir()):
        if file.name.endswith("-journal"):
            continue  # of a write that was cut off; who opens the file next undoes it
        target = unquote(file.name)
        with closing(sqlite3.connect(file, timeout=READ_S)) as bank:
            if not bank.execute("SELECT 1 FROM sqlite_master").fetchone():
                continue  # nothing was ever committed
            for fence, attempt_id, is_taken in bank.execute(
                "SELECT fence, attempt_id, is_taken FROM asked ORDER BY number"
            ):
                write = Write(target=target, fence=fence, attempt_id=attempt_id)
                (written if is_taken else refused).append(write)
            held += [
                Write(target=target, fence=fence, attempt_id=attempt_id)
                for fence, attempt_id in bank.execute("SELECT fence, attempt_id FROM effect")
            ]
    return Bank(written=tuple(written), refused=tuple(refused), held=tuple(held))
