"""Orphans: what says that an executor has it, and is had by none. Nothing makes them; a restore may.

A task instance is queued, running or restarting exactly while an attempt of it is live, since both
are written together. Where rows say otherwise (a backup that was restored, a hand in the database)
nobody would ever look at them again: the dispatcher waits for the executor, the executor knows of
nothing, and the run never ends.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from psycopg.rows import tuple_row

from scheduler_app.transitions.orphans import close_strays, redispatch_orphans

if TYPE_CHECKING:
    from uuid import UUID

    import psycopg

    from scheduler_app.scheduler.leases import Leases

SOURCE: Final = "scheduler: orphan sweep"
BATCH_MAX: Final = 500

logger = logging.getLogger(__name__)


def heal(connection: psycopg.Connection[Any], *, leases: Leases, terms: dict[int, int]) -> set[int]:
    """Orphaned task instances are scheduled again, stray attempts ended; the runs that moved.

    A live attempt that its worker executes is no orphan, whoever dispatched it: it is adopted as it
    is. Each in a transaction of its own. Raises ``Fenced``.
    """
    return _redispatch(connection, leases, terms) | _close(connection, leases, terms)


def _redispatch(
    connection: psycopg.Connection[Any], leases: Leases, terms: dict[int, int]
) -> set[int]:
    ti_ids = _orphans(connection, list(terms))
    if not ti_ids:
        return set()
    with connection.transaction():
        leases.prove(connection, terms)
        found = redispatch_orphans(connection, ti_ids=ti_ids, source=SOURCE)
    for one in found:
        logger.error(
            "a task was with no executor and is scheduled again",
            extra={
                "task_instance_id": one.ti_id,
                "attempt_id": str(one.attempt_id),
                "task_state": one.state,
                "next_task_state": one.next_state,
            },
        )
    return {one.run_id for one in found}


def _close(connection: psycopg.Connection[Any], leases: Leases, terms: dict[int, int]) -> set[int]:
    strays = _strays(connection, list(terms))
    if not strays:
        return set()
    with connection.transaction():
        leases.prove(connection, terms)
        closed = close_strays(
            connection,
            strays=strays,
            dead_after_s=settings.HEARTBEAT_DEAD_AFTER_S,
            source=SOURCE,
        )
    for attempt_id in closed:
        logger.error(
            "a live attempt that no task waits for was ended", extra={"attempt_id": str(attempt_id)}
        )
    return {run_id for run_id in closed.values() if run_id is not None}


def _orphans(connection: psycopg.Connection[Any], shards: list[int]) -> list[int]:
    """Walks the indexes of active runs and of what is open in them."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT i.id FROM run r JOIN task_instance i ON i.run_id = r.id AND i.is_open"
            " LEFT JOIN attempt p ON p.id = i.attempt_id"
            " WHERE r.shard = ANY(%s) AND r.is_active AND r.filter_code IS NULL"
            "  AND i.state IN ('queued', 'running', 'restarting') AND i.held_by IS NULL"
            "  AND p.is_live IS NOT TRUE ORDER BY i.id LIMIT %s",
            [shards, BATCH_MAX],
        )
        return [row[0] for row in cursor.fetchall()]


def _strays(connection: psycopg.Connection[Any], shards: list[int]) -> dict[UUID, int | None]:
    """Walks the index of live attempts. Attempts of callbacks belong to no task's state."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT p.id, i.id FROM attempt p LEFT JOIN task_instance i ON i.id = p.ti_id"
            " WHERE p.shard = ANY(%s) AND p.is_live AND p.kind = 'task' AND i.held_by IS NULL"
            "  AND (i.id IS NULL OR i.attempt_id IS DISTINCT FROM p.id"
            "   OR i.state NOT IN ('queued', 'running', 'restarting')) ORDER BY p.id LIMIT %s",
            [shards, BATCH_MAX],
        )
        return dict(cursor.fetchall())
