"""CPU and memory of a process and all that descend from it, as the kernel counts them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")
_OF_SMAPS: Final = "Pss:"


def tree(root: int) -> list[int]:
    """The process and all its descendants that run now."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children.get(pid, [])
    return found


def cpu_s(root: int) -> float:
    """CPU seconds of the process and its descendants so far, with those that ended and were reaped."""
    ticks = 0
    for pid in tree(root):
        if fields := _stat(pid):
            ticks += sum(int(field) for field in fields[11:15])
    return ticks / TICKS_A_SECOND


def pss_mib(root: int) -> float:
    """Memory of the process and its descendants in MiB; what they share is counted once."""
    return sum(own_pss_mib(pid) for pid in tree(root))


def own_pss_mib(pid: int) -> float:
    """Memory of this process alone, in MiB, with its share of what it shares; 0 once it ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith(_OF_SMAPS)) / 1024


def own_cpu_s(pid: int) -> float:
    """CPU seconds of this process alone; 0 once it ended."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / TICKS_A_SECOND if fields else 0.0


def of_name(root: int, name: str) -> int:
    """The pid of the descendant whose program has this name."""
    for pid in tree(root):
        if name_of(pid) == name:
            return pid
    message = f"no process {name!r} below {root}"
    raise AssertionError(message)


def name_of(pid: int) -> str:
    """The name of the process's program; empty once it ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    """The fields after the name, from the state on; none once it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
