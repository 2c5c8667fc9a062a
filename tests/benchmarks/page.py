"""The table of what benchmarks measured, and its place in a document whose prose stays."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.benchmarks.baselines import Baselines

BEGIN: Final = "<!-- measured: begin (written by `make bench`) -->"
END: Final = "<!-- measured: end -->"
_HEAD: Final = (
    "| | what | measured | goal | raw Celery beside it | of raw | CPU a task (raw) | commits/s |\n"
    "|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table."""

    name: str  # of the workload, such as W2
    what: str
    measured: str
    goal: str = ""
    is_met: bool | None = None  # none: there is no goal
    tasks_s: float | None = None  # to be compared with raw Celery
    cpu_ms: float | None = None  # of one task, over the whole stack
    beside: Baselines | None = None


def rendered(rows: Sequence[Row], *, machine: str) -> str:
    """The rows as a Markdown table, in the order of their names, below a line about the machine."""
    ordered = sorted(enumerate(rows), key=lambda one: (_order(one[1].name), one[0]))
    return "\n".join([machine, "", _HEAD, *(_line(row) for _, row in ordered)])


def replaced(document: str, table: str) -> str:
    """The document with the table between its marks. Raises ``ValueError`` without the marks."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        message = f"no place for the table: {BEGIN} and {END} are not there"
        raise ValueError(message)
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def write(path: Path, table: str) -> None:
    """The document has this table; its prose is as it was."""
    path.write_text(replaced(path.read_text(encoding="utf-8"), table), encoding="utf-8")


def _order(name: str) -> tuple[int, str]:
    """W2 before W10, and what has no number at the end."""
    number = re.fullmatch(r"W(\d+)", name)
    return (int(number.group(1)) if number else 1_000, name)


def _line(row: Row) -> str:
    goal = row.goal
    if row.is_met is not None:
        goal = f"{row.goal}: {'met' if row.is_met else 'not met'}"
    raw = share = cpu = commits = ""
    if row.beside is not None:
        raw = f"{row.beside.raw_tasks_s:,.0f} tasks/s"
        commits = f"{row.beside.commits_s:,.0f}"
        if row.tasks_s is not None:
            share = f"{row.tasks_s / row.beside.raw_tasks_s:.2f}"
    if row.cpu_ms is not None:
        cpu = f"{row.cpu_ms:.1f} ms"
        if row.beside is not None:
            cpu = f"{cpu} ({row.beside.raw_cpu_ms:.1f})"
    cells = (row.name, row.what, row.measured, goal, raw, share, cpu, commits)
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
