"""Task instances: lists, one, and the states of whole runs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from django.db.models import BooleanField, Count, ExpressionWrapper, Max, Min, Q

from scheduler_app.models import TaskInstance
from scheduler_app.queries import lens, saving, shown
from scheduler_app.queries.list_filter import Lens
from scheduler_app.rules.errors import InvalidInput, NotFound
from scheduler_app.rules.freezing import task_scope
from scheduler_app.rules.retry import told, told_tries
from scheduler_app.rules.states import TASK_TERMINAL, TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import TaskInstanceFilter
    from scheduler_app.queries.scope import Scope

CELLS_MAX: Final = 10_000  # of one picture: a task, a run and a state are one


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInstanceRow(lens.Standing):
    """One task of one run and map index. ``run`` is the number of the run."""

    id: int
    flow_id: str | None  # null: its run is gone
    run_id: str | None
    run: int
    task_id: str
    map_index: int
    map_label: str | None  # what people see beside the index, where its task says how
    shard: int
    state: str  # ``frozen`` while a freeze holds it, unless it has ended
    state_beneath: str
    try_number: int
    max_tries: int
    budget_start: int  # the try after which the present budget of tries began; 0 before any clear
    resume_index: int
    dispatch_no: int
    infra_losses: int
    attempt_id: UUID | None
    held_by: int | None  # number of the freeze
    pool: str
    pool_slots: int
    queue: str
    priority: int
    wait: Mapping[str, Any] | None  # {"code", "detail", "since"}
    ready_at: datetime | None
    queued_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    next_retry_at: datetime | None
    next_retry_why: Mapping[str, Any] | None  # of its last failure: see rules/retry.py
    next_method: str | None
    stop_requested_at: datetime | None  # a person wants it to end
    stop_reason: str | None
    # A person said what it is: {"state", "actor", "reason", ...}; while it stops, what it will be.
    mark: Mapping[str, Any] | None
    # Of the current attempt, by its own word: {"done", "total", "note", "at"}; total null: unknown.
    progress: Mapping[str, Any] | None

    @property
    def tries(self) -> str:
        """Which of how many tries it is at, counted afresh after a clear."""
        return told_tries(self.try_number, self.max_tries, self.budget_start)

    @property
    def next_retry_reason(self) -> str | None:
        """Why it is tried again when it is, or why it is not; of its last failure, if it waits on one."""
        return None if self.next_retry_why is None else told(self.next_retry_why)

    @property
    def waits_for_a_retry(self) -> bool:
        """Whether its next execution has a time that may be moved."""
        return self.state_beneath in (TaskState.UP_FOR_RETRY, TaskState.UP_FOR_RESCHEDULE)

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.state_beneath in TASK_TERMINAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What a picture of a run needs of a task: how many of its instances show one state."""

    ti: int  # the only one, or the first
    task_id: str
    is_mapped: bool  # these are its instances by map index
    state: str
    filter_code: str | None
    number: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Another instance of the same mapped task of the same run."""

    ti: int
    index: int
    label: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """The instances of one mapped task of one run, current ones or those set aside, as one row."""

    run: int  # its number
    task_id: str
    states: Mapping[str, int]  # how many show which state
    filtered: int  # that are set aside, beside the current ones
    matching: int  # of them, those that the list asks for
    started_at: datetime | None  # the first of them; aware UTC
    ended_at: datetime | None  # the last of them; null until all have

    @property
    def open(self) -> int:
        """How many of them have not ended."""
        return sum(number for state, number in self.states.items() if state not in TASK_TERMINAL)

    @property
    def scope_id(self) -> str:
        """What a freeze of all of them is of."""
        return task_scope(self.run, self.task_id).id

    @property
    def total(self) -> int:
        """Its current instances."""
        return sum(self.states.values())

    @property
    def told(self) -> str:
        """As "4,812 of 5,000 success, 3 failed"; nothing but the number where all are in one state."""
        return told_states(self.states)


def told_states(states: Mapping[str, int]) -> str:
    """How many instances are in which state, as a person says it; success first, then the most."""
    total = sum(states.values())
    if len(states) == 1:
        (state,) = states
        return f"all {total:,} {_said(state)}" if total > 1 else _said(state)
    done = states.get(TaskState.SUCCESS, 0)
    others = sorted(
        ((state, number) for state, number in states.items() if state != TaskState.SUCCESS),
        key=lambda one: (-one[1], one[0]),
    )
    parts = [f"{done:,} of {total:,} success"]
    return ", ".join(parts + [f"{number:,} {_said(state)}" for state, number in others])


def _said(state: str) -> str:
    return "not ready" if state == TaskState.NONE else state.replace("_", " ")


def _rows(scope: Scope) -> QuerySet[TaskInstance]:
    return scope.owned(TaskInstance.objects.all(), "run__flow_id")


NOUN: Final = lens.Noun(
    name="task-instances",
    model=TaskInstance,
    row=TaskInstanceRow,
    rows=_rows,
    columns={
        **lens.OF_RUN,
        "run": "run_id",
        "state": shown.TASK_SHOWN,
        "state_beneath": "state",
        "progress": saving.progress_of("attempt_id"),
    },
)


# What all instances of a mapped task have in common: a list that asks for nothing else has all of
# them or none, so that the first stands for all.
COMMON: Final = frozenset({"flow_id", "run_id", "run", "task_id", "group", "shard"})
_MAPPED: Final = ExpressionWrapper(Q(map_index__gte=0), output_field=BooleanField())
_ASIDE: Final = ExpressionWrapper(Q(filter_code__isnull=False), output_field=BooleanField())


def in_states(states: Sequence[str]) -> Q:
    """Task instances whose own state, whatever covers it, is one of these."""
    return shown.stored_task_states(states)


def page(asked: TaskInstanceFilter, scope: Scope) -> lens.Page[TaskInstanceRow]:
    """One page of task instances."""
    return lens.page(NOUN, asked, scope)


def can_fold(asked: TaskInstanceFilter) -> bool:
    """Whether the list may show all instances of a mapped task as one row; not where it asks for some.

    Beyond one run only by what they have in common: the first instance then stands for all.
    """
    if asked.map_index:
        return False
    return bool(asked.run) or _is_whole(asked)


def _is_whole(asked: TaskInstanceFilter) -> bool:
    """Whether the list has all current instances of a mapped task, or none."""
    return asked.filtered is Lens.CURRENT and asked.narrowing() <= COMMON


def page_folded(asked: TaskInstanceFilter, scope: Scope) -> lens.Page[TaskInstanceRow]:
    """The same, with one row for all instances of a mapped task of a run; ``folds`` tells of them.

    The counts are of task instances all the same. Asked for only where ``can_fold``.
    """
    return lens.page(NOUN, asked, scope, window=_standing_for_all)


def _standing_for_all(asked: TaskInstanceFilter, scope: Scope) -> Q:
    """What is not mapped, and of each mapped task the first instance that the list asks for."""
    if _is_whole(asked):
        return Q(map_index__lte=0)
    first = (
        asked.apply(_rows(scope))
        .filter(map_index__gte=0)
        .order_by()
        .values("run_id", "task_id", aside=_ASIDE)
        .annotate(first=Min("id"))
        .values("first")
    )
    return Q(map_index__lt=0) | Q(id__in=first)


def folds(
    asked: TaskInstanceFilter, scope: Scope, rows: Collection[TaskInstanceRow]
) -> dict[int, Fold]:
    """For each of these rows that is an instance of a mapped task: all of them, by the row's number."""
    standing = {
        (row.run, row.task_id, row.is_filtered): row.id for row in rows if row.map_index >= 0
    }
    if not standing:
        return {}
    parts = _of_mapped(
        scope,
        runs={run for run, _, _ in standing},
        task_ids={task_id for _, task_id, _ in standing},
        wanted=asked.condition(but=COMMON),
    )
    return {
        ti: _fold(run, task_id, parts[run, task_id, is_aside], parts[run, task_id, True])
        for (run, task_id, is_aside), ti in standing.items()
    }


def fold_of(scope: Scope, run: int, task_id: str) -> Fold | None:
    """All instances of this task of the run as one; null where it has none by map index."""
    parts = _of_mapped(scope, runs={run}, task_ids={task_id}, wanted=Q())
    if not parts:
        return None
    current, aside = parts[run, task_id, False], parts[run, task_id, True]
    return _fold(run, task_id, current or aside, aside)


class _OfState(NamedTuple):
    """The instances of a mapped task that show one state."""

    state: str
    number: int
    matching: int
    begun: datetime | None
    ended: datetime | None


def _of_mapped(
    scope: Scope, *, runs: Collection[int], task_ids: Collection[str], wanted: Q
) -> dict[tuple[int, str, bool], list[_OfState]]:
    """By run, task and whether they are set aside: the instances by map index, counted by state."""
    counted = (
        _rows(scope)
        .filter(run_id__in=runs, task_id__in=task_ids, map_index__gte=0)
        .order_by()
        .values_list("run_id", "task_id", _ASIDE, shown.TASK_SHOWN)
        .annotate(
            number=Count("*"),
            matching=Count("id", filter=wanted),
            begun=Min("started_at"),
            ended=Max("ended_at"),
        )
    )
    parts: dict[tuple[int, str, bool], list[_OfState]] = defaultdict(list)
    for run, task_id, is_aside, *of_state in counted:
        parts[run, task_id, is_aside].append(_OfState(*of_state))
    return parts


def _fold(run: int, task_id: str, parts: list[_OfState], aside: list[_OfState]) -> Fold:
    are_over = all(one.state in TASK_TERMINAL for one in parts)
    ended = max((one.ended for one in parts if one.ended is not None), default=None)
    return Fold(
        run=run,
        task_id=task_id,
        states={one.state: one.number for one in parts},
        filtered=0 if aside is parts else sum(one.number for one in aside),
        matching=sum(one.matching for one in parts),
        started_at=min((one.begun for one in parts if one.begun is not None), default=None),
        ended_at=ended if are_over else None,
    )


def one(scope: Scope, ti: int) -> TaskInstanceRow:
    """The task instance with this number. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(id=ti), f"task instance {ti}")


def beside(scope: Scope, row: TaskInstanceRow) -> dict[str, Neighbour]:
    """Of a mapped instance: the one before it and the one after it, current ones, where there are some."""
    if row.map_index < 0:
        return {}
    same = _rows(scope).filter(run_id=row.run, task_id=row.task_id, filter_code__isnull=True)
    before = same.filter(map_index__lt=row.map_index, map_index__gte=0).order_by("-map_index")
    after = same.filter(map_index__gt=row.map_index).order_by("map_index")
    columns = ("id", "map_index", "map_label")
    found = before.values_list(*columns)[:1].union(after.values_list(*columns)[:1], all=True)
    return {
        "previous" if index < row.map_index else "next": Neighbour(ti=ti, index=index, label=label)
        for ti, index, label in found
    }


def runs_of(scope: Scope, tis: Collection[int]) -> dict[int, int]:
    """For each of these task instances the number of its run. Raises ``NotFound`` for the first unseen."""
    found = dict(_rows(scope).filter(id__in=tis).values_list("id", "run_id"))
    for ti in tis:
        if ti not in found:
            raise NotFound(f"There is no task instance {ti}, or you may not see it.")
    return found


def check_of_run(scope: Scope, run: int, tis: Collection[int]) -> None:
    """Raises ``NotFound`` for what nobody sees, ``InvalidInput`` for what is of another run."""
    for ti, own in runs_of(scope, tis).items():
        if own != run:
            message = f"Task instance {ti} is not of this run."
            raise InvalidInput(message, field="task_instances")


def state_counts(scope: Scope, runs: Collection[int]) -> dict[int, dict[str, int]]:
    """For each run (by number): how many current task instances show each state."""
    counted = (
        _rows(scope)
        .filter(run_id__in=runs, filter_code__isnull=True)
        .order_by()
        .values_list("run_id", shown.TASK_SHOWN)
        .annotate(n=Count("*"))
    )
    found: dict[int, dict[str, int]] = defaultdict(dict)
    for run, state, number in counted:
        found[run][state] = number
    return {run: found[run] for run in runs}


def cells(scope: Scope, runs: Collection[int]) -> dict[int, tuple[Cell, ...]]:
    """How many instances of each task of each run show which state, current and filtered.

    For graph and grid: a mapped task is as small as any other. At most ``CELLS_MAX`` of each call.
    """
    found: dict[int, list[Cell]] = defaultdict(list)
    rows = (
        _rows(scope)
        .filter(run_id__in=runs)
        .order_by()
        .values_list("run_id", "task_id", _MAPPED, shown.TASK_SHOWN, "filter_code")
        .annotate(number=Count("*"), first=Min("id"))
        .order_by("run_id", "task_id", "first")
    )
    for run, task_id, is_mapped, state, code, number, first in rows[:CELLS_MAX]:
        found[run].append(
            Cell(
                ti=first,
                task_id=task_id,
                is_mapped=is_mapped,
                state=state,
                filter_code=code,
                number=number,
            )
        )
    return {run: tuple(found[run]) for run in runs}
