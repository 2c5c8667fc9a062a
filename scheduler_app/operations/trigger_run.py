"""Trigger a run by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.hints.notices import Notices
from scheduler_app.models import Run
from scheduler_app.processes.new_runs import asked_run
from scheduler_app.rules.errors import Conflict, InvalidInput
from scheduler_app.transitions.audit import record_audit
from scheduler_app.transitions.run import create_run

if TYPE_CHECKING:
    from datetime import datetime

_notices = Notices(settings.CACHE_URL)


def trigger_run(
    *,
    flow_id: str,
    actor: str,
    conf: Mapping[str, Any] | None = None,
    logical_date: datetime | None = None,
    run_id: str | None = None,
    note: str = "",
) -> Run:
    """A queued manual run of the flow's current version exists; paused flows are allowed.

    ``conf`` is laid over the flow's declared defaults; keys that it does not declare are kept,
    and what it declares has to be as it says.
    ``logical_date`` must be aware; without one the run has the present time. Where the schedule
    has an interval of that date, the run is about the same one; else about that instant alone.
    Raises ``NotFound``, ``InvalidInput`` or ``Conflict`` (the run id exists).
    """
    if conf is not None and not isinstance(conf, Mapping):
        raise InvalidInput("conf must be a JSON object", field="conf")
    with transaction.atomic():
        asked = asked_run(
            connection.connection,
            flow_id=flow_id,
            conf=conf,
            logical_date=logical_date,
            run_id=run_id,
            note=note,
            actor=actor,
        )
        key = asked.new.run_key
        new_id = create_run(connection.connection, new=asked.new, definition=asked.definition)
        if new_id is None:
            message = f"flow {flow_id!r} has a run {key!r} already; choose another run_id"
            raise Conflict(message, field="run_id")
        record_audit(
            connection.connection,
            actor=actor,
            action="trigger",
            object_kind="run",
            object_id=str(new_id),
            flow_id=flow_id,
            reason=note,
            after={"run_id": key, "conf": dict(conf or {})},
        )
        transaction.on_commit(lambda: _tell(new_id))
    return Run.objects.select_related("flow", "version").get(pk=new_id)


def _tell(run_id: int) -> None:
    _notices.both(runs=[run_id], topics=["runs", "home", f"run:{run_id}"])
