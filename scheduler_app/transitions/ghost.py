"""Ghosts: seen, asked to stop, over; what workers report; and the audits of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import class_row, tuple_row
from psycopg.types.json import Jsonb

from scheduler_app.transitions.counters import count

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from uuid import UUID

    import psycopg

    from scheduler_app.rules.ghosts import Sighting

EXECUTIONS_MAX: Final = 1000  # of one inventory
REASON_CHARACTERS_MAX: Final = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An open ghost, as its worker needs to know it."""

    id: int
    kind: str
    subject: str
    policy: str
    is_new: bool
    is_stop_requested: bool


_SEE = """
INSERT INTO ghost AS g (kind, subject, seen_by, attempt_id, current_attempt_id, ti_id, run_id, task_id,
                        map_index, try_number, shard, lease_token, hostname, pid, worker_job_id,
                        detail, first_seen_at, last_seen_at, policy)
VALUES (%(kind)s, %(subject)s, %(seen_by)s, %(attempt_id)s, %(current)s, %(ti_id)s, %(run)s,
        %(task_id)s, %(map_index)s, %(try_number)s, %(shard)s, %(token)s, %(hostname)s, %(pid)s,
        %(worker)s, %(detail)s, clock_timestamp(), clock_timestamp(), %(policy)s)
ON CONFLICT (kind, subject) WHERE ended_at IS NULL
DO UPDATE SET last_seen_at = clock_timestamp(), detail = g.detail || excluded.detail,
              current_attempt_id = coalesce(excluded.current_attempt_id, g.current_attempt_id),
              run_id = coalesce(g.run_id, excluded.run_id),
              task_id = coalesce(g.task_id, excluded.task_id)
RETURNING id, kind, subject, policy, xmax = 0 AS is_new, stop_requested_at IS NOT NULL AS is_stop_requested
"""


def see(
    connection: psycopg.Connection[Any],
    *,
    sightings: Sequence[Sighting],
    seen_by: str,
    policy: str,
) -> list[Seen]:
    """Each sighting has one open row, last seen now; in their order of kind and subject."""
    ordered = sorted(sightings, key=lambda each: (each.kind, each.subject))
    with connection.cursor(row_factory=class_row(Seen)) as cursor:
        seen = []
        for each in ordered:
            cursor.execute(
                _SEE,
                {
                    "kind": each.kind,
                    "subject": each.subject[:250],
                    "seen_by": seen_by,
                    "attempt_id": each.attempt_id,
                    "current": each.current_attempt_id,
                    "ti_id": each.ti_id,
                    "run": each.run,
                    "task_id": each.task_id,
                    "map_index": each.map_index,
                    "try_number": each.try_number,
                    "shard": each.shard,
                    "token": each.lease_token,
                    "hostname": each.hostname,
                    "pid": each.pid,
                    "worker": each.worker_job_id,
                    "detail": Jsonb(each.detail),
                    "policy": policy,
                },
            )
            seen += cursor.fetchall()
    count(connection, "scheduler_ghosts_seen_total", sum(1 for each in seen if each.is_new))
    return seen


def end_ghosts(connection: psycopg.Connection[Any], *, ids: Collection[int], reason: str) -> int:
    """These ghosts are over, for this reason; how many were not yet."""
    if not ids:
        return 0
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE ghost SET ended_at = clock_timestamp(), end_reason = %s"
            " WHERE id = ANY(%s) AND ended_at IS NULL",
            [reason[:REASON_CHARACTERS_MAX], sorted(ids)],
        )
        return cursor.rowcount


def end_ghosts_of_process(
    connection: psycopg.Connection[Any],
    *,
    worker_job_id: UUID,
    executing: Collection[tuple[UUID, int]],
    kinds: Collection[str],
) -> int:
    """Ghosts of this worker whose process it no longer runs are over; how many."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE ghost SET ended_at = clock_timestamp(), end_reason = 'its process ended'"
            " WHERE ended_at IS NULL AND worker_job_id = %s AND kind = ANY(%s)"
            " AND NOT EXISTS (SELECT 1 FROM unnest(%s::uuid[], %s::int[]) e (attempt_id, pid)"
            "  WHERE e.attempt_id = ghost.attempt_id AND e.pid = ghost.pid)",
            [
                worker_job_id,
                sorted(kinds),
                [attempt_id for attempt_id, _ in executing],
                [pid for _, pid in executing],
            ],
        )
        return cursor.rowcount


def request_stop(connection: psycopg.Connection[Any], *, ghost_id: int, actor: str) -> bool:
    """The ghost's worker ends its process at its next heartbeat; false if the ghost is over."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "UPDATE ghost SET stop_requested_at = coalesce(stop_requested_at, clock_timestamp()),"
            " stop_requested_by = coalesce(stop_requested_by, %s)"
            " WHERE id = %s AND ended_at IS NULL RETURNING id",
            [actor, ghost_id],
        )
        return cursor.fetchone() is not None


def store_inventory(
    connection: psycopg.Connection[Any],
    *,
    job_id: UUID,
    hostname: str,
    pid: int,
    executions: Sequence[dict[str, Any]],
) -> None:
    """What the worker executes now, by its own word."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO inventory AS i (job_id, hostname, pid, at, executions)"
            " VALUES (%s, %s, %s, clock_timestamp(), %s)"
            " ON CONFLICT (job_id) DO UPDATE SET at = excluded.at, executions = excluded.executions",
            [job_id, hostname, pid, Jsonb(list(executions[:EXECUTIONS_MAX]))],
        )


def note_audit(
    connection: psycopg.Connection[Any],
    *,
    holder: UUID,
    compared: int,
    numbers: dict[str, Any],
    open_ghosts: dict[str, int],
    duration_ms: int,
    is_complete: bool,
) -> None:
    """The audit is one more of its hour, and the newest."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO ghost_audit AS a (holder, hour, first_at, last_at, audits, compared,"
            "  last_compared, last, open_ghosts, duration_ms, is_complete)"
            " SELECT %(holder)s, date_trunc('hour', t, 'UTC'), t, t, 1, %(compared)s, %(compared)s,"
            "  %(numbers)s, %(open)s, %(duration_ms)s, %(is_complete)s FROM clock_timestamp() t"
            " ON CONFLICT (holder, hour) DO UPDATE SET last_at = excluded.last_at,"
            "  audits = a.audits + 1, compared = a.compared + excluded.compared,"
            "  last_compared = excluded.last_compared, last = excluded.last,"
            "  open_ghosts = excluded.open_ghosts, duration_ms = excluded.duration_ms,"
            "  is_complete = excluded.is_complete",
            {
                "holder": holder,
                "compared": compared,
                "numbers": Jsonb(numbers),
                "open": Jsonb(open_ghosts),
                "duration_ms": duration_ms,
                "is_complete": is_complete,
            },
        )
