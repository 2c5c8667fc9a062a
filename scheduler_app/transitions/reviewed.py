"""Marks that a person has looked at a filtered record or a ghost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg


def mark_reviewed(
    connection: psycopg.Connection[Any], *, keys: Sequence[str], actor: str, note: str
) -> None:
    """Each of these records is reviewed by ``actor`` now, with this note; an earlier mark is replaced."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO reviewed (key, actor, note, at)"
            " SELECT key, %s, %s, clock_timestamp() FROM unnest(%s::text[]) AS k(key) ORDER BY key"
            " ON CONFLICT (key) DO UPDATE SET actor = excluded.actor, note = excluded.note,"
            " at = excluded.at",
            [actor, note, list(keys)],
        )


def unmark_reviewed(connection: psycopg.Connection[Any], *, keys: Sequence[str]) -> int:
    """None of these records is reviewed; how many were. The audit keeps who had, and what they said."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM reviewed WHERE key = ANY(%s)", [list(keys)])
        return cursor.rowcount
