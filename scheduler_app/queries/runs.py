"""Runs: lists, one, and the newest of each flow."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from django.db.models import Case, Count, OuterRef, Q, Subquery, When
from django.db.models.functions import JSONObject

from scheduler_app.models import Run, TaskInstance, TriggeredRun
from scheduler_app.queries import lens, shown
from scheduler_app.rules.errors import NotFound
from scheduler_app.rules.states import RUN_TERMINAL, RunState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import RunFilter
    from scheduler_app.queries.scope import Scope
    from scheduler_app.transitions.run import Created, NewRun

LATEST_MAX: Final = 100  # runs a flow in one strip


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow(lens.Standing):
    """One run. ``run_id`` is its text within the flow, ``id`` its number."""

    id: int
    flow_id: str
    run_id: str
    shard: int
    state: str  # ``frozen`` while frozen
    state_beneath: str
    state_reason: str
    run_type: str
    logical_date: datetime | None
    data_interval_start: datetime | None
    data_interval_end: datetime | None
    run_attempt: int
    version: int  # its number within the flow
    version_id: int
    conf: Mapping[str, Any]
    note: str
    actor: str
    created_at: datetime
    queued_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    deadline_at: datetime | None
    frozen_at: datetime | None
    # A person said how it ends, or ended it: {"state", "actor", "reason", ...}.
    mark: Mapping[str, Any] | None
    retry_at: datetime | None  # when its policy begins the next run attempt
    retry_count: int  # run attempts that its policy began
    retry_reason: str  # why it waits for that, or why none follows
    backfill_id: int | None  # that made it, or had it run again
    # The task that asked for it first: {"run", "flow_id", "run_id", "ti", "task_id", "map_index",
    # "attempt_id", "waits", "on_stop"}.
    triggered_by: Mapping[str, Any] | None

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.state_beneath in RUN_TERMINAL


class RunDates(NamedTuple):
    """When a run is for, and when it was due."""

    id: int
    logical_date: datetime | None
    run_type: str
    data_interval_end: datetime | None
    created_at: datetime


def dates(scope: Scope, runs: Collection[int]) -> dict[int, RunDates]:
    """The dates of these runs, by number."""
    found = _rows(scope).filter(id__in=runs).order_by().values_list(*RunDates._fields)
    return {number: RunDates(number, *rest) for number, *rest in found}


def _rows(scope: Scope) -> QuerySet[Run]:
    return scope.owned(Run.objects.all(), "flow_id")


_PARENT: Final = Run.objects.filter(id=OuterRef("parent_run_id"))
_ASKING: Final = TaskInstance.objects.filter(id=OuterRef("ti_id"))

NOUN: Final = lens.Noun(
    name="runs",
    model=Run,
    row=RunRow,
    rows=_rows,
    columns={
        "run_id": "run_key",
        "state": shown.RUN_SHOWN,
        "state_beneath": "state",
        "version": "version__number",
        "triggered_by": Subquery(
            TriggeredRun.objects.filter(run_id=OuterRef("id"))
            .order_by("id")
            .values(
                told=JSONObject(
                    run="parent_run_id",
                    flow_id=Subquery(_PARENT.values("flow_id")),
                    run_id=Subquery(_PARENT.values("run_key")),
                    ti="ti_id",
                    task_id=Subquery(_ASKING.values("task_id")),
                    map_index=Subquery(_ASKING.values("map_index")),
                    attempt_id="attempt_id",
                    waits="waits",
                    on_stop="on_stop",
                )
            )[:1]
        ),
    },
)


def page(asked: RunFilter, scope: Scope) -> lens.Page[RunRow]:
    """One page of runs."""
    return lens.page(NOUN, asked, scope)


_KNOWN: Final = lens.Known(NOUN)


def one(scope: Scope, run: int) -> RunRow:
    """The run with this number. Raises ``NotFound``."""
    return _KNOWN.one(scope, run, f"run {run}")


def just_triggered(new: NewRun, created: Created, *, version: int) -> RunRow:
    """The row of a run that was made a moment ago, as ``one`` had it then, without asking for it."""
    return RunRow(
        id=created.id,
        flow_id=new.flow_id,
        run_id=new.run_key,
        shard=new.shard,
        state=shown.FROZEN if created.frozen_at else RunState.QUEUED.value,
        state_beneath=RunState.QUEUED.value,
        state_reason="",
        run_type=new.run_type.value,
        logical_date=new.logical_date,
        data_interval_start=new.data_interval_start,
        data_interval_end=new.data_interval_end,
        run_attempt=1,
        version=version,
        version_id=new.version_id,
        conf=created.conf,
        note=new.note,
        actor=new.actor,
        created_at=created.created_at,
        queued_at=created.queued_at,
        started_at=None,
        ended_at=None,
        deadline_at=None,
        frozen_at=created.frozen_at,
        mark=None,
        retry_at=None,
        retry_count=0,
        retry_reason="",
        backfill_id=None,
        triggered_by=None,
    )


def check_all(scope: Scope, wanted: Collection[int]) -> None:
    """Raises ``NotFound`` for the first run that the scope does not see."""
    found = set(_rows(scope).filter(id__in=wanted).values_list("id", flat=True))
    for run in wanted:
        if run not in found:
            raise NotFound(f"There is no run {run}, or you may not see it.")


def by_key(scope: Scope, flow_id: str, run_id: str) -> RunRow:
    """The run of a flow with this text id. Raises ``NotFound``."""
    return lens.one(
        NOUN, scope, Q(flow_id=flow_id, run_key=run_id), f"run {run_id} of flow {flow_id}"
    )


def triggered(
    scope: Scope, *, run: int | None = None, ti: int | None = None, limit: int = LATEST_MAX
) -> tuple[RunRow, ...]:
    """Current runs that a task of the run, or the task instance, asked for.

    What failed comes first, then what goes on, then the newest.
    """
    asked = TriggeredRun.objects.filter(
        **({"ti_id": ti} if run is None else {"parent_run_id": run})
    )
    found = (
        _rows(scope)
        .filter(id__in=asked.values("run_id"), filter_code__isnull=True)
        .order_by(
            Case(When(state="failed", then=0), When(is_active=True, then=1), default=2), "-id"
        )
        .values_list(*NOUN.sources())[: min(limit, LATEST_MAX)]
    )
    return tuple(NOUN.row_of(values) for values in found)


def state_counts(scope: Scope, flow_ids: Collection[str]) -> dict[str, dict[str, int]]:
    """For each flow that has some: how many current runs are in each state, beneath any freeze."""
    counted = (
        _rows(scope)
        .filter(flow_id__in=flow_ids, filter_code__isnull=True)
        .order_by()
        .values_list("flow_id", "state")
        .annotate(n=Count("*"))
    )
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for flow_id, state, number in counted:
        found[flow_id][state] = number
    return dict(found)


def latest_of_flows(
    scope: Scope, flow_ids: Collection[str], each: int = 14
) -> dict[str, tuple[RunRow, ...]]:
    """The newest current runs of each flow, oldest first: one statement for a page of flows."""
    each = min(each, LATEST_MAX)
    # One short index scan a flow; a window over all their runs would read every one of them.
    parts = [
        _rows(scope)
        .filter(flow_id=flow_id, filter_code__isnull=True)
        .order_by("-id")
        .values_list(*NOUN.sources())[:each]
        for flow_id in flow_ids
    ]
    found: dict[str, list[RunRow]] = defaultdict(list)
    if parts:
        for values in parts[0].union(*parts[1:], all=True):
            row = NOUN.row_of(values)
            found[row.flow_id].append(row)
    return {flow_id: tuple(sorted(found[flow_id], key=lambda row: row.id)) for flow_id in flow_ids}
