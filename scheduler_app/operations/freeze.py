"""Freeze a task instance, a run, a flow, a shard or everything: nothing in it starts until the thaw."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q

from scheduler_app.hints.notices import Notices
from scheduler_app.models import Attempt, Flow, Lease, Run, TaskInstance
from scheduler_app.operations.reasons import check_reason
from scheduler_app.rules.errors import Conflict, InvalidInput, NotFound
from scheduler_app.rules.freezing import Mode, Scope, ScopeKind, mode_of, scope_of
from scheduler_app.rules.states import TaskState
from scheduler_app.transitions import freeze as marks
from scheduler_app.transitions.audit import record_audit

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime
    from uuid import UUID

    from django.db.models import QuerySet

NAMED_MAX: Final = 200  # task instances named one by one; of more only the number is told

_notices = Notices(settings.CACHE_URL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One task instance and what becomes of it, or why it is left alone."""

    id: int
    run_id: int
    task_id: str
    map_index: int
    state: str  # beneath the mark
    effect: str  # a sentence

    @property
    def name(self) -> str:
        """The task, with its map index where it has one."""
        return self.task_id if self.map_index < 0 else f"{self.task_id} [{self.map_index}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezePlan:
    """What freezing does, or would do."""

    freeze_id: int | None  # null: a dry run
    scope: Scope
    mode: str
    until_at: datetime | None
    flow_count: int
    run_count: int
    held_count: int  # task instances
    stopped_count: int  # executions that are asked to stop
    by_state: Mapping[str, int]
    included: tuple[Subject, ...]  # at most ``NAMED_MAX``
    excluded: tuple[Subject, ...]
    dry_run: bool


def freeze(
    *,
    scope_kind: str,
    scope_id: str | int = "",
    actor: str,
    reason: str = "",
    mode: str = Mode.DRAIN.value,
    until: datetime | None = None,
    dry_run: bool = False,
) -> FreezePlan:
    """Nothing of the scope starts, retries or times out before the thaw; what comes in is kept.

    ``drain`` lets running executions end, ``hard`` stops them: they begin again after the thaw, in
    the same try. With ``until`` (aware, in the future) it thaws by itself. A dry run changes
    nothing, needs no reason and is not audited. Raises ``NotFound``, ``InvalidInput``, ``Conflict``
    for what has ended or has such a freeze already.
    """
    scope, how = scope_of(scope_kind, scope_id), mode_of(mode)
    why = "" if dry_run else check_reason(reason)
    with transaction.atomic():
        _check_until(until)
        marks.take_turn(connection.connection)
        flow_id = check_exists(scope)
        before = marks.live_freezes(connection.connection, scope=scope)
        for row in before:
            if row["mode"] == how.value or how is Mode.DRAIN:
                raise Conflict(
                    f"{scope.name[0].upper()}{scope.name[1:]} is frozen already: freeze {row['id']}"
                    f" by {row['actor']} ({row['reason']})."
                )
        done = marks.freeze(
            connection.connection, scope=scope, mode=how, actor=actor, reason=why, until_at=until
        )
        plan = _plan(scope, how, done, until=until, dry_run=dry_run)
        if dry_run:
            transaction.set_rollback(True)
            return plan
        record_audit(
            connection.connection,
            actor=actor,
            action="freeze",
            object_kind=scope.kind.value,
            object_id=scope.id,
            flow_id=flow_id,
            reason=why,
            before={"freezes": [row["id"] for row in before], "by_state": dict(plan.by_state)},
            after={
                "freeze": done.freeze_id,
                "mode": how.value,
                "until": None if until is None else until.isoformat(),
                "flows": plan.flow_count,
                "runs": plan.run_count,
                "held": plan.held_count,
                "stopped": plan.stopped_count,
            },
        )
        tell(done.run_ids)
    return plan


def check_exists(scope: Scope) -> str | None:
    """The flow that the scope lies in, if in one. Raises ``NotFound``, or ``Conflict`` if it is over."""
    match scope.kind:
        case ScopeKind.FLOW:
            if not Flow.objects.filter(pk=scope.id).exists():
                raise NotFound(f"no flow is called {scope.id!r}", field="flow_id")
            return scope.id
        case ScopeKind.SHARD:
            if not Lease.objects.filter(pk=scope.id).exists():
                raise NotFound(f"there is no shard {scope.id}", field="shard")
        case ScopeKind.RUN:
            run = Run.objects.filter(pk=scope.id).first()
            if run is None:
                raise NotFound(f"there is no run {scope.id}", field="run")
            if not run.is_active and run.retry_at is None:
                raise Conflict(
                    f"Run {run.run_key} has ended as {run.state}; nothing is left to hold."
                )
            return str(run.flow_id)
        case ScopeKind.TASK:
            return _check_task(scope)
        case ScopeKind.TASK_INSTANCE:
            return _check_instance(scope)
    return None


def _check_task(scope: Scope) -> str:
    of_task = TaskInstance.objects.filter(run_id=scope.number or 0, task_id=scope.task_id)
    one = of_task.select_related("run").first()
    if one is None:
        raise NotFound(f"there is no {scope.name}", field="task_id")
    if not of_task.filter(Q(is_open=True) | Q(held_by__isnull=False)).exists():
        raise Conflict(f"Every instance of {scope.name} has ended; nothing is left to hold.")
    return str(one.run.flow_id)


def _check_instance(scope: Scope) -> str:
    ti = TaskInstance.objects.select_related("run").filter(pk=scope.id).first()
    if ti is None:
        raise NotFound(f"there is no task instance {scope.id}", field="ti")
    if not ti.is_open and ti.held_by is None:
        raise Conflict(f"Task {ti.task_id} has ended as {ti.state}; nothing is left to hold.")
    return str(ti.run.flow_id)


def tell(run_ids: Collection[int]) -> None:
    """After the commit, schedulers, triggerers and pages look at these runs."""
    topics = ["runs", "home", "flows", *(f"run:{run_id}" for run_id in run_ids)]
    transaction.on_commit(lambda: _notices.deferred(runs=list(run_ids), topics=topics))


def _check_until(until: datetime | None) -> None:
    if until is None:
        return
    if until.tzinfo is None:
        message = "until needs an offset, such as 2026-01-31T02:00:00Z"
        raise InvalidInput(message, field="until")
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchone()
    if until <= now:
        raise InvalidInput(f"until ({until.isoformat()}) is over already", field="until")


def _plan(
    scope: Scope, mode: Mode, done: marks.Frozen, *, until: datetime | None, dry_run: bool
) -> FreezePlan:
    held = _held(scope, done.run_ids)
    stopping = set(
        Attempt.objects.filter(pk__in=held.values("frozen_attempt_id"), is_live=True).values_list(
            "id", flat=True
        )
        if mode is Mode.HARD
        else ()
    )
    named = held.order_by("id")[:NAMED_MAX]
    return FreezePlan(
        freeze_id=None if dry_run else done.freeze_id,
        scope=scope,
        mode=mode.value,
        until_at=until,
        flow_count=len(done.flow_ids),
        run_count=len(done.run_ids),
        held_count=done.held,
        stopped_count=done.stopped,
        by_state=dict(Counter(held.values_list("state", flat=True))),
        included=tuple(
            _subject(ti, _effect(ti, freeze_id=done.freeze_id, stopping=stopping)) for ti in named
        ),
        excluded=(),
        dry_run=dry_run,
    )


def _held(scope: Scope, run_ids: Collection[int]) -> QuerySet[TaskInstance]:
    held = TaskInstance.objects.filter(held_by__isnull=False, is_open=True)
    if scope.kind is ScopeKind.TASK_INSTANCE:
        return held.filter(pk=scope.id)
    if scope.kind is ScopeKind.TASK:
        return held.filter(run_id=scope.number or 0, task_id=scope.task_id)
    return held.filter(run_id__in=list(run_ids))


def _subject(ti: TaskInstance, effect: str) -> Subject:
    return Subject(
        id=ti.pk,
        run_id=ti.run_id,
        task_id=ti.task_id,
        map_index=ti.map_index,
        state=ti.state,
        effect=effect,
    )


def _effect(ti: TaskInstance, *, freeze_id: int, stopping: Collection[UUID]) -> str:
    also = "" if ti.held_by == freeze_id else f" Freeze {ti.held_by} holds it as well."
    return f"{_of_state(ti, stopping)}{also}"


def _of_state(ti: TaskInstance, stopping: Collection[UUID]) -> str:
    match TaskState(ti.state):
        case TaskState.RUNNING if ti.attempt_id in stopping:
            return "It is stopped, and begins again after the thaw, in the same try."
        case TaskState.RUNNING | TaskState.RESTARTING:
            return "It runs on to its end, which is stored; what would follow waits for the thaw."
        case TaskState.QUEUED:
            return "Its delivery is refused, uses no retry, and comes again after the thaw."
        case TaskState.DEFERRED:
            return "Its trigger's clock stands still; what fires is kept until the thaw."
        case TaskState.UP_FOR_RETRY | TaskState.UP_FOR_RESCHEDULE:
            return "What is left of its delay is waited for after the thaw."
    return "It does not start before the thaw."
