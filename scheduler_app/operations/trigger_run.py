"""Trigger runs by hand: one, or many in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.hints.notices import Notices
from scheduler_app.models import Run
from scheduler_app.processes.new_runs import asked_run
from scheduler_app.rules.errors import Conflict, InvalidInput
from scheduler_app.transitions.audit import record_audit
from scheduler_app.transitions.run import create_run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

RUNS_MAX: Final = 1000  # of one call: they are made in one transaction

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
    with transaction.atomic():
        new_id = _create(
            flow_id=flow_id,
            actor=actor,
            conf=conf,
            logical_date=logical_date,
            run_id=run_id,
            note=note,
        )
        transaction.on_commit(lambda: _tell([new_id]))
    return Run.objects.select_related("flow", "version").get(pk=new_id)


def trigger_runs(
    *, flow_id: str, actor: str, runs: Sequence[Mapping[str, Any]], note: str = ""
) -> list[int]:
    """As many queued manual runs exist, all or none; their ids, in the order asked.

    Each of ``runs`` has what ``trigger_run`` takes: conf, logical_date, run_id, and a note where it is not
    ``note``. At most ``RUNS_MAX``. Raises what ``trigger_run`` raises, with the place of the run in ``field``.
    """
    if len(runs) > RUNS_MAX:
        message = f"{len(runs)} runs were asked for; one call makes at most {RUNS_MAX}"
        raise InvalidInput(message, field="runs")
    made: list[int] = []
    with transaction.atomic():
        for place, wanted in enumerate(runs):
            try:
                made.append(
                    _create(
                        flow_id=flow_id,
                        actor=actor,
                        conf=wanted.get("conf"),
                        logical_date=wanted.get("logical_date"),
                        run_id=wanted.get("run_id"),
                        note=wanted.get("note") or note,
                    )
                )
            except (InvalidInput, Conflict) as error:
                field = error.extra.get("field")
                where = f"runs.{place}" + (f".{field}" if field else "")
                raise type(error)(f"run {place}: {error}; no run was made", field=where) from error
        transaction.on_commit(lambda: _tell(made))
    return made


def _create(
    *,
    flow_id: str,
    actor: str,
    conf: Mapping[str, Any] | None,
    logical_date: datetime | None,
    run_id: str | None,
    note: str,
) -> int:
    if conf is not None and not isinstance(conf, Mapping):
        raise InvalidInput("conf must be a JSON object", field="conf")
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
    return new_id


def _tell(run_ids: Sequence[int]) -> None:
    _notices.both(runs=run_ids, topics=["runs", "home", *(f"run:{one}" for one in run_ids)])
