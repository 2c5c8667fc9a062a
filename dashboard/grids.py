"""The grid of a flow: its tasks as rows, its runs as columns, one cell for what became of each."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dashboard.nested import label_of
from dashboard.pictures import worst_of
from dashboard.templatetags.dashboard import in_words
from scheduler_app.queries.task_instances import told_states

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from dashboard.folding import Folding
    from scheduler_app.queries.attempts import Tries
    from scheduler_app.queries.runs import RunRow
    from scheduler_app.queries.task_instances import Cell

DEPTH_MAX: Final = 3  # of groups in each other that a row is moved in for
CELLS_MAX: Final = 10_000  # of one grid; more would help nobody
BAR_HEIGHT: Final = 26.0  # of the longest run
BAR_LEAST: Final = 2.0  # however short a run was


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCell:
    """One task of one run; several mapped instances show the worst of their states."""

    state: str
    run: int
    ti: int | None  # of the only instance
    instances: int
    attempts: int
    filtered: int  # attempts, and instances, that are set aside
    states: Mapping[str, int] = field(default_factory=dict)  # of current instances, where several
    is_mapped: bool = False  # they are those of one mapped task

    @property
    def said(self) -> str:
        """What the cell says to who does not see it."""
        parts = [self.state.replace("_", " ")]
        if self.instances > 1:
            parts.append(f"{self.instances:,} instances: {told_states(self.states)}")
        elif self.attempts > 1:
            parts.append(f"{self.attempts} attempts")
        if self.filtered:
            parts.append(f"{self.filtered} filtered")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRow:
    """One task, with a cell for each run; null where the run has no such task."""

    task_id: str  # of a group: its id
    is_in_version: bool  # of the newest version
    cells: tuple[GridCell | None, ...]
    label: str = ""
    depth: int = 0  # how many groups are around it; at most 3 are told
    tasks: int = 0  # of a group; 0 for a task
    toggle: str | None = None  # of a group: what the address says once it is folded, or is not
    is_folded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One run above its cells: how long it took beside the others, and what changed with it."""

    run: RunRow
    duration_s: float | None  # null: it has not started
    bar: float  # height of its bar, at most ``BAR_HEIGHT``
    y: float
    is_new_version: bool  # another version than the run before it
    is_held: bool  # frozen

    @property
    def said(self) -> str:
        """What the column says to who does not see it."""
        parts = [f"{self.run.run_id}: {self.run.state.replace('_', ' ')}"]
        if self.duration_s is not None:
            parts.append(f"{'took' if self.run.is_over else 'for'} {in_words(self.duration_s)}")
        parts.append(f"version {self.run.version}{' (new)' if self.is_new_version else ''}")
        if self.run.is_filtered:
            parts.append(f"filtered: {self.run.filter_reason}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Tasks and runs, the newest run last."""

    columns: tuple[Column, ...]
    rows: tuple[GridRow, ...]
    has_groups: bool = False
    all_folded: str = ""  # what the address says once every group is folded


def grid_of(
    *,
    runs: Sequence[RunRow],
    task_ids: Iterable[str],
    cells: Mapping[int, Sequence[Cell]],
    tries: Mapping[tuple[int, str], Tries],
    now: datetime,
    group_of: Mapping[str, str] | None = None,
    folding: Folding | None = None,
) -> Grid:
    """The grid of these runs (newest first, as lists have them), tasks in the order of the version.

    A group is a row that shows the worst of its tasks; unless it is folded they stand under it.
    """
    ordered = tuple(reversed(runs))
    by_place: dict[tuple[str, int], list[Cell]] = defaultdict(list)
    known = list(task_ids)
    former: list[str] = []
    for run in ordered:
        for cell in cells.get(run.id, ()):
            by_place[cell.task_id, run.id].append(cell)
            if cell.task_id not in known and cell.task_id not in former:
                former.append(cell.task_id)

    def cells_of(task_ids: Sequence[str]) -> tuple[GridCell | None, ...]:
        return tuple(
            _cell(
                run.id,
                [one for task_id in task_ids for one in by_place.get((task_id, run.id), ())],
                [tries[run.id, task_id] for task_id in task_ids if (run.id, task_id) in tries],
            )
            for run in ordered
        )

    rows = [
        GridRow(
            task_id=line.id,
            is_in_version=True,
            cells=cells_of(line.task_ids),
            label=line.label,
            depth=min(line.depth, DEPTH_MAX),
            tasks=len(line.task_ids) if line.is_group else 0,
            toggle=folding.toggled(line.id) if line.is_group and folding else None,
            is_folded=line.is_group and folding is not None and line.id in folding.folded,
        )
        for line in _lines(known, group_of or {}, folding)
    ]
    rows += [
        GridRow(task_id=one, is_in_version=False, cells=cells_of([one]), label=one)
        for one in sorted(former)
    ]
    groups = folding.groups if folding is not None else ()
    return Grid(
        columns=_columns(ordered, now),
        rows=tuple(rows),
        has_groups=bool(groups),
        all_folded=",".join(sorted(group.group_id for group in groups)),
    )


def _columns(runs: Sequence[RunRow], now: datetime) -> tuple[Column, ...]:
    """The heads of these runs, oldest first; the longest has a bar of full height."""
    took = [
        None if run.started_at is None else ((run.ended_at or now) - run.started_at).total_seconds()
        for run in runs
    ]
    longest = max((one for one in took if one is not None), default=0.0) or 1.0
    columns = []
    for number, (run, duration_s) in enumerate(zip(runs, took, strict=True)):
        bar = 0.0
        if duration_s is not None:
            bar = max(BAR_LEAST, round(BAR_HEIGHT * max(duration_s, 0.0) / longest, 1))
        columns.append(
            Column(
                run=run,
                duration_s=duration_s,
                bar=bar,
                y=round(BAR_HEIGHT - bar, 1),
                is_new_version=number > 0 and runs[number - 1].version_id != run.version_id,
                is_held=run.frozen_at is not None,
            )
        )
    return tuple(columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    id: str
    label: str
    depth: int
    task_ids: Sequence[str]
    is_group: bool = False


def _lines(
    task_ids: Sequence[str], group_of: Mapping[str, str], folding: Folding | None
) -> Iterator[_Line]:
    """The rows: a group where its first task would stand, then what is in it."""
    around = {
        task_id: folding.around(group_of.get(task_id, "")) if folding is not None else []
        for task_id in task_ids
    }
    yield from _inside(task_ids, around, folding, 0)


def _inside(
    task_ids: Sequence[str],
    around: Mapping[str, list[str]],
    folding: Folding | None,
    depth: int,
) -> Iterator[_Line]:
    done: set[str] = set()
    for task_id in task_ids:
        if len(around[task_id]) <= depth:
            group_id = around[task_id][-1] if around[task_id] else ""
            label = task_id.removeprefix(f"{group_id}.") if group_id else task_id
            yield _Line(id=task_id, label=label, depth=depth, task_ids=[task_id])
            continue
        group_id = around[task_id][depth]
        if group_id in done or folding is None:
            continue
        done.add(group_id)
        inside = [one for one in task_ids if around[one][depth : depth + 1] == [group_id]]
        label = label_of(folding, group_id)
        yield _Line(id=group_id, label=label, depth=depth, task_ids=inside, is_group=True)
        if group_id not in folding.folded:
            yield from _inside(inside, around, folding, depth + 1)


def _cell(run: int, cells: Sequence[Cell], tries: Sequence[Tries]) -> GridCell | None:
    if not cells:
        return None
    shown = [one for one in cells if one.filter_code is None] or cells
    states: Counter[str] = Counter()
    for one in shown:
        states[one.state] += one.number
    instances = states.total()
    return GridCell(
        state=worst_of(states),
        run=run,
        ti=shown[0].ti if instances == 1 else None,
        instances=instances,
        attempts=sum(one.total for one in tries),
        filtered=sum(one.filtered for one in tries)
        + sum(one.number for one in cells if one.filter_code is not None),
        states=states,
        is_mapped=any(one.is_mapped for one in shown) and len({one.task_id for one in shown}) == 1,
    )
