"""Send an attempt's message once more, as a broker may do by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connection, transaction

from scheduler_app.models import Attempt
from scheduler_app.rules.errors import NotAllowed, NotFound
from scheduler_app.transitions.attempt import Message
from scheduler_app.transitions.audit import record_audit
from scheduler_app.transitions.identity import database_identity

if TYPE_CHECKING:
    from uuid import UUID

    from scheduler_app.executors.interface import Executor


def deliver_again(*, attempt_id: UUID, executor: Executor, actor: str, reason: str) -> bool:
    """The same message is on its way a second time; whether the carrier took it.

    Nothing runs twice by it: the claim refuses the delivery, which becomes an executor event with
    the reason. Raises ``NotFound``, or ``NotAllowed`` for an attempt whose first delivery may still
    be the one that runs.
    """
    attempt = Attempt.objects.select_related("run").filter(pk=attempt_id).first()
    if attempt is None:
        message = f"no attempt has the id {attempt_id}"
        raise NotFound(message, field="attempt_id")
    if attempt.started_at is None or not (attempt.ti_id and attempt.run_id and attempt.fence):
        message = f"attempt {attempt_id} was claimed by no delivery yet"
        raise NotAllowed(message, field="attempt_id")
    with transaction.atomic():
        record_audit(
            connection.connection,
            actor=actor,
            action="deliver_again",
            object_kind="attempt",
            object_id=str(attempt_id),
            flow_id=attempt.run.flow_id if attempt.run else None,
            reason=reason,
        )
    delivery = Message(
        attempt_id=attempt.pk,
        ti_id=attempt.ti_id,
        run_id=attempt.run_id,
        fence=attempt.fence,
        lease_token=attempt.lease_token or 0,
        queue=attempt.queue,
    )
    identity = database_identity(connection.connection)
    return attempt_id in executor.publish([delivery], identity=identity)
