"""What is old and needed by nothing: how much of it there is, and that it is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import tuple_row

from scheduler_app.rules.retention import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    import psycopg

BATCH: Final = 1000  # rows of one statement, so that none of them takes long

# Conditions on a row called o. Parameter: days.
_OLD: Final[Mapping[Kind, tuple[str, str, str]]] = {
    Kind.ARTIFACTS: (
        "artifact",
        "at",
        "o.at < clock_timestamp() - make_interval(days => %(days)s)"
        " AND NOT EXISTS (SELECT 1 FROM task_instance i JOIN run r ON r.id = i.run_id"
        "  WHERE i.id = o.ti_id AND r.is_active)",
    ),
    Kind.EXCLUSIVE_KEYS: (
        "exclusive",
        "at",
        "o.at < clock_timestamp() - make_interval(days => %(days)s)"
        " AND NOT EXISTS (SELECT 1 FROM attempt a WHERE a.id = o.attempt_id AND a.is_live)",
    ),
    Kind.INCIDENTS: (
        "incident",
        "resolved_at",
        "o.resolved_at < clock_timestamp() - make_interval(days => %(days)s)"
        " AND NOT EXISTS (SELECT 1 FROM alert a WHERE a.incident_id = o.id AND a.ended_at IS NULL)",
    ),
}


def count_old(
    connection: psycopg.Connection[Any], *, kind: Kind, days: int
) -> tuple[int, datetime | None]:
    """How many rows of the kind are old, and the time of the oldest."""
    table, at, is_old = _OLD[kind]
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            f"SELECT count(*)::int, min(o.{at}) FROM {table} o WHERE {is_old}",  # noqa: S608 - of this module
            {"days": days},
        )
        row = cursor.fetchone()
    assert row is not None, "an aggregate is always one row"
    return row[0], row[1]


def remove_old(connection: psycopg.Connection[Any], *, kind: Kind, days: int) -> int:
    """At most ``BATCH`` old rows of the kind are gone, with what belongs to them alone; how many."""
    table, at, is_old = _OLD[kind]
    key = "key" if kind is Kind.EXCLUSIVE_KEYS else "id"
    values = {"days": days, "batch": BATCH}
    chosen = (
        f"SELECT o.{key} FROM {table} o WHERE {is_old} ORDER BY o.{at} LIMIT %(batch)s FOR UPDATE"  # noqa: S608 - see above
    )
    with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(chosen, values)
        keys = [row[0] for row in cursor.fetchall()]
        if kind is Kind.INCIDENTS:
            cursor.execute("DELETE FROM alert WHERE incident_id = ANY(%s)", [keys])
        cursor.execute(f"DELETE FROM {table} WHERE {key} = ANY(%s)", [keys])  # noqa: S608 - see above
        return cursor.rowcount
