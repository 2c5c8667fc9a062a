"""Pools: rows that dispatchers lock by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg.rows import dict_row

if TYPE_CHECKING:
    import psycopg


def lock_pool(connection: psycopg.Connection[Any], *, name: str) -> dict[str, Any] | None:
    """Slots, description and ``include_deferred``, locked as dispatch locks it; none if there is none."""
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT slots, description, include_deferred FROM pool WHERE name = %s FOR UPDATE",
            [name],
        )
        return cursor.fetchone()


def create_pool(
    connection: psycopg.Connection[Any],
    *,
    name: str,
    slots: int,
    description: str,
    include_deferred: bool,
) -> bool:
    """The pool is there; false, and nothing changed, if it was there before."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pool (name, slots, description, include_deferred) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT (name) DO NOTHING",
            [name, slots, description, include_deferred],
        )
        return cursor.rowcount == 1


def change_pool(
    connection: psycopg.Connection[Any],
    *,
    name: str,
    slots: int,
    description: str,
    include_deferred: bool,
) -> None:
    """The locked pool is as said."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pool SET slots = %s, description = %s, include_deferred = %s WHERE name = %s",
            [slots, description, include_deferred, name],
        )


def delete_pool(connection: psycopg.Connection[Any], *, name: str) -> None:
    """The locked pool is gone."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM pool WHERE name = %s", [name])
