"""What a list was asked for: one frozen filter per noun, parsed once, and given back for every link.

Law: ``from_query(f.to_query()) == f``. Page, count, export link, API list and bulk act all use the
same value, so they can never mean different sets. Parameters of every list:

* ``filtered=1`` shows filtered rows among the current ones, ``filtered=only`` shows them alone;
  absent means current rows only. ``why=code,...`` narrows the filtered rows to these codes, and
  alone means ``filtered=only``.
* ``limit`` (1 to 500), ``cursor``, ``order`` (a column of ``ORDERS``, '-' in front for descending),
  ``count=exact``.
* Times come as ``<column>_gte`` and ``<column>_lte``: ISO 8601, both ends included; without an
  offset they are UTC.
* Every other parameter may be repeated: any of the values will do. An empty one counts as absent.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, ClassVar, TypeVar

from django.db.models import Q

from scheduler_app.models import Attempt, FlowVersion, Run, TakeOverItem, TriggeredRun
from scheduler_app.queries import record_ids, shown
from scheduler_app.queries import reviewed as reviewed_marks
from scheduler_app.queries.group_tasks import tasks_of
from scheduler_app.queries.list_filter import Lens, ListFilter
from scheduler_app.queries.parameters import (
    choice_by,
    choice_of,
    moment,
    number_by,
    number_of,
    text_by,
    text_of,
    uuid_by,
    uuid_of,
)
from scheduler_app.rules import ghosts, guards, incidents, leadership, states, visibility
from scheduler_app.rules.backfill import DateState
from scheduler_app.rules.callbacks import CallbackOn
from scheduler_app.rules.errors import InvalidInput
from scheduler_app.rules.freezing import Mode, ScopeKind

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from django.db.models import Model, QuerySet

    ModelT = TypeVar("ModelT", bound=Model)


def _runs_of_flows(flow_ids: tuple[str, ...]) -> Q:
    # A subquery, not a join: the counts then read one table.
    return Q(run_id__in=Run.objects.filter(flow_id__in=flow_ids).values("id"))


def _runs_by_key(run_ids: tuple[str, ...]) -> Q:
    return Q(run_id__in=Run.objects.filter(run_key__in=run_ids).values("id"))


def _runs_of_versions(numbers: tuple[int, ...]) -> Q:
    return Q(version_id__in=FlowVersion.objects.filter(number__in=numbers).values("id"))


def _runs_asked_for_in(runs: tuple[int, ...]) -> Q:
    asked = TriggeredRun.objects.filter(parent_run_id__in=runs)
    return Q(id__in=asked.values("run_id"))


def _runs_asked_for_by(tis: tuple[int, ...]) -> Q:
    return Q(id__in=TriggeredRun.objects.filter(ti_id__in=tis).values("run_id"))


def _take_overs_with(decisions: tuple[str, ...]) -> Q:
    items = TakeOverItem.objects.filter(decision__in=decisions)
    return Q(id__in=items.values("take_over_id"))


def _reviews_of_runs(runs: tuple[int, ...]) -> Q:
    return Q(object_kind="run", object_id__in=[str(run) for run in runs])


def _any_tag(tags: tuple[str, ...]) -> Q:
    kept = Q()
    for tag in tags:
        kept |= Q(tags__contains=[tag])
    return kept


def _any_part(parts: tuple[str, ...]) -> Q:
    kept = Q()
    for part in parts:
        kept |= Q(flow_id__icontains=part)
    return kept


def _any_label(parts: tuple[str, ...]) -> Q:
    kept = Q()
    for part in parts:
        kept |= Q(map_label__icontains=part)
    return kept


def _any_callback(ons: tuple[str, ...]) -> Q:
    return Q(kind=states.AttemptKind.CALLBACK, callback__on__in=ons)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowFilter(ListFilter):
    """Which flows."""

    ORDERS: ClassVar[tuple[str, ...]] = ("flow_id", "created_at", "updated_at", "next_interval_end")
    ORDER_DEFAULT: ClassVar[str] = "flow_id"

    flow_id: tuple[str, ...] = field(default=(), metadata=text_of("flow_id"))
    q: tuple[str, ...] = field(default=(), metadata=text_by(_any_part))  # any part of the id
    state: tuple[str, ...] = field(
        default=(), metadata=choice_by(shown.flow_states, shown.FLOW_STATES)
    )
    tag: tuple[str, ...] = field(default=(), metadata=text_by(_any_tag))
    owner: tuple[str, ...] = field(default=(), metadata=text_of("owner"))
    shard: tuple[int, ...] = field(default=(), metadata=number_of("shard"))
    updated_at_gte: datetime | None = field(default=None, metadata=moment("updated_at__gte"))
    updated_at_lte: datetime | None = field(default=None, metadata=moment("updated_at__lte"))


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowVersionFilter(ListFilter):
    """Which versions of flows."""

    ORDERS: ClassVar[tuple[str, ...]] = ("id", "created_at")

    flow_id: tuple[str, ...] = field(default=(), metadata=text_of("flow_id"))
    number: tuple[int, ...] = field(default=(), metadata=number_of("number"))
    created_at_gte: datetime | None = field(default=None, metadata=moment("created_at__gte"))
    created_at_lte: datetime | None = field(default=None, metadata=moment("created_at__lte"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter(ListFilter):
    """Which runs."""

    ORDERS: ClassVar[tuple[str, ...]] = (
        "id",
        "logical_date",
        "created_at",
        "queued_at",
        "started_at",
        "ended_at",
    )
    KNOWN_ASIDE: ClassVar[frozenset[str]] = frozenset({"flow_id", "state", "run_type", "shard"})

    flow_id: tuple[str, ...] = field(default=(), metadata=text_of("flow_id"))
    run_id: tuple[str, ...] = field(default=(), metadata=text_of("run_key"))
    state: tuple[str, ...] = field(
        default=(), metadata=choice_by(shown.run_states, shown.RUN_STATES)
    )
    run_type: tuple[str, ...] = field(
        default=(), metadata=choice_of("run_type", tuple(kind.value for kind in states.RunType))
    )
    version: tuple[int, ...] = field(default=(), metadata=number_by(_runs_of_versions))
    backfill: tuple[int, ...] = field(default=(), metadata=number_of("backfill_id"))
    # Asked for by a task of the run, or by the task instance, with this number.
    triggered_by: tuple[int, ...] = field(default=(), metadata=number_by(_runs_asked_for_in))
    triggered_by_ti: tuple[int, ...] = field(default=(), metadata=number_by(_runs_asked_for_by))
    shard: tuple[int, ...] = field(default=(), metadata=number_of("shard"))
    logical_date_gte: datetime | None = field(default=None, metadata=moment("logical_date__gte"))
    logical_date_lte: datetime | None = field(default=None, metadata=moment("logical_date__lte"))
    created_at_gte: datetime | None = field(default=None, metadata=moment("created_at__gte"))
    created_at_lte: datetime | None = field(default=None, metadata=moment("created_at__lte"))
    queued_at_gte: datetime | None = field(default=None, metadata=moment("queued_at__gte"))
    queued_at_lte: datetime | None = field(default=None, metadata=moment("queued_at__lte"))
    started_at_gte: datetime | None = field(default=None, metadata=moment("started_at__gte"))
    started_at_lte: datetime | None = field(default=None, metadata=moment("started_at__lte"))
    ended_at_gte: datetime | None = field(default=None, metadata=moment("ended_at__gte"))
    ended_at_lte: datetime | None = field(default=None, metadata=moment("ended_at__lte"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAttemptFilter(ListFilter):
    """Which run attempts."""

    ORDERS: ClassVar[tuple[str, ...]] = ("id", "started_at", "ended_at")
    KNOWN_ASIDE: ClassVar[frozenset[str]] = frozenset({"flow_id"})

    flow_id: tuple[str, ...] = field(default=(), metadata=text_by(_runs_of_flows))
    run_id: tuple[str, ...] = field(default=(), metadata=text_by(_runs_by_key))
    run: tuple[int, ...] = field(default=(), metadata=number_of("run_id"))
    state: tuple[str, ...] = field(default=(), metadata=choice_of("state", shown.RUN_STATES[:-1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInstanceFilter(ListFilter):
    """Which task instances. ``run`` is the number of a run (its ``id``), ``run_id`` its text."""

    ORDERS: ClassVar[tuple[str, ...]] = (
        "id",
        "task_id",
        "map_index",
        "priority",
        "queued_at",
        "started_at",
        "ended_at",
    )
    KNOWN_ASIDE: ClassVar[frozenset[str]] = frozenset(
        {"flow_id", "task_id", "map_index", "state", "shard"}
    )

    flow_id: tuple[str, ...] = field(default=(), metadata=text_by(_runs_of_flows))
    run_id: tuple[str, ...] = field(default=(), metadata=text_by(_runs_by_key))
    run: tuple[int, ...] = field(default=(), metadata=number_of("run_id"))
    task_id: tuple[str, ...] = field(default=(), metadata=text_of("task_id"))
    # With ``run`` or ``flow_id``: the tasks of these groups.
    group: tuple[str, ...] = field(default=(), metadata=text_by(lambda _: Q()))
    map_index: tuple[int, ...] = field(default=(), metadata=number_of("map_index"))
    map_label: tuple[str, ...] = field(default=(), metadata=text_by(_any_label))  # a part of it
    state: tuple[str, ...] = field(
        default=(), metadata=choice_by(shown.task_states, shown.TASK_STATES)
    )
    pool: tuple[str, ...] = field(default=(), metadata=text_of("pool"))
    queue: tuple[str, ...] = field(default=(), metadata=text_of("queue"))
    shard: tuple[int, ...] = field(default=(), metadata=number_of("shard"))
    queued_at_gte: datetime | None = field(default=None, metadata=moment("queued_at__gte"))
    queued_at_lte: datetime | None = field(default=None, metadata=moment("queued_at__lte"))
    started_at_gte: datetime | None = field(default=None, metadata=moment("started_at__gte"))
    started_at_lte: datetime | None = field(default=None, metadata=moment("started_at__lte"))
    ended_at_gte: datetime | None = field(default=None, metadata=moment("ended_at__gte"))
    ended_at_lte: datetime | None = field(default=None, metadata=moment("ended_at__lte"))

    @property
    def is_lasting(self) -> bool:
        """Not where the tasks of a group are looked up: another version of the flow has others."""
        return not self.group

    def matching(self, rows: QuerySet[ModelT]) -> QuerySet[ModelT]:
        """As of every list; a group is looked up in the versions of the runs or flows asked for."""
        rows = ListFilter.matching(self, rows)  # super() knows another class than slots make
        if not self.group:
            return rows
        if not self.run and not self.flow_id:
            message = "group: name the flow too (flow_id), or the run by its number (run)."
            raise InvalidInput(message, field="group")
        found = tasks_of(self.group, run=self.run, flow_id=self.flow_id)
        return rows.filter(task_id__in=found)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFilter(ListFilter):
    """Which attempts. ``ti`` is the number of a task instance."""

    ORDERS: ClassVar[tuple[str, ...]] = (
        "id",
        "fence",
        "issued_at",
        "started_at",
        "heartbeat_at",
        "ended_at",
    )
    KNOWN_ASIDE: ClassVar[frozenset[str]] = frozenset(
        {"flow_id", "task_id", "map_index", "outcome", "kind", "shard"}
    )

    flow_id: tuple[str, ...] = field(default=(), metadata=text_by(_runs_of_flows))
    run_id: tuple[str, ...] = field(default=(), metadata=text_by(_runs_by_key))
    run: tuple[int, ...] = field(default=(), metadata=number_of("run_id"))
    ti: tuple[int, ...] = field(default=(), metadata=number_of("ti_id"))
    task_id: tuple[str, ...] = field(default=(), metadata=text_of("task_id"))
    map_index: tuple[int, ...] = field(default=(), metadata=number_of("map_index"))
    try_number: tuple[int, ...] = field(default=(), metadata=number_of("try_number"))
    state: tuple[str, ...] = field(
        default=(), metadata=choice_by(shown.attempt_states, shown.ATTEMPT_STATES)
    )
    outcome: tuple[str, ...] = field(default=(), metadata=choice_of("outcome", shown.OUTCOMES))
    kind: tuple[str, ...] = field(
        default=(), metadata=choice_of("kind", tuple(kind.value for kind in states.AttemptKind))
    )
    callback_on: tuple[str, ...] = field(
        default=(), metadata=choice_by(_any_callback, tuple(on.value for on in CallbackOn))
    )
    hostname: tuple[str, ...] = field(default=(), metadata=text_of("hostname"))
    worker_job_id: tuple[UUID, ...] = field(default=(), metadata=uuid_of("worker_job_id"))
    shard: tuple[int, ...] = field(default=(), metadata=number_of("shard"))
    issued_at_gte: datetime | None = field(default=None, metadata=moment("issued_at__gte"))
    issued_at_lte: datetime | None = field(default=None, metadata=moment("issued_at__lte"))
    started_at_gte: datetime | None = field(default=None, metadata=moment("started_at__gte"))
    started_at_lte: datetime | None = field(default=None, metadata=moment("started_at__lte"))
    ended_at_gte: datetime | None = field(default=None, metadata=moment("ended_at__gte"))
    ended_at_lte: datetime | None = field(default=None, metadata=moment("ended_at__lte"))


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter(ListFilter):
    """Which executor events."""

    ORDERS: ClassVar[tuple[str, ...]] = ("id", "received_at")
    KNOWN_ASIDE: ClassVar[frozenset[str]] = frozenset(
        {"flow_id", "task_id", "kind", "verdict", "shard"}
    )

    flow_id: tuple[str, ...] = field(default=(), metadata=text_by(_runs_of_flows))
    run_id: tuple[str, ...] = field(default=(), metadata=text_by(_runs_by_key))
    run: tuple[int, ...] = field(default=(), metadata=number_of("run_id"))
    ti: tuple[int, ...] = field(default=(), metadata=number_of("ti_id"))
    task_id: tuple[str, ...] = field(default=(), metadata=text_of("task_id"))
    attempt_id: tuple[UUID, ...] = field(default=(), metadata=uuid_of("attempt_id"))
    kind: tuple[str, ...] = field(default=(), metadata=text_of("kind"))
    source: tuple[str, ...] = field(default=(), metadata=text_of("source"))
    verdict: tuple[str, ...] = field(default=(), metadata=choice_of("verdict", shown.VERDICTS))
    shard: tuple[int, ...] = field(default=(), metadata=number_of("shard"))
    received_at_gte: datetime | None = field(default=None, metadata=moment("received_at__gte"))
    received_at_lte: datetime | None = field(default=None, metadata=moment("received_at__lte"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseFilter(ListFilter):
    """Which leases."""

    ORDERS: ClassVar[tuple[str, ...]] = ("shard", "token", "expires_at")
    ORDER_DEFAULT: ClassVar[str] = "shard"

    shard: tuple[int, ...] = field(default=(), metadata=number_of("shard"))
    holder: tuple[UUID, ...] = field(default=(), metadata=uuid_of("holder"))
    state: tuple[str, ...] = field(
        default=(), metadata=choice_by(shown.lease_states, shown.LEASE_STATES)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseEventFilter(ListFilter):
    """Which lease events."""

    ORDERS: ClassVar[tuple[str, ...]] = ("id", "at")

    shard: tuple[int, ...] = field(default=(), metadata=number_of("shard"))
    kind: tuple[str, ...] = field(
        default=(),
        metadata=choice_of("kind", tuple(kind.value for kind in leadership.LeaseEventKind)),
    )
    token: tuple[int, ...] = field(default=(), metadata=number_of("token"))
    holder: tuple[UUID, ...] = field(default=(), metadata=uuid_of("holder"))
    at_gte: datetime | None = field(default=None, metadata=moment("at__gte"))
    at_lte: datetime | None = field(default=None, metadata=moment("at__lte"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOverFilter(ListFilter):
    """Which take-overs. ``holder`` is the new or the old one."""

    ORDERS: ClassVar[tuple[str, ...]] = ("id", "shard", "started_at", "ended_at")

    id: tuple[int, ...] = field(default=(), metadata=number_of("id"))
    shard: tuple[int, ...] = field(default=(), metadata=number_of("shard"))
    cause: tuple[str, ...] = field(
        default=(), metadata=choice_of("cause", tuple(cause.value for cause in leadership.Cause))
    )
    state: tuple[str, ...] = field(
        default=(), metadata=choice_by(shown.take_over_states, shown.TAKE_OVER_STATES)
    )
    decision: tuple[str, ...] = field(
        default=(), metadata=choice_by(_take_overs_with, shown.DECISIONS)
    )
    holder: tuple[UUID, ...] = field(
        default=(),
        metadata=uuid_by(lambda ids: Q(holder__in=ids) | Q(old_holder__in=ids)),
    )
    new_token: tuple[int, ...] = field(default=(), metadata=number_of("new_token"))
    started_at_gte: datetime | None = field(default=None, metadata=moment("started_at__gte"))
    started_at_lte: datetime | None = field(default=None, metadata=moment("started_at__lte"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOverItemFilter(ListFilter):
    """Which finds of take-overs. ``take_over`` is a number."""

    ORDERS: ClassVar[tuple[str, ...]] = ("id", "decided_at")

    take_over: tuple[int, ...] = field(default=(), metadata=number_of("take_over_id"))
    attempt_id: tuple[UUID, ...] = field(default=(), metadata=uuid_of("attempt_id"))
    decision: tuple[str, ...] = field(default=(), metadata=choice_of("decision", shown.DECISIONS))
    hostname: tuple[str, ...] = field(default=(), metadata=text_of("hostname"))
    shard: tuple[int, ...] = field(default=(), metadata=number_of("take_over__shard"))
    decided_at_gte: datetime | None = field(default=None, metadata=moment("decided_at__gte"))
    decided_at_lte: datetime | None = field(default=None, metadata=moment("decided_at__lte"))


@dataclass(frozen=True, slots=True, kw_only=True)
class InquiryFilter(ListFilter):
    """Which questions to workers."""

    ORDERS: ClassVar[tuple[str, ...]] = ("id", "asked_at", "answered_at")

    ask_id: tuple[UUID, ...] = field(default=(), metadata=uuid_of("ask_id"))
    worker_job_id: tuple[UUID, ...] = field(default=(), metadata=uuid_of("worker_job_id"))
    reason: tuple[str, ...] = field(default=(), metadata=text_of("why"))
    state: tuple[str, ...] = field(
        default=(), metadata=choice_by(shown.inquiry_states, shown.INQUIRY_STATES)
    )
    asked_at_gte: datetime | None = field(default=None, metadata=moment("asked_at__gte"))
    asked_at_lte: datetime | None = field(default=None, metadata=moment("asked_at__lte"))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter(ListFilter):
    """Which jobs (incarnations of processes)."""

    ORDERS: ClassVar[tuple[str, ...]] = ("started_at", "heartbeat_at", "progress_at", "id")
    ORDER_DEFAULT: ClassVar[str] = "-started_at"
    CURRENT: ClassVar[Q] = Q(ended_at__isnull=True, filter_code__isnull=True)

    id: tuple[UUID, ...] = field(default=(), metadata=uuid_of("id"))
    kind: tuple[str, ...] = field(
        default=(), metadata=choice_of("kind", tuple(kind.value for kind in states.JobKind))
    )
    state: tuple[str, ...] = field(
        default=(), metadata=choice_of("state", ("running", "ended", "dead"))
    )
    alive: tuple[str, ...] = field(default=(), metadata=choice_by(shown.jobs_alive, shown.YES_NO))
    hostname: tuple[str, ...] = field(default=(), metadata=text_of("hostname"))
    started_at_gte: datetime | None = field(default=None, metadata=moment("started_at__gte"))
    started_at_lte: datetime | None = field(default=None, metadata=moment("started_at__lte"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerFilter(ListFilter):
    """Which triggers."""

    ORDERS: ClassVar[tuple[str, ...]] = ("id", "created_at", "due_at", "timeout_at")

    flow_id: tuple[str, ...] = field(default=(), metadata=text_by(_runs_of_flows))
    run_id: tuple[str, ...] = field(default=(), metadata=text_by(_runs_by_key))
    run: tuple[int, ...] = field(default=(), metadata=number_of("run_id"))
    ti: tuple[int, ...] = field(default=(), metadata=number_of("ti_id"))
    state: tuple[str, ...] = field(
        default=(), metadata=choice_of("state", ("waiting", "fired", "timed_out", "cancelled"))
    )
    due_at_gte: datetime | None = field(default=None, metadata=moment("due_at__gte"))
    due_at_lte: datetime | None = field(default=None, metadata=moment("due_at__lte"))


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeFilter(ListFilter):
    """Which freezes."""

    ORDERS: ClassVar[tuple[str, ...]] = ("id", "created_at", "ended_at")
    ORDER_DEFAULT: ClassVar[str] = "id"

    state: tuple[str, ...] = field(
        default=(), metadata=choice_by(shown.freeze_states, shown.FREEZE_STATES)
    )
    scope_kind: tuple[str, ...] = field(
        default=(), metadata=choice_of("scope_kind", tuple(kind.value for kind in ScopeKind))
    )
    scope_id: tuple[str, ...] = field(default=(), metadata=text_of("scope_id"))
    mode: tuple[str, ...] = field(
        default=(), metadata=choice_of("mode", tuple(mode.value for mode in Mode))
    )
    actor: tuple[str, ...] = field(default=(), metadata=text_of("actor"))
    created_at_gte: datetime | None = field(default=None, metadata=moment("created_at__gte"))
    created_at_lte: datetime | None = field(default=None, metadata=moment("created_at__lte"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFilter(ListFilter):
    """Which pools."""

    ORDERS: ClassVar[tuple[str, ...]] = ("name", "slots")
    ORDER_DEFAULT: ClassVar[str] = "name"

    name: tuple[str, ...] = field(default=(), metadata=text_of("name"))


def _set_or_not(values: tuple[str, ...]) -> Q:
    return Q(is_set__in=[value == "yes" for value in values])


def _waits_or_not(values: tuple[str, ...]) -> Q:
    kept = Q()
    for value in values:
        kept |= Q(waiting__gt=0) if value == "yes" else Q(waiting=0)
    return kept


def _keys_with(texts: tuple[str, ...]) -> Q:
    kept = Q()
    for text in texts:
        kept |= Q(key__icontains=text)
    return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLimitFilter(ListFilter):
    """Which keys of limits."""

    ORDERS: ClassVar[tuple[str, ...]] = ("key", "slots", "held", "waiting")
    ORDER_DEFAULT: ClassVar[str] = "key"

    key: tuple[str, ...] = field(default=(), metadata=text_of("key"))
    q: tuple[str, ...] = field(default=(), metadata=text_by(_keys_with))
    is_set: tuple[str, ...] = field(default=(), metadata=choice_by(_set_or_not, shown.YES_NO))
    waits: tuple[str, ...] = field(default=(), metadata=choice_by(_waits_or_not, shown.YES_NO))


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFilter(ListFilter):
    """Which tokens of the API."""

    ORDERS: ClassVar[tuple[str, ...]] = ("id", "created_at", "expires_at")

    user: tuple[str, ...] = field(default=(), metadata=text_of("user__username"))


def _secret_or_not(values: tuple[str, ...]) -> Q:
    return Q(is_secret__in=[value == "yes" for value in values])


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableChangeFilter(ListFilter):
    """Which changes of variables."""

    ORDERS: ClassVar[tuple[str, ...]] = ("id", "at")

    key: tuple[str, ...] = field(default=(), metadata=text_of("key"))
    actor: tuple[str, ...] = field(default=(), metadata=text_of("actor"))
    action: tuple[str, ...] = field(
        default=(), metadata=choice_of("action", ("created", "changed", "deleted"))
    )
    flow_id: tuple[str, ...] = field(default=(), metadata=text_of("flow_id"))
    attempt_id: tuple[UUID, ...] = field(default=(), metadata=uuid_of("attempt_id"))
    at_gte: datetime | None = field(default=None, metadata=moment("at__gte"))
    at_lte: datetime | None = field(default=None, metadata=moment("at__lte"))


def _connections_with(texts: tuple[str, ...]) -> Q:
    kept = Q()
    for text in texts:
        kept |= Q(connection_id__icontains=text)
    return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFilter(ListFilter):
    """Which connections."""

    ORDERS: ClassVar[tuple[str, ...]] = ("connection_id", "conn_type", "host", "updated_at")
    ORDER_DEFAULT: ClassVar[str] = "connection_id"

    connection_id: tuple[str, ...] = field(default=(), metadata=text_of("connection_id"))
    q: tuple[str, ...] = field(default=(), metadata=text_by(_connections_with))  # part of the id
    conn_type: tuple[str, ...] = field(default=(), metadata=text_of("conn_type"))
    host: tuple[str, ...] = field(default=(), metadata=text_of("host"))
    updated_by: tuple[str, ...] = field(default=(), metadata=text_of("updated_by"))
    updated_at_gte: datetime | None = field(default=None, metadata=moment("updated_at__gte"))
    updated_at_lte: datetime | None = field(default=None, metadata=moment("updated_at__lte"))


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableFilter(ListFilter):
    """Which variables."""

    ORDERS: ClassVar[tuple[str, ...]] = ("key", "updated_at")
    ORDER_DEFAULT: ClassVar[str] = "key"

    key: tuple[str, ...] = field(default=(), metadata=text_of("key"))
    q: tuple[str, ...] = field(default=(), metadata=text_by(_keys_with))
    secret: tuple[str, ...] = field(default=(), metadata=choice_by(_secret_or_not, shown.YES_NO))
    updated_by: tuple[str, ...] = field(default=(), metadata=text_of("updated_by"))
    updated_at_gte: datetime | None = field(default=None, metadata=moment("updated_at__gte"))
    updated_at_lte: datetime | None = field(default=None, metadata=moment("updated_at__lte"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFilter(ListFilter):
    """Which cases."""

    ORDERS: ClassVar[tuple[str, ...]] = ("id", "opened_at", "closed_at")

    state: tuple[str, ...] = field(default=(), metadata=text_of("state"))
    opened_by: tuple[str, ...] = field(default=(), metadata=text_of("opened_by"))
    opened_at_gte: datetime | None = field(default=None, metadata=moment("opened_at__gte"))
    opened_at_lte: datetime | None = field(default=None, metadata=moment("opened_at__lte"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewFilter(ListFilter):
    """Which reviews."""

    ORDERS: ClassVar[tuple[str, ...]] = ("id", "created_at", "ended_at", "times")

    flow_id: tuple[str, ...] = field(default=(), metadata=text_of("flow_id"))
    run: tuple[int, ...] = field(default=(), metadata=number_by(_reviews_of_runs))
    guard: tuple[str, ...] = field(
        default=(), metadata=choice_of("guard", tuple(code.value for code in guards.GuardCode))
    )
    action: tuple[str, ...] = field(
        default=(), metadata=choice_of("action", tuple(kind.value for kind in guards.ActionKind))
    )
    asked_by: tuple[str, ...] = field(default=(), metadata=text_of("asked_by"))
    state: tuple[str, ...] = field(default=(), metadata=choice_of("state", shown.REVIEW_STATES))
    created_at_gte: datetime | None = field(default=None, metadata=moment("created_at__gte"))
    created_at_lte: datetime | None = field(default=None, metadata=moment("created_at__lte"))


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillFilter(ListFilter):
    """Which backfills."""

    ORDERS: ClassVar[tuple[str, ...]] = ("id", "created_at", "ended_at")

    flow_id: tuple[str, ...] = field(default=(), metadata=text_of("flow_id"))
    actor: tuple[str, ...] = field(default=(), metadata=text_of("actor"))
    state: tuple[str, ...] = field(
        default=(), metadata=choice_by(shown.backfill_states, shown.BACKFILL_STATES)
    )
    created_at_gte: datetime | None = field(default=None, metadata=moment("created_at__gte"))
    created_at_lte: datetime | None = field(default=None, metadata=moment("created_at__lte"))


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillDateFilter(ListFilter):
    """Which dates of backfills."""

    ORDERS: ClassVar[tuple[str, ...]] = ("id", "logical_date", "position")
    ORDER_DEFAULT: ClassVar[str] = "id"

    backfill: tuple[int, ...] = field(default=(), metadata=number_of("backfill_id"))
    flow_id: tuple[str, ...] = field(default=(), metadata=text_of("backfill__flow_id"))
    state: tuple[str, ...] = field(
        default=(), metadata=choice_of("state", tuple(state.value for state in DateState))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardFilter(ListFilter):
    """Which guards."""

    ORDERS: ClassVar[tuple[str, ...]] = ("id", "flow_id", "updated_at")
    ORDER_DEFAULT: ClassVar[str] = "flow_id"

    flow_id: tuple[str, ...] = field(default=(), metadata=text_of("flow_id"))
    kind: tuple[str, ...] = field(
        default=(), metadata=choice_of("kind", tuple(kind.value for kind in guards.ActionKind))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AutomaticActionFilter(ListFilter):
    """Which automatic actions."""

    ORDERS: ClassVar[tuple[str, ...]] = ("id", "at")

    flow_id: tuple[str, ...] = field(default=(), metadata=text_of("flow_id"))
    run: tuple[int, ...] = field(default=(), metadata=number_of("run_id"))
    kind: tuple[str, ...] = field(
        default=(), metadata=choice_of("kind", tuple(kind.value for kind in guards.ActionKind))
    )
    actor: tuple[str, ...] = field(default=(), metadata=text_of("actor"))
    at_gte: datetime | None = field(default=None, metadata=moment("at__gte"))
    at_lte: datetime | None = field(default=None, metadata=moment("at__lte"))


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter(ListFilter):
    """Which audit entries."""

    ORDERS: ClassVar[tuple[str, ...]] = ("id", "at")

    flow_id: tuple[str, ...] = field(default=(), metadata=text_of("flow_id"))
    actor: tuple[str, ...] = field(default=(), metadata=text_of("actor"))
    action: tuple[str, ...] = field(default=(), metadata=text_of("action"))
    object_kind: tuple[str, ...] = field(default=(), metadata=text_of("object_kind"))
    object_id: tuple[str, ...] = field(default=(), metadata=text_of("object_id"))
    at_gte: datetime | None = field(default=None, metadata=moment("at__gte"))
    at_lte: datetime | None = field(default=None, metadata=moment("at__lte"))


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentFilter(ListFilter):
    """Which incidents."""

    ORDERS: ClassVar[tuple[str, ...]] = ("id", "raised_at", "resolved_at", "count")

    kind: tuple[str, ...] = field(default=(), metadata=text_of("kind"))
    state: tuple[str, ...] = field(
        default=(), metadata=choice_by(shown.incident_states, shown.INCIDENT_STATES)
    )
    flow_id: tuple[str, ...] = field(default=(), metadata=text_of("flow_id"))
    run: tuple[int, ...] = field(default=(), metadata=number_of("run_id"))
    subject: tuple[str, ...] = field(default=(), metadata=text_of("subject"))
    raised_at_gte: datetime | None = field(default=None, metadata=moment("raised_at__gte"))
    raised_at_lte: datetime | None = field(default=None, metadata=moment("raised_at__lte"))


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertFilter(ListFilter):
    """Which alerts."""

    ORDERS: ClassVar[tuple[str, ...]] = ("id", "created_at", "ended_at")

    incident: tuple[int, ...] = field(default=(), metadata=number_of("incident_id"))
    kind: tuple[str, ...] = field(default=(), metadata=text_of("incident__kind"))
    flow_id: tuple[str, ...] = field(default=(), metadata=text_of("incident__flow_id"))
    about: tuple[str, ...] = field(
        default=(), metadata=choice_of("about", tuple(each.value for each in incidents.About))
    )
    state: tuple[str, ...] = field(
        default=(), metadata=choice_of("state", tuple(each.value for each in incidents.AlertState))
    )
    created_at_gte: datetime | None = field(default=None, metadata=moment("created_at__gte"))
    created_at_lte: datetime | None = field(default=None, metadata=moment("created_at__lte"))


@dataclass(frozen=True, slots=True, kw_only=True)
class GhostFilter(ListFilter):
    """Which ghosts and suspects."""

    ORDERS: ClassVar[tuple[str, ...]] = ("id", "first_seen_at", "last_seen_at", "ended_at")
    CURRENT: ClassVar[Q] = Q(ended_at__isnull=True)

    kind: tuple[str, ...] = field(default=(), metadata=choice_of("kind", tuple(ghosts.KINDS)))
    state: tuple[str, ...] = field(
        default=(), metadata=choice_by(shown.ghost_states, shown.GHOST_STATES)
    )
    flow_id: tuple[str, ...] = field(default=(), metadata=text_by(_runs_of_flows))
    run_id: tuple[str, ...] = field(default=(), metadata=text_by(_runs_by_key))
    run: tuple[int, ...] = field(default=(), metadata=number_of("run_id"))
    ti: tuple[int, ...] = field(default=(), metadata=number_of("ti_id"))
    task_id: tuple[str, ...] = field(default=(), metadata=text_of("task_id"))
    attempt_id: tuple[UUID, ...] = field(default=(), metadata=uuid_of("attempt_id"))
    hostname: tuple[str, ...] = field(default=(), metadata=text_of("hostname"))
    worker_job_id: tuple[UUID, ...] = field(default=(), metadata=uuid_of("worker_job_id"))
    shard: tuple[int, ...] = field(default=(), metadata=number_of("shard"))
    reviewed: tuple[str, ...] = field(
        default=(),
        metadata=choice_by(
            lambda states: reviewed_marks.keep(reviewed_marks.OF_GHOST, states),
            reviewed_marks.STATES,
        ),
    )
    shard_known: tuple[str, ...] = field(
        default=(), metadata=choice_by(shown.shard_known, shown.YES_NO)
    )
    first_seen_at_gte: datetime | None = field(default=None, metadata=moment("first_seen_at__gte"))
    first_seen_at_lte: datetime | None = field(default=None, metadata=moment("first_seen_at__lte"))
    last_seen_at_gte: datetime | None = field(default=None, metadata=moment("last_seen_at__gte"))
    last_seen_at_lte: datetime | None = field(default=None, metadata=moment("last_seen_at__lte"))


@dataclass(frozen=True, slots=True, kw_only=True)
class GhostAuditFilter(ListFilter):
    """Which hours of three-way audits."""

    ORDERS: ClassVar[tuple[str, ...]] = ("id", "last_at")
    ORDER_DEFAULT: ClassVar[str] = "-last_at"

    holder: tuple[UUID, ...] = field(default=(), metadata=uuid_of("holder"))
    last_at_gte: datetime | None = field(default=None, metadata=moment("last_at__gte"))
    last_at_lte: datetime | None = field(default=None, metadata=moment("last_at__lte"))


NOUNS_WITH_STANDING = (
    visibility.RUN,
    visibility.RUN_ATTEMPT,
    visibility.TASK_INSTANCE,
    visibility.ATTEMPT,
    visibility.EXECUTOR_EVENT,
    visibility.FLOW,
    visibility.JOB,
)


# Records that belong to a run.
_OF_RUNS = (
    visibility.RUN,
    visibility.RUN_ATTEMPT,
    visibility.TASK_INSTANCE,
    visibility.ATTEMPT,
    visibility.EXECUTOR_EVENT,
)


_MOST_FIRST = (
    *(visibility.TASK_INSTANCE, visibility.ATTEMPT, visibility.EXECUTOR_EVENT),
    *(visibility.RUN_ATTEMPT, visibility.RUN),
)


def _records_of_flows(flow_ids: tuple[str, ...]) -> Q:
    return _records_in_runs_of(flow_ids) | _records_beside_runs_of(flow_ids)


def _records_in_runs_of(flow_ids: tuple[str, ...]) -> Q:
    # The nouns are named, so that the tables of the others are not read at all.
    return Q(noun__in=_OF_RUNS) & _runs_of_flows(flow_ids)


def _records_beside_runs_of(flow_ids: tuple[str, ...]) -> Q:
    return Q(noun=visibility.FLOW, flow_id__in=flow_ids)


def _records_of_attempts(attempt_ids: tuple[UUID, ...]) -> Q:
    return _records_about(attempt_ids) | _current_at(attempt_ids)


def _records_about(attempt_ids: tuple[UUID, ...]) -> Q:
    nouns = (visibility.ATTEMPT, visibility.EXECUTOR_EVENT)
    return Q(noun__in=nouns, attempt_id__in=attempt_ids)


def _current_at(attempt_ids: tuple[UUID, ...]) -> Q:
    # By the attempt's own word: no index knows which attempt a task instance is at.
    owners = Attempt.objects.filter(id__in=attempt_ids).values("ti_id")
    return Q(noun=visibility.TASK_INSTANCE, attempt_id__in=attempt_ids, ti_id__in=owners)


def _records_of_kinds(kinds: tuple[str, ...]) -> Q:
    kept = Q(kind__in=kinds)
    if {*kinds} & {kind.value for kind in states.AttemptKind}:
        return kept
    return kept & ~Q(noun=visibility.ATTEMPT)  # nobody then looks for one among all of them


def _possibly_doubled(values: tuple[str, ...]) -> Q:
    """User code ran although its result does not count: what it wrote may be there twice.

    One record for each execution: its attempt, or its refused report where the attempt is current.
    """
    if "double_write" not in values:
        return Q()
    attempt = Q(
        noun=visibility.ATTEMPT, filter_code__in=visibility.POSSIBLE_DOUBLE_WRITES, ran=True
    )
    report = Q(
        noun=visibility.EXECUTOR_EVENT, filter_code="late_after_terminal", kind="late_report"
    )
    return attempt | report


def _reviewed_records(states: tuple[str, ...]) -> Q:
    if states != ("yes",):
        return reviewed_marks.keep(reviewed_marks.OF_RECORD, states)
    # What is current is marked by nobody, and of the others few are: the marks tell which.
    marked = record_ids.told_by(record_ids.REVIEWED, with_jobs=True)
    return marked & Q(filter_code__isnull=False)


_OF_ASIDE = {"at": "filtered_at", "-at": "-filtered_at"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFilter(ListFilter):
    """Which records of any noun."""

    ORDERS: ClassVar[tuple[str, ...]] = ("filtered_at", "at", "key")
    ORDER_DEFAULT: ClassVar[str] = "-filtered_at"
    ORDER_BESIDE_CURRENT: ClassVar[str] = "-at"  # which have no other time
    # Parameters whose columns the indexes over the times of what was set aside have, and what belongs to runs.
    IN_INDEX: ClassVar[frozenset[str]] = frozenset(
        {"noun", "flow_id", "run_id", "run", "ti", "task_id", "shard", "at_gte", "at_lte"}
    )
    OF_RUNS: ClassVar[frozenset[str]] = frozenset({"flow_id", "run_id", "run", "ti", "task_id"})

    noun: tuple[str, ...] = field(default=(), metadata=choice_of("noun", NOUNS_WITH_STANDING))
    flow_id: tuple[str, ...] = field(default=(), metadata=text_by(_records_of_flows))
    run_id: tuple[str, ...] = field(default=(), metadata=text_by(_runs_by_key))
    run: tuple[int, ...] = field(default=(), metadata=number_of("run_id"))
    ti: tuple[int, ...] = field(default=(), metadata=number_of("ti_id"))
    task_id: tuple[str, ...] = field(default=(), metadata=text_of("task_id"))
    attempt_id: tuple[UUID, ...] = field(default=(), metadata=uuid_by(_records_of_attempts))
    hostname: tuple[str, ...] = field(default=(), metadata=text_of("hostname"))
    shard: tuple[int, ...] = field(default=(), metadata=number_of("shard"))
    kind: tuple[str, ...] = field(default=(), metadata=text_by(_records_of_kinds))
    reviewed: tuple[str, ...] = field(
        default=(),
        metadata=choice_by(_reviewed_records, reviewed_marks.STATES),
    )
    possible: tuple[str, ...] = field(
        default=(), metadata=choice_by(_possibly_doubled, ("double_write",))
    )
    at_gte: datetime | None = field(default=None, metadata=moment("at__gte"))
    at_lte: datetime | None = field(default=None, metadata=moment("at__lte"))

    def parts(self) -> tuple[ListFilter, ...]:
        """Of a flow: what belongs to its runs, and the flow itself. Of an attempt: it, and who is at it."""
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        if self.attempt_id:
            return _RecordsAboutAttempts(**given), _RecordsAtAttempts(**given)
        if self.flow_id:
            return _RecordsInRuns(**given), _RecordsBesideRuns(**given)
        return (self,)

    @property
    def is_told_by_index(self) -> bool:
        """As of every list: of runs, flows and tasks, unless it asks for more."""
        asked = self.narrowing()
        return bool(asked & self.OF_RUNS) and asked <= self.IN_INDEX

    def counted_parts(self) -> tuple[ListFilter, ...]:
        """Of a flow: noun by noun, first those of which there are most.

        A half is counted no further than counts go: of a flow with many runs, in one table then, and not in
        every table for each run.
        """
        if self.attempt_id or not self.flow_id:
            return self.parts()
        *_, beside = self.parts()
        wanted = [noun for noun in _MOST_FIRST if not self.noun or noun in self.noun]
        each: list[ListFilter] = [
            replace(part, noun=(noun,))
            for noun in wanted
            for part in self.parts()
            if isinstance(part, _RecordsInRuns)
        ]
        return (*each, beside)

    def shown_parts(self) -> tuple[ListFilter, ...]:
        """Both halves apart: current records have their time from one index, others from another."""
        if not self.flow_id and not self.attempt_id:
            return self.parts()
        return tuple(half for part in self.parts() for half in part.apart())

    def halves(self) -> tuple[Q, Q]:
        """As of every list; each with its times in the words of the indexes over them."""
        current, aside = ListFilter.halves(self)  # super() knows another class than slots make
        return current & self._within("came_at"), aside & self._within("filtered_at")

    def matching(self, rows: QuerySet[ModelT]) -> QuerySet[ModelT]:
        """As of every list, but for the time, which the halves say: no index knows what both have in common."""
        return ListFilter.matching(replace(self, at_gte=None, at_lte=None), rows)

    def apply(self, rows: QuerySet[ModelT]) -> QuerySet[ModelT]:
        """As of every list."""
        found = ListFilter.apply(self, rows)
        is_of_both = self.filtered is Lens.ALL and not self.why
        return found.filter(self._within("at")) if is_of_both else found

    def _within(self, column: str) -> Q:
        bounds = (("gte", self.at_gte), ("lte", self.at_lte))
        return Q(**{f"{column}__{one}": value for one, value in bounds if value is not None})

    @property
    def ordered_by(self) -> str:
        """As of every list; beside current records, by when each came."""
        alone = self.filtered is Lens.ONLY
        asked = self.order or (self.ORDER_DEFAULT if alone else self.ORDER_BESIDE_CURRENT)
        # Of what was set aside both are the same time, and its tables have it in this word.
        return _OF_ASIDE.get(asked, asked) if alone else asked


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordsInRuns(RecordFilter):
    """Of the records that are asked for, those of the flows' runs."""

    flow_id: tuple[str, ...] = field(default=(), metadata=text_by(_records_in_runs_of))


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordsBesideRuns(RecordFilter):
    """Of the records that are asked for, the flows themselves."""

    flow_id: tuple[str, ...] = field(default=(), metadata=text_by(_records_beside_runs_of))


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordsAboutAttempts(RecordFilter):
    """Of the records that are asked for, the attempts and what was heard of them."""

    attempt_id: tuple[UUID, ...] = field(default=(), metadata=uuid_by(_records_about))


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordsAtAttempts(RecordFilter):
    """Of the records that are asked for, the task instances that are at the attempts."""

    attempt_id: tuple[UUID, ...] = field(default=(), metadata=uuid_by(_current_at))
