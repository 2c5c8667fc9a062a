"""From ready task instances to issued attempts: room is counted, the rules choose, rows are written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import tuple_row

from scheduler_app.rules import capacity
from scheduler_app.rules.callbacks import CallbackOn
from scheduler_app.rules.states import AttemptOutcome, TaskState
from scheduler_app.transitions.attempt import Dispatch, Message, dispatch
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.task_instance import WaitNote

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    import psycopg

    from scheduler_app.scheduler.run_views import Instance, RunView

DISPATCHES_MAX: Final = 200  # a tick; keeps its transaction short
QUEUE_PLACES_MIN: Final = 16  # deliveries that may wait in one queue, however few workers there are
WAIT_NOTED_AFTER_S: Final = 1.0  # shorter waits are not worth a row version


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """One task instance that may start as far as its own run is concerned."""

    view: RunView
    instance: Instance


@dataclass(slots=True, kw_only=True)
class Usage:
    """What live attempts hold now."""

    pool_slots: dict[str, int] = field(default_factory=dict)
    queue_issued: dict[str, int] = field(default_factory=dict)


def lock_pools(connection: psycopg.Connection[Any], *, names: Iterable[str]) -> dict[str, int]:
    """Slots of the pools, locked by name, so that no other dispatcher counts at the same time."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT name, slots FROM pool WHERE name = ANY(%s) ORDER BY name FOR NO KEY UPDATE",
            [sorted(names)],
        )
        return dict(cursor.fetchall())


def count_usage(connection: psycopg.Connection[Any]) -> Usage:
    """Use of pools and queues, counted from live attempts; call it with the pools locked.

    Issued attempts whose task instance is held count for nothing: they will be refused.
    Walks ``attempt_live``.
    """
    usage = Usage()
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT a.pool, a.queue, a.state, sum(a.pool_slots)::int, count(*)::int FROM attempt a"
            " JOIN task_instance i ON i.id = a.ti_id"
            " WHERE a.is_live AND a.kind = 'task' AND a.filter_code IS NULL"
            " AND NOT (a.state = 'issued' AND i.held_by IS NOT NULL) GROUP BY 1, 2, 3"
        )
        for pool, queue, state, slots, number in cursor.fetchall():
            usage.pool_slots[pool] = usage.pool_slots.get(pool, 0) + slots
            if state == "issued":
                usage.queue_issued[queue] = usage.queue_issued.get(queue, 0) + number
    return usage


def room_for(
    ready: Sequence[Ready], *, pools: dict[str, int], usage: Usage, queue_slots: dict[str, int]
) -> capacity.Room:
    """The room that is left in the pools, runs and queues that ``ready`` needs."""
    queues = {r.instance.queue for r in ready}
    views = {r.view.run_id: r.view for r in ready}
    return capacity.Room(
        pools={name: slots - usage.pool_slots.get(name, 0) for name, slots in pools.items()},
        pool_sizes=pools,
        runs={
            run_id: view.version.definition.max_active_tasks - view.active_count()
            for run_id, view in views.items()
        },
        queues={
            queue: max(QUEUE_PLACES_MIN, 2 * queue_slots.get(queue, 0))
            - usage.queue_issued.get(queue, 0)
            for queue in queues
        },
    )


def choose(ready: Sequence[Ready], *, room: capacity.Room, now: datetime) -> capacity.Choice:
    """Which of the ready task instances start now, and what the others wait for."""
    candidates = []
    for r in ready:
        if r.instance.ready_since is None:
            r.instance.ready_since = now
        candidates.append(
            capacity.Candidate(
                ti_id=r.instance.ti_id,
                run_id=r.view.run_id,
                flow_id=r.view.flow_id,
                pool=r.instance.pool,
                slots=r.instance.slots,
                priority=r.instance.priority,
                queue=r.instance.queue,
                ready_since=r.instance.ready_since,
            )
        )
    return capacity.choose(candidates, room, DISPATCHES_MAX)


def issue(connection: psycopg.Connection[Any], *, chosen: Sequence[Ready]) -> list[Message]:
    """Issued attempts for the chosen task instances; publish them after the commit."""
    outcomes = _outcomes(
        connection, [r.instance.attempt_id for r in chosen if r.instance.attempt_id is not None]
    )
    return dispatch(connection, dispatches=[_dispatch(r, outcomes) for r in chosen])


def wait_notes(ready: Iterable[Ready], choice: capacity.Choice, *, now: datetime) -> list[WaitNote]:
    """Notes for those that have waited long enough and whose reason is new."""
    notes = []
    for r in ready:
        wait = choice.waiting.get(r.instance.ti_id)
        since = r.instance.ready_since
        if wait is None or since is None or wait.code == r.instance.wait_code:
            continue
        if (now - since).total_seconds() >= WAIT_NOTED_AFTER_S:
            notes.append(WaitNote(ti_id=r.instance.ti_id, code=wait.code, detail=wait.detail))
    return notes


def _outcomes(
    connection: psycopg.Connection[Any], attempt_ids: list[UUID]
) -> dict[UUID, AttemptOutcome]:
    if not attempt_ids:
        return {}
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT id, outcome FROM attempt WHERE id = ANY(%s) AND outcome IS NOT NULL",
            [attempt_ids],
        )
        return {row[0]: AttemptOutcome(row[1]) for row in cursor.fetchall()}


def _dispatch(ready: Ready, outcomes: dict[UUID, AttemptOutcome]) -> Dispatch:
    """The identity of the new attempt: which number grows says why there is one."""
    instance = ready.instance
    outcome = outcomes.get(instance.attempt_id) if instance.attempt_id else None
    try_number, resume_index, dispatch_no = (
        instance.try_number,
        instance.resume_index,
        instance.dispatch_no,
    )
    cause: str | None
    if instance.attempt_id is None:
        try_number, resume_index, dispatch_no, cause = try_number + 1, 0, 1, None
    elif instance.state is TaskState.UP_FOR_RETRY:
        try_number, resume_index, dispatch_no = try_number + 1, 0, 1
        cause = "superseded_by_retry"
    elif instance.state is TaskState.NONE:
        # It ran before, and was cleared.
        try_number, resume_index, dispatch_no = try_number + 1, 0, 1
        cause = "superseded_by_clear"
    elif instance.state is TaskState.UP_FOR_RESCHEDULE:
        resume_index, dispatch_no, cause = resume_index + 1, 1, "superseded_by_resume"
    elif outcome is AttemptOutcome.DEFERRED:
        # The firing raised resume_index already.
        dispatch_no, cause = 1, "superseded_by_resume"
    else:
        dispatch_no, cause = dispatch_no + 1, "lost_worker"
    # Of a try; neither a resume nor a look after a reschedule begins one.
    names = ready.view.version.callbacks.get(instance.task_id, {}) if resume_index == 0 else {}
    return Dispatch(
        on_execute=names.get(CallbackOn.EXECUTE, ()),
        ti_id=instance.ti_id,
        attempt_id=uuid7(),
        previous=instance.attempt_id,
        try_number=try_number,
        resume_index=resume_index,
        dispatch_no=dispatch_no,
        run_attempt=ready.view.run_attempt,
        token=ready.view.token,
        cause=cause,
    )
