"""Task instances: lists, one, and the states of whole runs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Count, OuterRef, Q, Subquery

from scheduler_app.models import Run, TaskInstance
from scheduler_app.queries import lens, saving, shown
from scheduler_app.rules.retry import told, told_tries
from scheduler_app.rules.states import TASK_TERMINAL, TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime
    from uuid import UUID

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import TaskInstanceFilter
    from scheduler_app.queries.scope import Scope

CELLS_MAX: Final = 10_000  # task instances of one picture of a run


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInstanceRow(lens.Standing):
    """One task of one run and map index. ``run`` is the number of the run."""

    id: int
    flow_id: str | None  # null: its run is gone
    run_id: str | None
    run: int
    task_id: str
    map_index: int
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
    """What a picture of a run needs of a task instance."""

    id: int
    task_id: str
    map_index: int
    state: str
    filter_code: str | None


def _rows(scope: Scope) -> QuerySet[TaskInstance]:
    return scope.owned(TaskInstance.objects.all(), "run__flow_id")


# Subqueries, not joins: the column is not null, so a join would hide the instances of a lost run.
_RUN: Final = Run.objects.filter(id=OuterRef("run_id"))

NOUN: Final = lens.Noun(
    name="task-instances",
    model=TaskInstance,
    row=TaskInstanceRow,
    rows=_rows,
    columns={
        "flow_id": Subquery(_RUN.values("flow_id")),
        "run_id": Subquery(_RUN.values("run_key")),
        "run": "run_id",
        "state": shown.TASK_SHOWN,
        "state_beneath": "state",
        "progress": saving.progress_of("attempt_id"),
    },
)


def page(asked: TaskInstanceFilter, scope: Scope) -> lens.Page[TaskInstanceRow]:
    """One page of task instances."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, ti: int) -> TaskInstanceRow:
    """The task instance with this number. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(id=ti), f"task instance {ti}")


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
    """The task instances of each run, current and filtered, by task and index: graph and grid.

    At most ``CELLS_MAX`` of each call; the list has the rest.
    """
    found: dict[int, list[Cell]] = defaultdict(list)
    rows = (
        _rows(scope)
        .filter(run_id__in=runs)
        .order_by("run_id", "task_id", "map_index")
        .values_list("run_id", "id", "task_id", "map_index", shown.TASK_SHOWN, "filter_code")
    )
    for run, ti, task_id, map_index, state, code in rows[:CELLS_MAX]:
        found[run].append(
            Cell(id=ti, task_id=task_id, map_index=map_index, state=state, filter_code=code)
        )
    return {run: tuple(found[run]) for run in runs}
