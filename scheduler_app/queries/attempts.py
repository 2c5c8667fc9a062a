"""Attempts: lists, and one with its result and error."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from django.db.models import Count, Max, Min, OuterRef, Q, Subquery
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Coalesce

from scheduler_app.models import Attempt, TaskInstance
from scheduler_app.queries import lens, saving
from scheduler_app.rules.states import AttemptKind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime
    from uuid import UUID

    from django.db.models import QuerySet
    from django.db.models.expressions import Combinable

    from scheduler_app.queries.filters import AttemptFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow(lens.Standing):
    """One dispatch, and what came of it. Parents are null for a ghost. ``run``, ``ti``: numbers."""

    id: UUID
    flow_id: str | None
    run_id: str | None
    run: int | None
    ti: int | None
    task_id: str | None
    map_index: int | None
    map_label: str | None  # of its task instance
    kind: str
    callback_on: str | None  # of a callback: what it is about, and what is called
    callback_name: str | None
    callback_group: str | None  # of a callback of a group: its id
    callback_of: str | None  # id of the attempt that it is about; null: it is about no attempt
    try_number: int | None
    resume_index: int | None
    dispatch_no: int | None
    run_attempt: int | None
    shard: int | None
    lease_token: int | None
    fence: int | None
    queue: str
    pool: str
    pool_slots: int
    state: str
    outcome: str | None
    outcome_reason: str | None
    is_live: bool
    is_accepted: bool  # ended by its own report
    worker_job_id: UUID | None
    hostname: str | None
    pid: int | None
    publish_count: int
    issued_at: datetime | None
    published_at: datetime | None
    started_at: datetime | None
    heartbeat_at: datetime | None
    ended_at: datetime | None
    stop_requested_at: datetime | None
    stop_reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptDetail(AttemptRow):
    """One attempt with what lists leave out, since it may be large."""

    result: Any
    error: Mapping[str, Any] | None  # {"type", "message", "traceback", "bases"}
    progress: Mapping[str, Any] | None  # {"done", "total", "note", "at"}, by its own word


def visible(scope: Scope) -> QuerySet[Attempt]:
    """Every attempt in scope."""
    return scope.owned(Attempt.objects.all(), "run__flow_id")


_COLUMNS: Final[Mapping[str, str | Combinable]] = {
    **lens.OF_RUN,
    "run": "run_id",
    "ti": "ti_id",
    # A subquery, not a join: ghosts have no task instance.
    "map_label": Subquery(
        TaskInstance.objects.filter(id=OuterRef("ti_id")).values("map_label")[:1]
    ),
    "callback_on": KeyTextTransform("on", "callback"),
    "callback_name": KeyTextTransform("name", "callback"),
    "callback_group": KeyTextTransform("group", "callback"),
    "callback_of": KeyTextTransform("of", "callback"),
}

NOUN: Final = lens.Noun(
    name="attempts", model=Attempt, row=AttemptRow, rows=visible, columns=_COLUMNS
)
DETAIL: Final = lens.Noun(
    name="attempts",
    model=Attempt,
    row=AttemptDetail,
    rows=visible,
    columns={**_COLUMNS, "progress": saving.progress_of("id")},
)


class AttemptBrief(NamedTuple):
    """What a list of task instances tells of an attempt."""

    id: UUID
    ti: int
    is_filtered: bool
    hostname: str | None
    pid: int | None
    outcome_reason: str | None


def briefly(
    scope: Scope, *, ids: Collection[UUID] = (), tis: Collection[int] = (), at_most: int
) -> list[AttemptBrief]:
    """The attempts with these ids, or those of tasks of these task instances; the newest first."""
    wanted = Q(id__in=ids) if ids else Q(ti_id__in=tis, kind=AttemptKind.TASK)
    found = visible(scope).filter(wanted).order_by("-id")
    columns = ("id", "ti_id", "filter_code", "hostname", "pid", "outcome_reason")
    return [
        AttemptBrief(
            id=number,
            ti=ti,
            is_filtered=code is not None,
            hostname=host,
            pid=pid,
            outcome_reason=why,
        )
        for number, ti, code, host, pid, why in found.values_list(*columns)[:at_most]
    ]


def page(asked: AttemptFilter, scope: Scope) -> lens.Page[AttemptRow]:
    """One page of attempts."""
    return lens.page(NOUN, asked, scope)


def page_folded(asked: AttemptFilter, scope: Scope) -> lens.Page[AttemptRow]:
    """The same without those of mapped tasks, which ``folds_of_run`` tells of; the counts count them."""
    return lens.page(NOUN, asked, scope, window=_alone)


def _alone(asked: AttemptFilter, scope: Scope) -> Q:
    """Attempts of what is not mapped."""
    del asked, scope
    return Q(map_index__isnull=True) | Q(map_index__lt=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFold:
    """All current attempts of the instances of one mapped task of a run. Times aware UTC."""

    task_id: str
    outcomes: Mapping[str, int]  # how many ended how, or are in which state
    issued_at: datetime | None  # the first of them
    started_at: datetime | None  # likewise
    ended_at: datetime | None  # the last of them; null while one goes on

    @property
    def number(self) -> int:
        """How many they are."""
        return sum(self.outcomes.values())


def folds_of_run(scope: Scope, run: int) -> tuple[AttemptFold, ...]:
    """The attempts of each mapped task of the run as one, in the order in which they were issued."""
    counted = (
        visible(scope)
        .filter(run_id=run, map_index__gte=0, kind=AttemptKind.TASK, filter_code__isnull=True)
        .order_by()
        .values_list("task_id", Coalesce("outcome", "state"))
        .annotate(
            number=Count("*"),
            live=Count("id", filter=Q(ended_at__isnull=True)),
            issued=Min("issued_at"),
            started=Min("started_at"),
            ended=Max("ended_at"),
        )
    )
    parts: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for task_id, *rest in counted:
        parts[task_id].append(tuple(rest))
    found = [
        AttemptFold(
            task_id=task_id,
            outcomes={outcome: number for outcome, number, *_ in several},
            issued_at=min((one[3] for one in several if one[3] is not None), default=None),
            started_at=min((one[4] for one in several if one[4] is not None), default=None),
            ended_at=None
            if any(one[2] for one in several)
            else max((one[5] for one in several if one[5] is not None), default=None),
        )
        for task_id, several in parts.items()
    ]
    known = [one for one in found if one.issued_at is not None]
    return tuple(sorted(known, key=lambda one: (one.issued_at, one.task_id)))


def one(scope: Scope, attempt_id: UUID) -> AttemptDetail:
    """The attempt with this id. Raises ``NotFound``."""
    return lens.one(DETAIL, scope, Q(id=attempt_id), f"attempt {attempt_id}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    """How many attempts a task of a run has, and how many of them are set aside."""

    total: int
    filtered: int


def tries_of_runs(scope: Scope, runs: Collection[int]) -> dict[tuple[int, str], Tries]:
    """For each run and task of it that has attempts: how many, of all map indexes together."""
    counted = (
        visible(scope)
        .filter(run_id__in=runs, ti_id__isnull=False, kind=AttemptKind.TASK)
        .order_by()
        .values_list("run_id", "task_id")
        .annotate(total=Count("*"), filtered=Count("filter_code"))
    )
    return {
        (run, task_id): Tries(total=total, filtered=filtered)
        for run, task_id, total, filtered in counted
    }
