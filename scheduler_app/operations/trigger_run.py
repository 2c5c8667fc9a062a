"""Trigger runs by hand: one, or many in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.hints.notices import Notices
from scheduler_app.processes import database
from scheduler_app.processes.new_runs import flow_now, run_of
from scheduler_app.rules.errors import Conflict, InvalidInput
from scheduler_app.transitions.run import create_asked_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    import psycopg

    from scheduler_app.processes.new_runs import FlowNow
    from scheduler_app.transitions.run import Created, NewRun

RUNS_MAX: Final = 1000  # of one call: they are made in one transaction

_notices = Notices(settings.CACHE_URL)


class Triggered(NamedTuple):
    """A run that was made: what was asked for, and what the database made of it."""

    new: NewRun
    created: Created
    version: int  # its number within the flow

    @property
    def id(self) -> int:
        """Its number."""
        return self.created.id

    @property
    def run_key(self) -> str:
        """Its text within its flow."""
        return self.new.run_key


def trigger_run(
    *,
    flow_id: str,
    actor: str,
    conf: Mapping[str, Any] | None = None,
    logical_date: datetime | None = None,
    run_id: str | None = None,
    note: str = "",
) -> Triggered:
    """A queued manual run of the flow's current version exists; paused flows are allowed.

    ``conf`` is laid over the flow's declared defaults; keys that it does not declare are kept,
    and what it declares has to be as it says.
    ``logical_date`` must be aware; without one the run has the present time. Where the schedule
    has an interval of that date, the run is about the same one; else about that instant alone.
    Raises ``NotFound``, ``InvalidInput`` or ``Conflict`` (the run id exists).
    """
    wanted = {"conf": conf, "logical_date": logical_date, "run_id": run_id, "note": note}
    # One statement makes and notes it: nothing else has to stand or fall with it.
    with database.prepared(connection) as raw:
        flow = flow_now(raw, flow_id)
        (made,) = _create(raw, flow, [_run(flow, wanted, actor, 0)], [wanted], _alone)
    transaction.on_commit(lambda: _tell([made]))
    return made


def trigger_runs(
    *, flow_id: str, actor: str, runs: Sequence[Mapping[str, Any]], note: str = ""
) -> list[Triggered]:
    """As many queued manual runs exist, all or none, in the order asked.

    Each of ``runs`` has what ``trigger_run`` takes: conf, logical_date, run_id, and a note where it is not
    ``note``. At most ``RUNS_MAX``. Raises what ``trigger_run`` raises, with the place of the run in ``field``.
    """
    if len(runs) > RUNS_MAX:
        message = f"{len(runs)} runs were asked for; one call makes at most {RUNS_MAX}"
        raise InvalidInput(message, field="runs")
    wanted = [{**one, "note": one.get("note") or note} for one in runs]
    with transaction.atomic(), database.prepared(connection) as raw:
        flow = flow_now(raw, flow_id)
        new = []
        for place, one in enumerate(wanted):
            try:
                new.append(_run(flow, one, actor, place))
            except (InvalidInput, Conflict) as error:
                raise _at(place, error) from error
        made = _create(raw, flow, new, wanted, _at)
        transaction.on_commit(lambda: _tell(made))
    return made


def _run(flow: FlowNow, wanted: Mapping[str, Any], actor: str, place: int) -> NewRun:
    conf = wanted.get("conf")
    if conf is not None and not isinstance(conf, Mapping):
        raise InvalidInput("conf must be a JSON object", field="conf")
    return run_of(
        flow,
        conf=conf,
        logical_date=wanted.get("logical_date"),
        run_id=wanted.get("run_id"),
        note=wanted["note"],
        actor=actor,
        after_us=place,
    )


def _create(
    raw: psycopg.Connection[Any],
    flow: FlowNow,
    new: list[NewRun],
    wanted: Sequence[Mapping[str, Any]],
    told: Callable[[int, InvalidInput | Conflict], InvalidInput | Conflict],
) -> list[Triggered]:
    """The runs, made and noted. Raises ``Conflict``, as ``told``, where one of its id exists already."""
    made: list[Created | None] = [None] * len(new)
    places = list(range(len(new)))
    while places:
        found = create_asked_runs(
            raw,
            new=[new[place] for place in places],
            definition=flow.definition,
            asked=[wanted[place].get("conf") or {} for place in places],
        )
        for place, one in zip(places, found, strict=True):
            made[place] = one
            if one is not None:
                continue
            if wanted[place].get("run_id") is None:
                # Somebody else asked in the same microsecond: it is called by a later one.
                later = flow_now(raw, flow.flow_id)
                new[place] = _run(later, wanted[place], new[place].actor, place)
                continue
            message = f"flow {flow.flow_id!r} has a run {new[place].run_key!r} already; choose another run_id"
            raise told(place, Conflict(message, field="run_id"))
        places = [place for place in places if made[place] is None]
    return [
        Triggered(of_one, created, flow.version)
        for of_one, created in zip(new, made, strict=True)
        if created is not None
    ]


def _alone(place: int, error: InvalidInput | Conflict) -> InvalidInput | Conflict:
    del place
    return error


def _at(place: int, error: InvalidInput | Conflict) -> InvalidInput | Conflict:
    """The same error, saying which of several runs it is about."""
    field = error.extra.get("field")
    where = f"runs.{place}" + (f".{field}" if field else "")
    return type(error)(f"run {place}: {error}; no run was made", field=where)


def _tell(made: Sequence[Triggered]) -> None:
    ids = [run.id for run in made]
    _notices.both(runs=ids, topics=["runs", "home", *(f"run:{one}" for one in ids)])
