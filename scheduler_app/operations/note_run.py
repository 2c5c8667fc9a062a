"""Write a note on a run: what a person wants the next one to know."""

from __future__ import annotations

from typing import Final

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.hints.notices import Notices
from scheduler_app.models import Run
from scheduler_app.operations.reasons import check_reason
from scheduler_app.rules.errors import InvalidInput, NotFound
from scheduler_app.transitions import clear as moves
from scheduler_app.transitions.audit import record_audit
from scheduler_app.transitions.run import lock_run

NOTE_CHARACTERS_MAX: Final = 1000

_notices = Notices(settings.CACHE_URL)


def note_run(*, run_id: int, note: str, actor: str, reason: str) -> None:
    """The run has the note, in place of the one before. Raises ``NotFound`` and ``InvalidInput``."""
    why = check_reason(reason)
    if len(note) > NOTE_CHARACTERS_MAX or "\x00" in note:
        raise InvalidInput(
            f"note: at most {NOTE_CHARACTERS_MAX} characters and no NUL are allowed.", field="note"
        )
    with transaction.atomic():
        connection.ensure_connection()
        row = lock_run(connection.connection, run_id=run_id)
        if row is None:
            message = f"there is no run {run_id}"
            raise NotFound(message, field="run")
        before = Run.objects.values_list("note", flat=True).get(pk=run_id)
        if before == note:
            return
        moves.note_run(connection.connection, run_id=run_id, note=note)
        record_audit(
            connection.connection,
            actor=actor,
            action="note",
            object_kind="run",
            object_id=str(run_id),
            flow_id=row["flow_id"],
            reason=why,
            before={"note": before},
            after={"note": note},
        )
        transaction.on_commit(lambda: _notices.changed([f"run:{run_id}", "runs"]))
