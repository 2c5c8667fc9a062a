"""What happened outside the product: the executions' own ledger, and the bank that they wrote to."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

START: Final = "start"
END: Final = "end"

_SCHEMA: Final = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS effect (
  target TEXT PRIMARY KEY, fence INTEGER NOT NULL, attempt_id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS written (
  number INTEGER PRIMARY KEY, target TEXT NOT NULL, fence INTEGER NOT NULL, attempt_id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS refused (
  number INTEGER PRIMARY KEY, target TEXT NOT NULL, fence INTEGER NOT NULL, attempt_id TEXT NOT NULL);
"""


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
    with closing(sqlite3.connect(folder / "bank")) as bank:
        bank.executescript(_SCHEMA)


def read_bank(folder: Path) -> Bank:
    """The books of the bank."""
    with closing(sqlite3.connect(folder / "bank", timeout=60)) as bank:
        tables = {
            name: tuple(
                Write(target=target, fence=fence, attempt_id=attempt_id)
                for target, fence, attempt_id in bank.execute(
                    f"SELECT target, fence, attempt_id FROM {table} ORDER BY {order}"  # noqa: S608 - constants
                )
            )
            for name, table, order in (
                ("written", "written", "number"),
                ("refused", "refused", "number"),
                ("held", "effect", "target"),
            )
        }
    return Bank(**tables)
