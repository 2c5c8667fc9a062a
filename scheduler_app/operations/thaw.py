"""Thaw what was frozen: it goes on where it stood, as far as no other freeze holds it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db import connection, transaction

from scheduler_app.models import Freeze, TaskInstance
from scheduler_app.operations.freeze import NAMED_MAX, Subject, check_exists, tell
from scheduler_app.operations.reasons import check_reason
from scheduler_app.rules.errors import Conflict
from scheduler_app.rules.freezing import Scope, ScopeKind, scope_of
from scheduler_app.rules.states import TaskState
from scheduler_app.transitions import freeze as marks
from scheduler_app.transitions.audit import record_audit

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class ThawPlan:
    """What thawing does, or would do."""

    freeze_ids: tuple[int, ...]  # that end
    scope: Scope
    run_count: int
    released_count: int  # task instances that go on
    kept_count: int  # that another freeze holds
    waiting_count: int  # queued ones that go on as soon as there is room
    by_state: Mapping[str, int]
    included: tuple[Subject, ...]  # at most ``NAMED_MAX``
    excluded: tuple[Subject, ...]  # likewise
    dry_run: bool


def thaw(
    *,
    scope_kind: str,
    scope_id: str | int = "",
    actor: str,
    reason: str = "",
    dry_run: bool = False,
) -> ThawPlan:
    """The freezes of just this scope have ended; what they held goes on in the state it had.

    No time has passed for it: retry delays, triggers and time limits have what they had left. What
    a wider or narrower freeze holds stays held. A dry run changes nothing, needs no reason and is
    not audited. Raises ``NotFound``, ``InvalidInput``, ``Conflict`` for what has no such freeze.
    """
    scope = scope_of(scope_kind, scope_id)
    why = "" if dry_run else check_reason(reason)
    with transaction.atomic():
        marks.take_turn(connection.connection)
        rows = marks.live_freezes(connection.connection, scope=scope)
        if not rows:
            raise Conflict(_not_frozen(scope))
        flow_id = _flow_of(scope)
        freeze_ids = tuple(row["id"] for row in rows)
        held = TaskInstance.objects.filter(held_by__in=freeze_ids)
        by_state = dict(Counter(held.values_list("state", flat=True)))
        named = list(held.order_by("id")[:NAMED_MAX])
        done = marks.thaw(connection.connection, freeze_ids=freeze_ids)
        plan = _plan(scope, freeze_ids, named, by_state, done, dry_run=dry_run)
        if dry_run:
            transaction.set_rollback(True)
            return plan
        record_audit(
            connection.connection,
            actor=actor,
            action="thaw",
            object_kind=scope.kind.value,
            object_id=scope.id,
            flow_id=flow_id,
            reason=why,
            before={
                "freezes": list(freeze_ids),
                "mode": [row["mode"] for row in rows],
                "by_state": by_state,
            },
            after={
                "released": done.released,
                "held_by_others": done.kept,
                "waiting_for_room": done.waiting,
            },
        )
        tell(done.run_ids)
    return plan


def _flow_of(scope: Scope) -> str | None:
    try:
        return check_exists(scope)
    except Conflict:
        return None  # it has ended while it was frozen


def _not_frozen(scope: Scope) -> str:
    check_exists(scope)
    name = f"{scope.name[0].upper()}{scope.name[1:]}"
    if scope.kind is ScopeKind.TASK_INSTANCE:
        holder = TaskInstance.objects.values_list("held_by", flat=True).get(pk=scope.id)
        freeze = Freeze.objects.filter(pk=holder).first() if holder is not None else None
        if freeze is not None:
            other = scope_of(freeze.scope_kind, freeze.scope_id)
            over = ", which is over: there is no room for it yet" if freeze.ended_at else ""
            return f"{name} is held by freeze {freeze.pk} of {other.name}{over}: thaw that."
    return f"{name} has no freeze of its own; there is nothing to thaw."


def _plan(
    scope: Scope,
    freeze_ids: tuple[int, ...],
    named: list[TaskInstance],
    by_state: Mapping[str, int],
    done: marks.Thawed,
    *,
    dry_run: bool,
) -> ThawPlan:
    now = dict(
        TaskInstance.objects.filter(pk__in=[ti.pk for ti in named]).values_list("id", "held_by")
    )
    included, excluded = [], []
    for ti in named:
        holder = now[ti.pk]
        if holder is None:
            included.append(_subject(ti, _effect(ti)))
        elif holder in freeze_ids:
            waits = (
                f"It goes on as soon as pool {ti.pool} and the limits of its flow have room for it."
            )
            included.append(_subject(ti, waits))
        else:
            excluded.append(_subject(ti, f"Freeze {holder} holds it still."))
    return ThawPlan(
        freeze_ids=freeze_ids,
        scope=scope,
        run_count=len(done.run_ids),
        released_count=done.released,
        kept_count=done.kept,
        waiting_count=done.waiting,
        by_state=by_state,
        included=tuple(included),
        excluded=tuple(excluded),
        dry_run=dry_run,
    )


def _subject(ti: TaskInstance, effect: str) -> Subject:
    return Subject(
        id=ti.pk,
        run_id=ti.run_id,
        task_id=ti.task_id,
        map_index=ti.map_index,
        state=ti.state,
        effect=effect,
    )


def _effect(ti: TaskInstance) -> str:
    match TaskState(ti.state):
        case TaskState.RUNNING | TaskState.RESTARTING:
            return "It runs; what follows from its end follows again."
        case TaskState.QUEUED:
            return "Its delivery is let in again, and comes once more if it was refused."
        case TaskState.DEFERRED:
            return "Its trigger goes on, and what fired is let through."
        case TaskState.UP_FOR_RETRY | TaskState.UP_FOR_RESCHEDULE:
            return "What is left of its delay goes on."
        case TaskState.NONE | TaskState.SCHEDULED:
            return "It may start again."
    return "It has ended; what follows from that follows now."
