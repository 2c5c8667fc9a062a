"""Incidents: conditions that a person must know of; one open row per kind and subject."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg


def raise_incident(
    connection: psycopg.Connection[Any], *, kind: str, subject: str, message: str
) -> None:
    """An open incident of this kind and subject exists, with the newest message."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO incident (kind, subject, message, raised_at)"
            " VALUES (%s, %s, %s, clock_timestamp())"
            " ON CONFLICT (kind, subject) WHERE resolved_at IS NULL"
            " DO UPDATE SET message = excluded.message",
            [kind, subject, message],
        )


def resolve_incident(connection: psycopg.Connection[Any], *, kind: str, subject: str) -> None:
    """No incident of this kind and subject is open."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE incident SET resolved_at = clock_timestamp()"
            " WHERE kind = %s AND subject = %s AND resolved_at IS NULL",
            [kind, subject],
        )


def resolve_old_incidents(
    connection: psycopg.Connection[Any], *, kind: str, older_than_s: float
) -> None:
    """No incident of this kind is open that was raised longer ago: for what has no other end."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE incident SET resolved_at = clock_timestamp()"
            " WHERE kind = %s AND resolved_at IS NULL"
            " AND raised_at < clock_timestamp() - make_interval(secs => %s::float8)",
            [kind, older_than_s],
        )
