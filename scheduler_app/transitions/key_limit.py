"""Limits of keys: rows that operators set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg.rows import dict_row

if TYPE_CHECKING:
    import psycopg


def lock_key_limit(connection: psycopg.Connection[Any], *, key: str) -> dict[str, Any] | None:
    """Slots and description, locked; none if there is none."""
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute("SELECT slots, description FROM key_limit WHERE key = %s FOR UPDATE", [key])
        return cursor.fetchone()


def set_key_limit(
    connection: psycopg.Connection[Any], *, key: str, slots: int, description: str
) -> None:
    """The key has so many slots."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO key_limit (key, slots, description) VALUES (%s, %s, %s)"
            " ON CONFLICT (key) DO UPDATE SET slots = excluded.slots,"
            "  description = excluded.description",
            [key, slots, description],
        )


def delete_key_limit(connection: psycopg.Connection[Any], *, key: str) -> None:
    """Nothing is said of the key."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM key_limit WHERE key = %s", [key])
