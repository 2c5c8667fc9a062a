"""Audit entries: append-only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Who did what to what, why, and what it was before and after."""

    actor: str
    action: str
    object_kind: str
    object_id: str
    flow_id: str | None = None
    reason: str = ""
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


_RECORD: Final = (
    "INSERT INTO audit (at, actor, action, object_kind, object_id, flow_id, reason, before, after)"
    " VALUES (clock_timestamp(), %s, %s, %s, %s, %s, %s, %s, %s)"
)

# The entry of a run that somebody asked for, in the statement that makes the run: of each row of r.
OF_TRIGGERED_RUN: Final = (
    "INSERT INTO audit (at, actor, action, object_kind, object_id, flow_id, reason, before, after)"
    " SELECT clock_timestamp(), %(actor)s, 'trigger', 'run', r.id::text, %(flow_id)s::varchar, %(note)s, NULL,"
    "  jsonb_build_object('run_id', %(run_key)s::text, 'conf', %(asked)s::jsonb) FROM r"
)


def record_audit(
    connection: psycopg.Connection[Any],
    *,
    actor: str,
    action: str,
    object_kind: str,
    object_id: str,
    flow_id: str | None = None,
    reason: str = "",
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> None:
    """An entry says who did what to what, why, and what it was before and after."""
    entry = Entry(
        actor=actor,
        action=action,
        object_kind=object_kind,
        object_id=object_id,
        flow_id=flow_id,
        reason=reason,
        before=before,
        after=after,
    )
    with connection.cursor() as cursor:
        cursor.execute(_RECORD, _values(entry))


def record_audits(connection: psycopg.Connection[Any], *, entries: Sequence[Entry]) -> None:
    """As ``record_audit``, for several entries in one round trip."""
    with connection.cursor() as cursor:
        if len(entries) == 1:
            cursor.execute(_RECORD, _values(entries[0]))
        else:
            cursor.executemany(_RECORD, [_values(entry) for entry in entries])


def _values(entry: Entry) -> list[Any]:
    return [
        entry.actor,
        entry.action,
        entry.object_kind,
        entry.object_id,
        entry.flow_id,
        entry.reason,
        None if entry.before is None else Jsonb(entry.before),
        None if entry.after is None else Jsonb(entry.after),
    ]
