"""Clears of several runs: their plans, one a run, and how far they have come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from uuid import UUID

    import psycopg


CARRIED: Final = 0x636C_6561  # class of the advisory locks of those who carry batches on


def keep_batch(
    connection: psycopg.Connection[Any],
    *,
    batch_id: UUID,
    asked: dict[str, Any],
    options: dict[str, Any],
    actor: str,
    valid_s: float,
) -> None:
    """The batch exists, without plans and without a hash, and may be begun for so many seconds.

    Old ones that nobody began are gone, their plans with them.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH old AS (SELECT id FROM clear_batch WHERE begun_at IS NULL"
            "  AND expires_at < clock_timestamp() - interval '1 day' LIMIT 10),"
            " p AS (DELETE FROM clear_plan p USING old WHERE p.batch_id = old.id RETURNING p.id)"
            " DELETE FROM clear_batch b USING old WHERE b.id = old.id"
            "  AND (SELECT count(*) FROM p) >= 0"
        )
        cursor.execute(
            "INSERT INTO clear_batch (id, asked, options, hash, actor, reason, created_at, expires_at)"
            " VALUES (%s, %s, %s, '', %s, '', clock_timestamp(),"
            "  clock_timestamp() + make_interval(secs => %s))",
            [batch_id, Jsonb(asked), Jsonb(options), actor, valid_s],
        )


def seal_batch(connection: psycopg.Connection[Any], *, batch_id: UUID, fingerprint: str) -> None:
    """The batch has all its plans: this is what they stand for."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE clear_batch SET hash = %s WHERE id = %s AND begun_at IS NULL",
            [fingerprint, batch_id],
        )


def begin_batch(
    connection: psycopg.Connection[Any],
    *,
    batch_id: UUID,
    actor: str,
    reason: str,
    note: str | None,
) -> bool:
    """Whether the batch was begun now, by this actor and for this reason; false if it was before."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE clear_batch SET begun_at = clock_timestamp(), actor = %s, reason = %s, note = %s"
            " WHERE id = %s AND begun_at IS NULL",
            [actor, reason, note, batch_id],
        )
        return cursor.rowcount == 1


def read_batch(connection: psycopg.Connection[Any], *, batch_id: UUID) -> dict[str, Any] | None:
    """The batch, or ``None``.

    One dict: id, hash, actor, reason, note, created_at, expires_at, begun_at, ended_at, is_expired,
    automated.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT id, hash, actor, reason, note, created_at, expires_at, begun_at, ended_at,"
            "  expires_at < clock_timestamp() AS is_expired,"
            "  coalesce((asked->>'automated')::boolean, false) AS automated FROM clear_batch WHERE id = %s",
            [batch_id],
        )
        return cursor.fetchone()


def open_parts(connection: psycopg.Connection[Any], *, batch_id: UUID, limit: int) -> list[UUID]:
    """The next plans of the batch that were neither carried out nor refused."""
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT id FROM clear_plan WHERE batch_id = %s AND used_at IS NULL AND refusal IS NULL"
            " ORDER BY id LIMIT %s",
            [batch_id, limit],
        )
        return [row["id"] for row in cursor.fetchall()]


def left_batches(connection: psycopg.Connection[Any], *, idle_s: float) -> list[UUID]:
    """The batches that were begun so many seconds ago and have not ended, oldest first."""
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT id FROM clear_batch WHERE begun_at IS NOT NULL AND ended_at IS NULL"
            " AND begun_at < clock_timestamp() - make_interval(secs => %s) ORDER BY begun_at",
            [idle_s],
        )
        return [row["id"] for row in cursor.fetchall()]


def take_batch(connection: psycopg.Connection[Any], *, batch_id: UUID) -> bool:
    """Whether this connection is the one that carries the batch on, until it leaves it or is closed."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, hashtext(%s))", [CARRIED, str(batch_id)])
        row = cursor.fetchone()
    return row is not None and bool(row[0])


def leave_batch(connection: psycopg.Connection[Any], *, batch_id: UUID) -> None:
    """Another connection may take the batch."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", [CARRIED, str(batch_id)])


def refuse_part(connection: psycopg.Connection[Any], *, plan_id: UUID, why: str) -> None:
    """The plan is not carried out any more, for this reason, unless it was meanwhile."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE clear_plan SET refusal = %s WHERE id = %s AND used_at IS NULL", [why, plan_id]
        )


def end_batch(connection: psycopg.Connection[Any], *, batch_id: UUID) -> None:
    """The batch has ended, if none of its plans is open."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE clear_batch b SET ended_at = clock_timestamp()"
            " WHERE b.id = %s AND b.ended_at IS NULL AND NOT EXISTS (SELECT 1 FROM clear_plan p"
            "  WHERE p.batch_id = b.id AND p.used_at IS NULL AND p.refusal IS NULL)",
            [batch_id],
        )
