"""Tell a task instance something from outside: what an ``EventTrigger`` waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.authoring.triggers import check_event_key
from scheduler_app.hints.notices import Notices
from scheduler_app.models import TaskInstance
from scheduler_app.rules import values
from scheduler_app.rules.errors import Conflict, NotFound
from scheduler_app.rules.states import TASK_TERMINAL, TaskState
from scheduler_app.transitions.audit import record_audit
from scheduler_app.transitions.trigger import Fire, fire, record_external_event

_notices = Notices(settings.CACHE_URL)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentEvent:
    """What became of the event."""

    id: int
    key: str
    trigger_id: int | None  # that it fired; null: kept until the task waits for it
    state: str  # of the task instance now


def send_event(*, ti_id: int, key: str, payload: Any = None, actor: str) -> SentEvent:
    """The event is kept; the task resumes with it, now or when it comes to wait for the key.

    Each event wakes one wait. ``payload`` is a JSON value; the resumed method gets it.
    Raises ``NotFound``, ``InvalidInput``, or ``Conflict`` for a task that has ended.
    """
    check_event_key(key)
    encoded = values.encode_result(payload, settings.RESULT_BYTES_MAX, "payload")
    with transaction.atomic():
        ti = TaskInstance.objects.select_related("run").filter(pk=ti_id).first()
        if ti is None:
            message = f"there is no task instance {ti_id}"
            raise NotFound(message)
        event_id, trigger_id = record_external_event(
            connection.connection, ti_id=ti_id, key=key, payload=encoded, actor=actor
        )
        ti.refresh_from_db(fields=["state"])  # its row is locked by now
        if TaskState(ti.state) in TASK_TERMINAL:
            message = f"task {ti.task_id} has ended as {ti.state}; no event reaches it any more"
            raise Conflict(message)
        if trigger_id is not None:
            fire(
                connection.connection,
                fires=[
                    Fire(
                        trigger_id=trigger_id,
                        state="fired",
                        payload={"event": encoded},
                        event_id=event_id,
                    )
                ],
            )
            ti.refresh_from_db(fields=["state"])
        record_audit(
            connection.connection,
            actor=actor,
            action="send_event",
            object_kind="task_instance",
            object_id=str(ti_id),
            flow_id=ti.run.flow_id,
            after={"key": key, "event": event_id, "trigger": trigger_id},
        )
        topics = ["runs", "triggers", f"run:{ti.run_id}", f"ti:{ti_id}"]
        transaction.on_commit(lambda: _notices.both(runs=[ti.run_id], topics=topics))
    return SentEvent(id=event_id, key=key, trigger_id=trigger_id, state=ti.state)
