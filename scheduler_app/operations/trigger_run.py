"""Trigger a run by hand."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.hints.notices import Notices
from scheduler_app.models import Flow, Run
from scheduler_app.rules import params, timetable
from scheduler_app.rules.definition import from_dict
from scheduler_app.rules.errors import Conflict, InvalidInput, NotFound
from scheduler_app.rules.run_keys import check_run_key, manual_run_key
from scheduler_app.rules.states import RunType
from scheduler_app.transitions.audit import record_audit
from scheduler_app.transitions.run import NewRun, create_run

NOTE_CHARACTERS_MAX = 1000

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
    if len(note) > NOTE_CHARACTERS_MAX:
        message = f"note has {len(note)} characters; at most {NOTE_CHARACTERS_MAX} are allowed"
        raise InvalidInput(message, field="note")
    if logical_date is not None and logical_date.tzinfo is None:
        message = "logical_date needs an offset, such as 2026-01-31T02:00:00Z"
        raise InvalidInput(message, field="logical_date")
    key = check_run_key(run_id) if run_id is not None else manual_run_key(datetime.now(UTC))
    with transaction.atomic():
        flow = Flow.objects.select_related("current_version").filter(flow_id=flow_id).first()
        if flow is None or flow.current_version is None:
            message = f"no flow is called {flow_id!r}"
            raise NotFound(message, field="flow_id")
        if flow.removed_at is not None:
            message = f"flow {flow_id!r} was removed: its file no longer defines it"
            raise Conflict(message, field="flow_id")
        definition = from_dict(flow.current_version.definition)
        whole = {**definition.params, **(conf or {})}
        params.check(definition.param_schemas, whole)
        at = (logical_date or datetime.now(UTC)).astimezone(UTC)
        interval = timetable.interval_from(definition, at)
        new_id = create_run(
            connection.connection,
            new=NewRun(
                flow_id=flow.flow_id,
                run_key=key,
                shard=flow.shard,
                run_type=RunType.MANUAL,
                version_id=flow.current_version.pk,
                logical_date=at,
                data_interval_start=interval.start,
                data_interval_end=interval.end,
                conf=whole,
                note=note,
                actor=actor,
            ),
            definition=definition,
        )
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
