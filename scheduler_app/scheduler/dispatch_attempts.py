"""From ready task instances to issued attempts: the rules choose by the room there is, rows are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import tuple_row

from scheduler_app.rules import capacity
from scheduler_app.rules.callbacks import CallbackOn
from scheduler_app.rules.states import AttemptOutcome, TaskState
from scheduler_app.transitions.attempt import Dispatch, Message, dispatch
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.task_instance import WaitNote

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    import psycopg

    from scheduler_app.scheduler.run_views import Instance, RunView
    from scheduler_app.scheduler.turns import Turns

DISPATCHES_MAX: Final = 200  # a tick; keeps its transaction short
WAIT_NOTED_AFTER_S: Final = 1.0  # shorter waits are not worth a row version


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """One task instance that may start as far as its own run is concerned."""

    view: RunView
    instance: Instance


def choose(
    ready: Sequence[Ready], *, room: capacity.Room, turns: Turns, now: datetime
) -> capacity.Choice:
    """Which of the ready task instances start now, and what the others wait for."""
    kinds: dict[capacity.Kind, list[capacity.Ready]] = {}
    for r in ready:
        one, view = r.instance, r.view
        if one.ready_since is None:
            one.ready_since = now
        kind = capacity.Kind(
            view.run_id,
            view.flow_id,
            # One kind for all tasks without limits of their own: to choose costs as many kinds as there are.
            one.task_id if one.task_id in view.version.limited_ids else "",
            one.pool,
            one.slots,
            one.priority,
            one.queue,
            one.keys,
        )
        members = kinds.get(kind)
        if members is None:
            kinds[kind] = members = []
        members.append(capacity.Ready(one.ready_since, one.ti_id, one.task_id))
    choice = capacity.choose(kinds, room, limit=DISPATCHES_MAX, now=now, served=turns.served)
    turns.serve(choice.served, now)
    return choice


def issue(connection: psycopg.Connection[Any], *, chosen: Sequence[Ready]) -> list[Message]:
    """Issued attempts for the chosen task instances; publish them after the commit."""
    outcomes = _outcomes(
        connection, [r.instance.attempt_id for r in chosen if r.instance.attempt_id is not None]
    )
    dispatches = [_dispatch(r, outcomes) for r in chosen]
    messages = dispatch(connection, dispatches=dispatches)
    issued = {message.ti_id for message in messages}
    for r, made in zip(chosen, dispatches, strict=True):
        if made.ti_id in issued:
            _let_go(r, made)
        else:  # somebody else moved it in between
            r.view.is_doubted = True
    return messages


def _let_go(ready: Ready, made: Dispatch) -> None:
    """The view knows what has just been written."""
    one = ready.instance
    one.state, one.attempt_id = TaskState.QUEUED, made.attempt_id
    one.try_number, one.resume_index = made.try_number, made.resume_index
    one.dispatch_no, one.next_retry_at, one.ready_since = made.dispatch_no, None, None
    ready.view.put(one, is_open=True)


def wait_notes(ready: Sequence[Ready], choice: capacity.Choice, *, now: datetime) -> list[WaitNote]:
    """Notes for those that have waited long enough and whose reason is new.

    Who stands far behind in a long line is not named yet, and has none: a note is a row version.
    """
    notes = []
    for r in ready:
        wait = choice.waiting.get(r.instance.ti_id)
        since = r.instance.ready_since
        if wait is None or since is None:
            continue
        mark = f"{wait.code}:{wait.about}:{wait.sign}"
        if mark == r.instance.wait_mark or (now - since).total_seconds() < WAIT_NOTED_AFTER_S:
            continue
        # What never started is not read again before somebody else may have moved it.
        r.instance.wait_mark = mark
        notes.append(
            WaitNote(
                ti_id=r.instance.ti_id,
                code=wait.code,
                detail=wait.detail,
                about=wait.about,
                sign=wait.sign,
            )
        )
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
        limit_keys=tuple(key for key, _ in instance.keys),
    )
