"""The grid of a flow: its tasks as rows, its runs as columns, one cell for what became of each."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dashboard.pictures import WORST_FIRST

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler_app.queries.attempts import Tries
    from scheduler_app.queries.runs import RunRow
    from scheduler_app.queries.task_instances import Cell

CELLS_MAX: Final = 10_000  # of one grid; more would help nobody


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCell:
    """One task of one run; several mapped instances show the worst of their states."""

    state: str
    ti: int | None  # of the only instance
    instances: int
    attempts: int
    filtered: int  # attempts, and instances, that are set aside

    @property
    def said(self) -> str:
        """What the cell says to who does not see it."""
        parts = [self.state.replace("_", " ")]
        if self.instances > 1:
            parts.append(f"{self.instances} instances")
        elif self.attempts > 1:
            parts.append(f"{self.attempts} attempts")
        if self.filtered:
            parts.append(f"{self.filtered} filtered")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRow:
    """One task, with a cell for each run; null where the run has no such task."""

    task_id: str
    is_in_version: bool  # of the newest version
    cells: tuple[GridCell | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Tasks and runs, the newest run last."""

    runs: tuple[RunRow, ...]
    rows: tuple[GridRow, ...]


def grid_of(
    *,
    runs: Sequence[RunRow],
    task_ids: Iterable[str],
    cells: Mapping[int, Sequence[Cell]],
    tries: Mapping[int, Tries],
) -> Grid:
    """The grid of these runs (newest first, as lists have them), tasks in the order of the version."""
    ordered = tuple(reversed(runs))
    by_place: dict[tuple[str, int], list[Cell]] = defaultdict(list)
    known = list(task_ids)
    former: list[str] = []
    for run in ordered:
        for cell in cells.get(run.id, ()):
            by_place[cell.task_id, run.id].append(cell)
            if cell.task_id not in known and cell.task_id not in former:
                former.append(cell.task_id)
    rows = tuple(
        GridRow(
            task_id=task_id,
            is_in_version=task_id in known,
            cells=tuple(_cell(by_place.get((task_id, run.id), ()), tries) for run in ordered),
        )
        for task_id in (*known, *sorted(former))
    )
    return Grid(runs=ordered, rows=rows)


def _cell(instances: Sequence[Cell], tries: Mapping[int, Tries]) -> GridCell | None:
    if not instances:
        return None
    states = [one.state for one in instances]
    known = [tries[one.id] for one in instances if one.id in tries]
    return GridCell(
        state=min(states, key=lambda s: WORST_FIRST.index(s) if s in WORST_FIRST else -1),
        ti=instances[0].id if len(instances) == 1 else None,
        instances=len(instances),
        attempts=sum(one.total for one in known),
        filtered=sum(one.filtered for one in known)
        + sum(1 for one in instances if one.filter_code is not None),
    )
