"""Move the next try of a task that waits for one, or begin it now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.hints.notices import Notices
from scheduler_app.models import TaskInstance
from scheduler_app.operations.reasons import check_reason
from scheduler_app.rules.errors import Conflict, InvalidInput, NotAllowed, NotFound
from scheduler_app.rules.states import TaskState
from scheduler_app.transitions import task_instance as moves
from scheduler_app.transitions.audit import record_audit
from scheduler_app.transitions.run import lock_run

if TYPE_CHECKING:
    from scheduler_app.transitions.task_instance import OpenInstance

AWAY_MAX: Final = timedelta(days=3660)  # as the longest delay that a definition may have

_notices = Notices(settings.CACHE_URL)
_WAITING: Final = (TaskState.UP_FOR_RETRY, TaskState.UP_FOR_RESCHEDULE)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRetry:
    """When the task begins again, and when it would have. Times aware UTC."""

    id: int
    task_id: str
    map_index: int
    state: str
    was: datetime | None
    next_retry_at: datetime | None  # of a dry run: as asked; None: now
    effect: str  # a sentence
    dry_run: bool


def set_next_retry(
    *,
    ti_id: int,
    actor: str,
    at: datetime | None = None,
    after: timedelta | None = None,
    reason: str = "",
    dry_run: bool = False,
) -> NextRetry:
    """The next try of the waiting task begins then, or so long from now; without either, now.

    Its count of tries is as it was. A person may choose any time: max_retry_delay binds the delays
    that nobody chose. A dry run changes nothing, needs no reason and is not audited. Raises
    ``NotFound``, ``InvalidInput``, ``Conflict`` for a task that does not wait for a time, ``NotAllowed``
    for a frozen one.
    """
    why = "" if dry_run else check_reason(reason)
    after_s = _checked(at, after)
    ti = TaskInstance.objects.filter(pk=ti_id).first()
    if ti is None:
        message = f"there is no task instance {ti_id}"
        raise NotFound(message, field="ti")
    with transaction.atomic():
        seen = _locked(ti)
        ti.refresh_from_db()
        when, effect = at, _effect(seen, at, after_s)
        if not dry_run:
            when = moves.set_next_retry(
                connection.connection,
                ti=seen,
                at=at,
                after_s=after_s,
                edited={"actor": actor, "reason": why},
            )
            assert when is not None, "its row is locked"
            _audit(ti, when, actor=actor, reason=why)
            topics = ["runs", f"run:{ti.run_id}", f"ti:{ti_id}"]
            transaction.on_commit(lambda: _notices.both(runs=[ti.run_id], topics=topics))
    return NextRetry(
        id=ti.pk,
        task_id=ti.task_id,
        map_index=ti.map_index,
        state=ti.state,
        was=ti.next_retry_at,
        next_retry_at=when,
        effect=effect,
        dry_run=dry_run,
    )


def _checked(at: datetime | None, after: timedelta | None) -> float:
    """Seconds from now; 0 where a time is given. Raises ``InvalidInput``."""
    if at is not None and after is not None:
        raise InvalidInput("Give at or after, not both.", field="at")
    if at is not None and at.utcoffset() is None:
        raise InvalidInput(
            "at: give the time with its offset, as 2026-01-31T06:00:00Z.", field="at"
        )
    if after is not None and not timedelta() <= after <= AWAY_MAX:
        raise InvalidInput("after: give a duration from 0 s to ten years.", field="after")
    if at is not None and at > datetime.now(UTC) + AWAY_MAX:
        raise InvalidInput("at: give a time within ten years.", field="at")
    return 0.0 if after is None else after.total_seconds()


def _locked(ti: TaskInstance) -> OpenInstance:
    """The task instance as it is now, with its run and itself locked."""
    run = lock_run(connection.connection, run_id=ti.run_id)
    found = moves.lock_open(connection.connection, run_id=ti.run_id, ti_ids=[ti.pk])
    if run is None or not found:
        ti.refresh_from_db()
        message = f"Task {ti.task_id} has ended as {ti.state}; to run it again, clear it."
        raise Conflict(message)
    (seen,) = found
    if run["is_frozen"] or seen.held_by is not None:
        raise NotAllowed(f"Task {ti.task_id} is frozen: thaw it before you move its next try.")
    if seen.state not in _WAITING:
        raise Conflict(f"Task {ti.task_id} is {seen.state}; it does not wait for a next try.")
    if seen.is_asked_to_stop:
        raise Conflict(f"Task {ti.task_id} was asked to end; no other try follows.")
    return seen


def _effect(seen: OpenInstance, at: datetime | None, after_s: float) -> str:
    what = "The next try begins" if seen.state == TaskState.UP_FOR_RETRY else "It looks again"
    if at is not None:
        return f"{what} at {at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC, or now if that has passed."
    return f"{what} {f'{after_s:g} s from now' if after_s else 'now'}."


def _audit(ti: TaskInstance, when: datetime, *, actor: str, reason: str) -> None:
    was = None if ti.next_retry_at is None else ti.next_retry_at.isoformat()
    record_audit(
        connection.connection,
        actor=actor,
        action="set_next_retry",
        object_kind="task_instance",
        object_id=str(ti.pk),
        flow_id=ti.run.flow_id,
        reason=reason,
        before={"next_retry_at": was, "state": ti.state},
        after={"next_retry_at": when.isoformat(), "state": ti.state},
    )
