"""Ask a worker to end an execution that the database knows nothing of."""

from __future__ import annotations

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.hints.notices import Notices
from scheduler_app.models import Ghost
from scheduler_app.rules import ghosts
from scheduler_app.rules.errors import Conflict, InvalidInput, NotFound
from scheduler_app.transitions.audit import record_audit
from scheduler_app.transitions.ghost import request_stop

_notices = Notices(settings.CACHE_URL)


def stop_ghost(*, ghost_id: int, actor: str, reason: str) -> None:
    """Its worker ends the process at one of its next heartbeats; asking again changes nothing.

    Raises ``NotFound``, ``InvalidInput`` without a reason, and ``Conflict`` for a ghost that is over
    or whose process is stopped without being asked.
    """
    if not reason.strip():
        raise InvalidInput("reason: say why the process is stopped.", field="reason")
    with transaction.atomic():
        ghost = Ghost.objects.select_for_update().filter(pk=ghost_id).first()
        if ghost is None:
            raise NotFound(f"There is no ghost {ghost_id}.")
        if ghost.kind != ghosts.NO_RECORD:
            raise Conflict(
                "Only an execution without a record is stopped by a person: the others end by the"
                " decisions that made them ghosts, and suspects by stopping their task instance."
            )
        if ghost.stop_requested_at is not None:
            return
        if not request_stop(connection.connection, ghost_id=ghost_id, actor=actor):
            raise Conflict(f"Ghost {ghost_id} is over: {ghost.end_reason}.")
        record_audit(
            connection.connection,
            actor=actor,
            action="stop_ghost",
            object_kind="ghost",
            object_id=str(ghost_id),
            flow_id=None,
            reason=reason,
            before={"stop_requested": False},
            after={"stop_requested": True, "process": f"{ghost.hostname}:{ghost.pid}"},
        )
        transaction.on_commit(lambda: _notices.changed(["ghosts"]))
