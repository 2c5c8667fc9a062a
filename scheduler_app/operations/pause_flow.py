"""Pause and unpause a flow: whether its schedule creates new runs. Running runs go on."""

from __future__ import annotations

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.hints.notices import Notices
from scheduler_app.models import Flow
from scheduler_app.rules import timetable
from scheduler_app.rules.definition import from_dict
from scheduler_app.rules.errors import NotFound
from scheduler_app.transitions.audit import record_audit
from scheduler_app.transitions.flow import set_flow_paused
from scheduler_app.transitions.flow_cursor import set_cursor
from scheduler_app.transitions.incident import resolve_incident

_notices = Notices(settings.CACHE_URL)


def set_paused(*, flow_id: str, is_paused: bool, actor: str, reason: str = "") -> Flow:
    """The flow is paused, or not; the same call again changes nothing and is not audited.

    After an unpause a flow without catch-up goes on with its latest complete interval.
    Raises ``NotFound``.
    """
    with transaction.atomic():
        flow = (
            Flow.objects.select_for_update(no_key=True, of=("self",))
            .select_related("current_version")
            .filter(flow_id=flow_id)
            .first()
        )
        if flow is None:
            message = f"no flow is called {flow_id!r}"
            raise NotFound(message, field="flow_id")
        if flow.is_paused != is_paused:
            set_flow_paused(connection.connection, flow_id=flow_id, is_paused=is_paused)
            if not is_paused:
                resolve_incident(
                    connection.connection, kind="flow_paused_by_failures", subject=flow_id
                )
                if flow.current_version is not None:
                    _reset_cursor(flow)
            record_audit(
                connection.connection,
                actor=actor,
                action="pause" if is_paused else "unpause",
                object_kind="flow",
                object_id=flow_id,
                flow_id=flow_id,
                reason=reason,
                before={"is_paused": flow.is_paused},
                after={"is_paused": is_paused},
            )
            transaction.on_commit(_tell)
    flow.refresh_from_db()
    return flow


def _reset_cursor(flow: Flow) -> None:
    assert flow.current_version is not None
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchone()
    last = None
    if flow.last_interval_start is not None and flow.last_interval_end is not None:
        last = timetable.DataInterval(start=flow.last_interval_start, end=flow.last_interval_end)
    definition = from_dict(flow.current_version.definition)
    set_cursor(
        connection.connection,
        flow_id=flow.flow_id,
        following=timetable.next_interval_of(definition, last=last, now=now),
    )


def _tell() -> None:
    _notices.wake(flows=1)
    _notices.changed(["flows", "home"])
