"""Take down what an executor outside this product says of an execution."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.hints.notices import Notices
from scheduler_app.models import Attempt, ExecutorEvent, TaskInstance
from scheduler_app.rules import reconcile
from scheduler_app.rules.errors import InvalidInput
from scheduler_app.transitions.executor_event import Judgement, NewEvent, record_event

if TYPE_CHECKING:
    from uuid import UUID

# What an executor may say, and what it means. One that starts an execution over has ended the one
# before it.
STATES: Final = {
    "success": reconcile.EXIT_SUCCESS,
    "failed": reconcile.EXIT_FAILED,
    "restarting": reconcile.EXIT_FAILED,
    "queued": reconcile.EXECUTOR_QUEUED,
    "running": reconcile.EXECUTOR_RUNNING,
}

_notices = Notices(settings.CACHE_URL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement of an executor. Without ``attempt_id`` it is about a try, as good as it knows."""

    flow_id: str
    run_id: str
    task_id: str
    try_number: int
    state: str  # of STATES
    map_index: int = -1
    attempt_id: UUID | None = None
    info: str | None = None  # its handle of the execution
    still_held: bool = False  # it holds another execution of the same try
    key: str | None = None  # its own id of the statement: a repetition changes nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The row of a statement."""

    id: int
    is_new: bool  # false: the same key was said before


def record_executor_event(statement: Statement, *, actor: str) -> Recorded:
    """The statement is a row, and the scheduler judges it; one about no known task is a ghost's.

    The row names its source, is append-only and keeps its verdict, so it is its own audit.
    Raises ``InvalidInput`` for an attempt id of another task instance.
    """
    with transaction.atomic():
        ti_id = _task_instance(statement)
        _check_attempt(statement, ti_id)
        event = _event(statement, ti_id, actor=actor)
        event_id = record_event(connection.connection, event=event)
        if event_id is None:
            said = ExecutorEvent.objects.values_list("id", flat=True)
            return Recorded(id=said.get(dedupe_key=event.dedupe_key), is_new=False)
        transaction.on_commit(lambda: _tell(ti_id))
    return Recorded(id=event_id, is_new=True)


def _task_instance(statement: Statement) -> int | None:
    return (
        TaskInstance.objects.filter(
            run__flow_id=statement.flow_id,
            run__run_key=statement.run_id,
            task_id=statement.task_id,
            map_index=statement.map_index,
        )
        .values_list("id", flat=True)
        .first()
    )


def _check_attempt(statement: Statement, ti_id: int | None) -> None:
    if statement.attempt_id is None:
        return
    found = Attempt.objects.filter(pk=statement.attempt_id).values_list("ti_id", flat=True)
    if any(owner not in (ti_id, None) for owner in found):
        message = (
            f"attempt_id: attempt {statement.attempt_id} is of another task instance than"
            f" {statement.task_id} in run {statement.run_id}. Give the id that came with the message."
        )
        raise InvalidInput(message, field="attempt_id")


def _event(statement: Statement, ti_id: int | None, *, actor: str) -> NewEvent:
    kind = STATES[statement.state]
    payload: dict[str, Any] = {"state": statement.state}
    if statement.info is not None:
        payload["info"] = statement.info
    if statement.still_held:
        payload["still_held"] = True
    judgement = None
    if ti_id is None:
        payload |= {
            "flow_id": statement.flow_id,
            "run_id": statement.run_id,
            "task_id": statement.task_id,
            "map_index": statement.map_index,
        }
        if statement.attempt_id is None:
            judgement = _of_nobody(kind, statement, payload)
    key = None
    if statement.key is not None:
        own = hashlib.sha256(f"{actor} {statement.key}".encode())
        key = f"said:{own.hexdigest()}"
    return NewEvent(
        attempt_id=statement.attempt_id,
        ti_id=ti_id,
        try_number=statement.try_number,
        kind=kind,
        source=f"executor: {actor}",
        payload=payload,
        dedupe_key=key,
        judgement=judgement,
    )


def _of_nobody(kind: str, statement: Statement, payload: dict[str, Any]) -> Judgement:
    """There are no rows that could move, so nothing has to wait for the scheduler."""
    verdict = reconcile.judge_by_try(
        reconcile.Event(
            kind=kind, attempt_id=None, try_number=statement.try_number, claimed=payload
        ),
        None,
        reconcile.TryFacts(
            grace_over=True,
            queued_by=reconcile.QueuedBy.NOBODY,
            executor_holds=statement.still_held,
            is_resumed=False,
            current_attempt_id=None,
        ),
    )
    return Judgement(
        verdict=verdict.verdict, code=verdict.code, reason=verdict.reason, detail=verdict.detail
    )


def _tell(ti_id: int | None) -> None:
    _notices.wake(events=1)
    _notices.changed(["runs"] if ti_id is None else ["runs", f"ti:{ti_id}"])
