"""Inquiries: workers are asked which attempts they run, and answer, by rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    import psycopg


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """One attempt that a worker has in its hands."""

    attempt_id: UUID
    pid: int  # of the child that has it
    is_alive: bool  # that child is a process
    for_s: float  # seconds since the delivery came
    report_waits: bool  # its user code is over; its report waits for the database


def ask_workers(
    connection: psycopg.Connection[Any],
    *,
    ask_id: UUID,
    asked_by: UUID,
    why: str,
    beat_within_s: float,
    worker_job_ids: Sequence[UUID] | None = None,
) -> int:
    """Each live worker (or each of these that is alive) has a question to answer; how many.

    A worker answers at its next heartbeat.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO inquiry (ask_id, asked_by, why, worker_job_id, hostname, pid, asked_at)"
            " SELECT %(ask)s, %(by)s, %(why)s, j.id, j.hostname, j.pid, clock_timestamp()"
            " FROM job j WHERE j.kind = 'worker' AND j.ended_at IS NULL"
            "  AND j.heartbeat_at > clock_timestamp() - make_interval(secs => %(within)s::float8)"
            "  AND (%(only)s::uuid[] IS NULL OR j.id = ANY(%(only)s::uuid[]))",
            {
                "ask": ask_id,
                "by": asked_by,
                "why": why,
                "within": beat_within_s,
                "only": None if worker_job_ids is None else list(worker_job_ids),
            },
        )
        return cursor.rowcount


def open_inquiries(connection: psycopg.Connection[Any], *, worker_job_id: UUID) -> list[int]:
    """The questions that this worker has not answered. Walks ``inquiry_unanswered``."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT id FROM inquiry WHERE worker_job_id = %s AND answered_at IS NULL",
            [worker_job_id],
        )
        return [row[0] for row in cursor.fetchall()]


def answer_inquiries(
    connection: psycopg.Connection[Any],
    *,
    inquiry_ids: Sequence[int],
    holdings: Sequence[Holding],
) -> None:
    """These questions are answered with what the worker holds; it was looked up after they came."""
    said = [
        {
            "attempt_id": str(one.attempt_id),
            "pid": one.pid,
            "is_alive": one.is_alive,
            "for_s": round(one.for_s, 3),
            "report_waits": one.report_waits,
        }
        for one in holdings
    ]
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE inquiry SET answered_at = clock_timestamp(), holdings = %s"
            " WHERE id = ANY(%s) AND answered_at IS NULL",
            [Jsonb(said), list(inquiry_ids)],
        )
