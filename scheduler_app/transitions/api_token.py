"""Tokens of the API: stored as digests, with an end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg.rows import tuple_row

if TYPE_CHECKING:
    from datetime import datetime

    import psycopg


def store_token(
    connection: psycopg.Connection[Any],
    *,
    user_id: int,
    digest: str,
    stamp: str,
    lifetime_s: float,
) -> datetime:
    """The digest is good until the time that is returned; the user's expired ones are gone."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "DELETE FROM api_token WHERE user_id = %s AND expires_at < clock_timestamp()", [user_id]
        )
        cursor.execute(
            "INSERT INTO api_token (user_id, digest, stamp, created_at, expires_at) VALUES (%s, %s, %s,"
            " clock_timestamp(), clock_timestamp() + make_interval(secs => %s::float8))"
            " RETURNING expires_at",
            [user_id, digest, stamp, lifetime_s],
        )
        row = cursor.fetchone()
        assert row is not None, "an insert returns its row"
        expires_at: datetime = row[0]
        return expires_at


def delete_tokens(connection: psycopg.Connection[Any], *, token_ids: list[int]) -> None:
    """These tokens open nothing any more."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM api_token WHERE id = ANY(%s)", [token_ids])
