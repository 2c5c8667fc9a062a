"""What user code started: found by its parents and its process group, and ended with it.

A process that detached itself so far that neither leads back to the child of the pool is not found.
Where there is no ``/proc`` only the process group is known.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

TERM_WAIT_S: Final = 1.0  # between SIGTERM and SIGKILL
POLL_S: Final = 0.02
_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True, slots=True)
class Process:
    """One process; its start tells it from a later one with its pid."""

    pid: int
    started: int  # ticks since the machine started


@dataclass(frozen=True, slots=True)
class _Seen:
    process: Process
    parent: int
    group: int
    is_gone: bool  # ended, and not yet fetched by its parent


def boot_ticks() -> int:
    """Now, as the starts of processes are told."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS_A_SECOND)


def offspring(pid: int, *, since: int = 0) -> frozenset[Process]:
    """What lives below the process or in the group that it leads, begun not before ``since`` (ticks)."""
    seen = _every()
    below = {pid}
    found: set[Process] = set()
    # A parent may have a higher pid than its child; so until nothing is added.
    while True:
        more = {
            one
            for one in seen
            if one.process.pid != pid
            and not one.is_gone
            and one.process not in found
            and (one.parent in below or one.group == pid)
        }
        if not more:
            break
        found |= {one.process for one in more}
        below |= {one.process.pid for one in more}
    return frozenset(one for one in found if one.started >= since)


def end_offspring(pid: int, *, since: int) -> int:
    """What lives below the process has ended: by SIGTERM, or by SIGKILL; how many there were."""
    found = offspring(pid, since=since)
    send(found, signal.SIGTERM)
    deadline = time.monotonic() + TERM_WAIT_S
    while (left := _living(found)) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    send(left, signal.SIGKILL)
    return len(found)


def send(processes: Iterable[Process], number: int) -> None:
    """Each that is still the same process has the signal."""
    for one in processes:
        if _start_of(one.pid) == one.started:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(one.pid, number)


def _living(processes: Iterable[Process]) -> list[Process]:
    return [one for one in processes if _start_of(one.pid) == one.started]


def _start_of(pid: int) -> int | None:
    seen = _look(pid)
    return None if seen is None or seen.is_gone else seen.process.started


def _every() -> list[_Seen]:
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    return [seen for name in names if name.isdigit() and (seen := _look(int(name))) is not None]


def _look(pid: int) -> _Seen | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return None
    # The name, in brackets, may have any character in it; the fields follow the last bracket.
    fields = text.rpartition(")")[2].split()
    return _Seen(
        process=Process(pid, int(fields[19])),
        parent=int(fields[1]),
        group=int(fields[2]),
        is_gone=fields[0] in "ZX",
    )
