"""Job rows: a process takes part, beats, ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from uuid import UUID

    import psycopg


def start_job(
    connection: psycopg.Connection[Any],
    *,
    job_id: UUID,
    kind: str,
    name: str,
    hostname: str,
    pid: int,
    detail: dict[str, Any],
) -> None:
    """The process has a job row, running, with heartbeat and progress now."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO job (id, kind, name, hostname, pid, state, started_at, heartbeat_at,"
            " progress_at, detail) VALUES (%s, %s, %s, %s, %s, 'running', clock_timestamp(),"
            " clock_timestamp(), clock_timestamp(), %s)",
            [job_id, kind, name, hostname, pid, Jsonb(detail)],
        )


def beat_job(
    connection: psycopg.Connection[Any],
    *,
    job_id: UUID,
    progressed: bool,
    detail: dict[str, Any] | None = None,
) -> bool:
    """The heartbeat is now, and the progress too if the loop got on. Whether a stop is asked for."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "UPDATE job SET heartbeat_at = clock_timestamp(), state = 'running',"
            " progress_at = CASE WHEN %s THEN clock_timestamp() ELSE progress_at END,"
            " detail = coalesce(%s, detail)"
            " WHERE id = %s AND ended_at IS NULL RETURNING stop_requested_at IS NOT NULL",
            [progressed, None if detail is None else Jsonb(detail), job_id],
        )
        row = cursor.fetchone()
        # A row that somebody ended means: stop.
        return row is None or bool(row[0])


def end_job(connection: psycopg.Connection[Any], *, job_id: UUID) -> None:
    """The process ended by itself."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE job SET state = 'ended', ended_at = clock_timestamp()"
            " WHERE id = %s AND ended_at IS NULL",
            [job_id],
        )


def bury_jobs(connection: psycopg.Connection[Any], *, silent_for_s: float) -> int:
    """Jobs that were silent for so long are dead; how many are newly so."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE job SET state = 'dead' WHERE ended_at IS NULL AND state = 'running'"
            " AND heartbeat_at < clock_timestamp() - make_interval(secs => %s::float8)",
            [silent_for_s],
        )
        return cursor.rowcount
