"""A run that somebody asks for, a person or a task: what it is created with, checked."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import dict_row, tuple_row

from scheduler_app.rules import params, timetable
from scheduler_app.rules.definition import FlowDefinition, from_dict
from scheduler_app.rules.errors import Conflict, InvalidInput, NotFound
from scheduler_app.rules.run_keys import check_run_key, manual_run_key
from scheduler_app.rules.states import RunType
from scheduler_app.transitions.run import NewRun

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    import psycopg

NOTE_CHARACTERS_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowNow:
    """A flow that runs can be asked of, as it is now."""

    flow_id: str
    shard: int
    version_id: int
    version: int  # its number within the flow
    definition: FlowDefinition
    is_paused: bool
    is_frozen: bool
    now: datetime  # by the database's clock, UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A run that may be created now, and what is to be known of its flow."""

    new: NewRun
    definition: FlowDefinition
    is_paused: bool
    is_frozen: bool


def asked_run(
    connection: psycopg.Connection[Any],
    *,
    flow_id: str,
    conf: Mapping[str, Any] | None,
    logical_date: datetime | None,
    run_id: str | None,
    note: str,
    actor: str,
) -> Asked:
    """A manual run of the flow's current version.

    ``conf`` is laid over the flow's declared defaults. Without a ``logical_date``, which must be
    aware, the run has the present time. Raises ``NotFound``, ``InvalidInput`` and ``Conflict``.
    """
    flow = flow_now(connection, flow_id)
    return Asked(
        new=run_of(
            flow, conf=conf, logical_date=logical_date, run_id=run_id, note=note, actor=actor
        ),
        definition=flow.definition,
        is_paused=flow.is_paused,
        is_frozen=flow.is_frozen,
    )


def flow_now(connection: psycopg.Connection[Any], flow_id: str) -> FlowNow:
    """The flow in its current version. Raises ``NotFound`` and, where it was removed, ``Conflict``."""
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT f.shard, f.is_paused, f.frozen_at IS NOT NULL AS is_frozen, f.removed_at,"
            "  clock_timestamp() AS now, v.id AS version_id, v.number, v.digest, v.created_at"
            " FROM flow f JOIN flow_version v ON v.id = f.current_version_id"
            " WHERE f.flow_id = %s::text",
            [flow_id],
        )
        flow = cursor.fetchone()
    if flow is None:
        message = (
            f"no flow is called {flow_id!r}; `manage.py flows list` has those that there are, and a"
            " fault in its file may keep it from being one"
        )
        raise NotFound(message, field="flow_id")
    if flow["removed_at"] is not None:
        message = f"flow {flow_id!r} was removed: its file no longer defines it"
        raise Conflict(message, field="flow_id")
    return FlowNow(
        flow_id=flow_id,
        shard=flow["shard"],
        version_id=flow["version_id"],
        version=flow["number"],
        definition=_definition(
            connection, flow["version_id"], (flow["digest"], flow["created_at"])
        ),
        is_paused=flow["is_paused"],
        is_frozen=flow["is_frozen"],
        now=flow["now"].astimezone(UTC),
    )


def _definition(
    connection: psycopg.Connection[Any], version_id: int, made: tuple[str, datetime]
) -> FlowDefinition:
    """What the version says, which never changes: read once, since who triggers a flow does so again."""
    known = _known.get((version_id, *made))
    if known is None:
        with connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(
                "SELECT definition::text FROM flow_version WHERE id = %s::bigint", [version_id]
            )
            (row,) = cursor.fetchall()
        known = from_dict(json.loads(row[0]))
        while len(_known) >= KNOWN_MAX:
            with suppress(KeyError, StopIteration):  # another thread was first
                del _known[next(iter(_known))]
        _known[version_id, *made] = known
    return known


KNOWN_MAX: Final = 32  # definitions that are kept
_known: Final[dict[tuple[int, str, datetime], FlowDefinition]] = {}


def run_of(
    flow: FlowNow,
    *,
    conf: Mapping[str, Any] | None,
    logical_date: datetime | None,
    run_id: str | None,
    note: str,
    actor: str,
    after_us: int = 0,
) -> NewRun:
    """A manual run of the flow, checked; see ``asked_run``.

    One without an id is called by the present time, so many microseconds later: so several that are
    asked for at once have ids of their own.
    """
    if len(note) > NOTE_CHARACTERS_MAX:
        message = f"note has {len(note)} characters; at most {NOTE_CHARACTERS_MAX} are allowed"
        raise InvalidInput(message, field="note")
    if logical_date is not None and logical_date.tzinfo is None:
        message = "logical_date needs an offset, such as 2026-01-31T02:00:00Z"
        raise InvalidInput(message, field="logical_date")
    if run_id is not None:
        check_run_key(run_id)
    whole = {**flow.definition.params, **(conf or {})}
    params.check(flow.definition.param_schemas, whole)
    now = flow.now + timedelta(microseconds=after_us)
    at = logical_date.astimezone(UTC) if logical_date is not None else now
    interval = timetable.interval_from(flow.definition, at)
    return NewRun(
        flow_id=flow.flow_id,
        run_key=run_id if run_id is not None else manual_run_key(now),
        shard=flow.shard,
        run_type=RunType.MANUAL,
        version_id=flow.version_id,
        logical_date=at,
        data_interval_start=interval.start,
        data_interval_end=interval.end,
        conf=whole,
        note=note,
        actor=actor,
    )
