"""Say that a person knows of an incident: it is not told again."""

from __future__ import annotations

from typing import Final

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.hints.notices import Notices
from scheduler_app.rules import incidents
from scheduler_app.rules.errors import Conflict, InvalidInput, NotFound
from scheduler_app.transitions.audit import record_audit
from scheduler_app.transitions.incident import acknowledge

NOTE_CHARACTERS_MAX: Final = 2000

_notices = Notices(settings.CACHE_URL)


def acknowledge_incident(*, incident_id: int, actor: str, reason: str) -> None:
    """The incident is acknowledged, and its reminders stop; asking again changes nothing.

    One that nothing but a person's word ends is resolved by it. Raises ``NotFound``,
    ``InvalidInput`` without a reason, and ``Conflict`` for one that is over.
    """
    if not reason.strip():
        raise InvalidInput("reason: say what is done about it.", field="reason")
    if len(reason) > NOTE_CHARACTERS_MAX:
        raise InvalidInput(
            f"reason: at most {NOTE_CHARACTERS_MAX} characters are allowed.", field="reason"
        )
    with transaction.atomic():
        kind = _kind_of(incident_id)
        ends = incidents.ends_by_hand(kind)
        before = acknowledge(
            connection.connection, incident_id=incident_id, actor=actor, note=reason, ends=ends
        )
        if before is None:
            raise NotFound(f"There is no incident {incident_id}.")
        if before["acknowledged_at"] is not None:
            return
        if before["resolved_at"] is not None:
            raise Conflict(f"Incident {incident_id} is over.")
        record_audit(
            connection.connection,
            actor=actor,
            action="acknowledge",
            object_kind="incident",
            object_id=str(incident_id),
            flow_id=before["flow_id"],
            reason=reason,
            before={"state": "open", "kind": kind, "subject": before["subject"]},
            after={"state": "resolved" if ends else "acknowledged"},
        )
        transaction.on_commit(lambda: _notices.changed(["incidents", "home"]))


def _kind_of(incident_id: int) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT kind FROM incident WHERE id = %s", [incident_id])
        row = cursor.fetchone()
    return str(row[0]) if row else ""
