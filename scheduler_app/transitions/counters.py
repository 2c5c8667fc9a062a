"""Counters of the metrics page: rows, so that every process's share is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg


def count(connection: psycopg.Connection[Any], name: str, by: int) -> None:
    """The counter is higher by ``by``. Part of the caller's transaction; last, since rows are hot."""
    if by == 0:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO counter (name, labels, value) VALUES (%s, '', %s)"
            " ON CONFLICT (name, labels) DO UPDATE SET value = counter.value + excluded.value",
            [name, by],
        )
