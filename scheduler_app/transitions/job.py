"""Job rows: a process takes part, beats, is asked to stop, ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from scheduler_app.transitions.counters import count

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    import psycopg


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAnswer:
    """What the row says to the process that it stands for."""

    stop_reason: str | None  # null: it may go on
    has_twin: bool = False  # the row carries another process's pid, or a nonce that was not named
    nonce: UUID | None = None  # that the row carries, where it was not named
    is_drained: bool = False  # a scheduler: it gives up its shards and takes none
    at: datetime | None = None  # of the heartbeat, by the database's clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """How far a process's wall clock was ahead of the database's, and how far that may be off."""

    ahead_s: float
    within_s: float


def start_job(
    connection: psycopg.Connection[Any],
    *,
    job_id: UUID,
    kind: str,
    name: str,
    hostname: str,
    pid: int,
    detail: dict[str, Any],
    nonce: UUID | None = None,
) -> None:
    """The process has a job row, running, with heartbeat and progress now; the start is counted."""
    with connection.transaction():
        connection.execute(
            "INSERT INTO job (id, kind, name, hostname, pid, state, started_at, heartbeat_at,"
            " progress_at, stop_requested_by, stop_reason, beat_nonce, detail)"
            " VALUES (%s, %s, %s, %s, %s, 'running', clock_timestamp(), clock_timestamp(),"
            " clock_timestamp(), '', '', %s, %s)",
            [job_id, kind, name, hostname, pid, nonce, Jsonb(detail)],
        )
        count(connection, f"{kind}_start_total", 1)


def beat_job(
    connection: psycopg.Connection[Any],
    *,
    job_id: UUID,
    progressed: bool,
    detail: dict[str, Any] | None = None,
    pid: int | None = None,
    before: UUID | None = None,
    nonce: UUID | None = None,
    clock: Clock | None = None,
) -> JobAnswer:
    """The heartbeat is now, and the progress too if the loop got on; what the row says.

    ``pid`` is the process's own, ``before`` the nonce that it left in the row, ``nonce`` the one
    that it leaves now. Whoever finds another pid or nonce there changes nothing. Without them
    nothing is compared. ``clock`` is what the heartbeat before measured.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "UPDATE job SET heartbeat_at = clock_timestamp(), state = 'running',"
            " progress_at = CASE WHEN %(progressed)s THEN clock_timestamp() ELSE progress_at END,"
            " detail = coalesce(%(detail)s, detail), beat_nonce = coalesce(%(nonce)s, beat_nonce),"
            " clock_ahead_s = coalesce(%(ahead_s)s, clock_ahead_s),"
            " clock_within_s = coalesce(%(within_s)s, clock_within_s)"
            " WHERE id = %(job)s AND ended_at IS NULL AND pid = coalesce(%(pid)s, pid)"
            "  AND (%(nonce)s::uuid IS NULL OR beat_nonce = %(before)s)"
            " RETURNING stop_requested_at, stop_reason, drain_requested_at, heartbeat_at",
            {
                "job": job_id,
                "progressed": progressed,
                "detail": None if detail is None else Jsonb(detail),
                "pid": pid,
                "before": before,
                "nonce": nonce,
                "ahead_s": None if clock is None else clock.ahead_s,
                "within_s": None if clock is None else clock.within_s,
            },
        )
        row = cursor.fetchone()
    if row is not None:
        return JobAnswer(
            stop_reason=row["stop_reason"] if row["stop_requested_at"] else None,
            is_drained=row["drain_requested_at"] is not None,
            at=row["heartbeat_at"],
        )
    row = _read(connection, job_id)
    if row is None or row["ended_at"] is not None:
        return _answer(row)
    found = row["beat_nonce"] if row["pid"] == pid else None
    return JobAnswer(stop_reason=None, has_twin=True, nonce=found)


def read_job(connection: psycopg.Connection[Any], *, job_id: UUID) -> JobAnswer:
    """What the row says; nothing is written or compared."""
    return _answer(_read(connection, job_id))


def _read(connection: psycopg.Connection[Any], job_id: UUID) -> dict[str, Any] | None:
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT ended_at, stop_requested_at, stop_reason, pid, beat_nonce, drain_requested_at"
            " FROM job"
            " WHERE id = %s",
            [job_id],
        )
        return cursor.fetchone()


def _answer(row: dict[str, Any] | None) -> JobAnswer:
    if row is None:
        return JobAnswer(stop_reason="its job row is gone")
    if row["ended_at"] is not None:
        return JobAnswer(stop_reason="somebody ended its job row")
    return JobAnswer(
        stop_reason=row["stop_reason"] if row["stop_requested_at"] else None,
        is_drained=row["drain_requested_at"] is not None,
    )


def ask_job_to_stop(
    connection: psycopg.Connection[Any], *, job_id: UUID, actor: str, reason: str
) -> bool:
    """The process reads within a second that it is to stop; whether this call was the first to ask.

    A process that has ended, or was asked before, is left as it is.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE job SET stop_requested_at = clock_timestamp(), stop_requested_by = %s,"
            " stop_reason = %s WHERE id = %s AND ended_at IS NULL AND stop_requested_at IS NULL",
            [actor, reason, job_id],
        )
        return cursor.rowcount == 1


def drain_job(
    connection: psycopg.Connection[Any], *, job_id: UUID, actor: str, reason: str
) -> bool:
    """The scheduler reads within a second that it is drained; whether this call was the first to ask.

    A process that has ended, or is drained already, is left as it is.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE job SET drain_requested_at = clock_timestamp(), drain_requested_by = %s,"
            " drain_reason = %s WHERE id = %s AND ended_at IS NULL AND drain_requested_at IS NULL",
            [actor, reason, job_id],
        )
        return cursor.rowcount == 1


def undrain_job(connection: psycopg.Connection[Any], *, job_id: UUID) -> bool:
    """The scheduler takes its share of the shards again; whether it was drained."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE job SET drain_requested_at = NULL, drain_requested_by = '', drain_reason = ''"
            " WHERE id = %s AND ended_at IS NULL AND drain_requested_at IS NOT NULL",
            [job_id],
        )
        return cursor.rowcount == 1


def end_job(connection: psycopg.Connection[Any], *, job_id: UUID) -> None:
    """The process ended by itself, and the end is counted; once, however often it is told."""
    with connection.transaction(), connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "UPDATE job SET state = 'ended', ended_at = clock_timestamp()"
            " WHERE id = %s AND ended_at IS NULL RETURNING kind",
            [job_id],
        )
        row = cursor.fetchone()
        if row is not None:
            count(connection, f"{row['kind']}_end_total", 1)


def count_beat_failures(connection: psycopg.Connection[Any], *, kind: str, failures: int) -> None:
    """So many heartbeats more failed: told at the first one that reached the database again."""
    count(connection, f"{kind}_heartbeat_failure_total", failures)


def bury_jobs(connection: psycopg.Connection[Any], *, silent_for_s: float) -> int:
    """Jobs that were silent for so long are dead; how many are newly so."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE job SET state = 'dead' WHERE ended_at IS NULL AND state = 'running'"
            " AND heartbeat_at < clock_timestamp() - make_interval(secs => %s::float8)",
            [silent_for_s],
        )
        return cursor.rowcount
