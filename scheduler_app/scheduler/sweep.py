"""Sweeps: what a lost hint, message, worker or process left behind is found and healed.

Each is idempotent, walks the partial index over live attempts, and writes by compare-and-set in a
short transaction of its own that starts with the lease proof.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from psycopg.rows import class_row, dict_row, tuple_row

from scheduler_app.processes import failpoints
from scheduler_app.scheduler import callbacks, silent
from scheduler_app.transitions.attempt import Message, lose, note_republished
from scheduler_app.transitions.counters import count
from scheduler_app.transitions.incident import raise_incident, resolve_incident

if TYPE_CHECKING:
    from collections.abc import Container
    from uuid import UUID

    import psycopg

    from scheduler_app.executors.interface import Executor
    from scheduler_app.scheduler.leases import Leases

BATCH_MAX: Final = 500
UNPUBLISHED_AFTER_S: Final = 1.0  # its publisher is given this long after the commit
SERVED_WITHIN_S: Final = 10.0  # a later delivery of the queue claimed so long ago: this one is lost
BREAKER_MIN: Final = 5  # stale attempts
BREAKER_SHARE: Final = 0.3  # of the running ones
BREAKER_WORKERS_MIN: Final = 2  # a single silent worker is a lost worker, not an outage

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Found:
    """What the sweeps of one round found."""

    moved_runs: set[int] = field(default_factory=set)
    messages: list[Message] = field(default_factory=list)  # to be published (first time)
    live_attempts: int = 0


def active_runs(connection: psycopg.Connection[Any], *, shards: list[int]) -> set[int]:
    """Ids of the active, current runs of these shards: replaces lost doorbells."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT id FROM run WHERE shard = ANY(%s) AND is_active AND filter_code IS NULL",
            [shards],
        )
        return {row[0] for row in cursor.fetchall()}


def unpublished(
    connection: psycopg.Connection[Any], *, terms: dict[int, int], older_than_s: float
) -> list[Message]:
    """Messages of issued attempts that nobody noted as published: a scheduler died in between."""
    with connection.cursor(row_factory=class_row(Message)) as cursor:
        cursor.execute(
            "SELECT p.id AS attempt_id, p.ti_id, p.run_id, p.fence, p.lease_token, p.queue"
            " FROM attempt p JOIN task_instance i ON i.id = p.ti_id AND i.attempt_id = p.id"
            " WHERE p.shard = ANY(%s) AND p.is_live AND p.state = 'issued'"
            " AND p.published_at IS NULL AND i.held_by IS NULL"
            " AND p.issued_at < clock_timestamp() - make_interval(secs => %s::float8)"
            " ORDER BY p.issued_at LIMIT %s",
            [list(terms), older_than_s, BATCH_MAX],
        )
        return cursor.fetchall()


def republish_unclaimed(
    connection: psycopg.Connection[Any],
    *,
    executor: Executor,
    identity: str,
    leases: Leases,
    terms: dict[int, int],
    served: Container[str],
) -> int:
    """Attempts whose message seems lost are with the carrier again: the same attempts; how many.

    A message counts as lost when its queue is empty, or when a delivery published later to the
    same queue was claimed. After ``REPUBLISH_MAX`` rounds, or where the queue is not one of
    ``served``, there is an incident, never a failed task.
    """
    rows = _unclaimed(connection, terms) + callbacks.unclaimed(connection, terms)
    if not rows:
        return 0
    depths = {queue: executor.queue_depth(queue) for queue in {row["queue"] for row in rows}}
    again: list[Message] = []
    for row in rows:
        queue = row["queue"]
        told = f"published {row['publish_count']} times and never claimed"
        if row["publish_count"] > settings.REPUBLISH_MAX:
            _nobody_listens(connection, queue, row["attempt_id"], told)
        if depths[queue] == 0 or row["overtaken"]:
            again.append(
                Message(
                    attempt_id=row["attempt_id"],
                    ti_id=row["ti_id"],
                    run_id=row["run_id"],
                    fence=row["fence"],
                    lease_token=row["lease_token"],
                    queue=queue,
                )
            )
        elif queue not in served:
            _nobody_listens(connection, queue, row["attempt_id"], told)
    if not again:
        return 0
    with connection.transaction():
        leases.prove(connection, terms)
        note_republished(connection, attempt_ids=[m.attempt_id for m in again])
        failpoints.reach("republish.before_commit")
    failpoints.reach("republish.after_commit")
    taken = executor.publish(again, identity=identity)
    logger.info("published again", extra={"attempts": len(taken)})
    return len(taken)


def watch_for_takers(
    connection: psycopg.Connection[Any], *, terms: dict[int, int], served: Container[str]
) -> None:
    """An incident is open for each queue whose messages no carrier took.

    A broker keeps a message for a queue that nobody serves; sockets do not, and the attempt stays
    unpublished until a worker comes. Where workers serve the queue, it is the carrier that is away.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT DISTINCT ON (p.queue) p.queue, p.id"
            " FROM attempt p LEFT JOIN task_instance i ON i.id = p.ti_id"
            " WHERE p.shard = ANY(%s) AND p.is_live AND p.state = 'issued'"
            "  AND p.published_at IS NULL AND i.held_by IS NULL"
            "  AND (i.attempt_id = p.id OR p.kind = 'callback')"
            "  AND p.issued_at < clock_timestamp() - make_interval(secs => %s::float8)"
            " ORDER BY p.queue, p.issued_at",
            [list(terms), settings.QUEUED_TIMEOUT_S],
        )
        rows = cursor.fetchall()
    for queue, attempt_id in rows:
        if queue not in served:
            _nobody_listens(connection, queue, attempt_id, "taken by no worker")
        else:
            raise_incident(
                connection,
                kind="carrier_away",
                subject=queue,
                message=(
                    f"The broker takes no messages for queue {queue!r}: attempt {attempt_id} and "
                    "others are issued and wait for it. Nothing is lost; they go out when it is "
                    "back. Look at the broker, and at the network between it and the schedulers."
                ),
            )


def resolve_queue_incidents(connection: psycopg.Connection[Any]) -> None:
    """Incidents of queues in which nothing overdue waits any more are resolved."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT n.subject FROM incident n WHERE n.kind = 'nobody_listens'"
            " AND n.resolved_at IS NULL AND NOT EXISTS ("
            "  SELECT 1 FROM attempt p WHERE p.is_live AND p.state = 'issued' AND p.queue = n.subject"
            "  AND p.issued_at < clock_timestamp() - make_interval(secs => %s::float8))",
            [settings.QUEUED_TIMEOUT_S],
        )
        for (queue,) in cursor.fetchall():
            resolve_incident(connection, kind="nobody_listens", subject=queue)
        cursor.execute(
            "SELECT n.subject FROM incident n WHERE n.kind = 'carrier_away'"
            " AND n.resolved_at IS NULL AND NOT EXISTS ("
            "  SELECT 1 FROM attempt p WHERE p.is_live AND p.state = 'issued' AND p.queue = n.subject"
            "  AND p.published_at IS NULL"
            "  AND p.issued_at < clock_timestamp() - make_interval(secs => %s::float8))",
            [settings.QUEUED_TIMEOUT_S],
        )
        for (queue,) in cursor.fetchall():
            resolve_incident(connection, kind="carrier_away", subject=queue)


def watch_for_triggerers(connection: psycopg.Connection[Any], *, dead_after_s: float) -> None:
    """An incident is open exactly while tasks wait for triggers and no triggerer's loop gets on."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT 1 FROM trigger WHERE is_waiting) AND NOT EXISTS ("
            " SELECT 1 FROM job WHERE kind = 'triggerer' AND ended_at IS NULL"
            "  AND progress_at > clock_timestamp() - make_interval(secs => %s::float8))",
            [dead_after_s],
        )
        row = cursor.fetchone()
    if row is not None and row[0]:
        raise_incident(
            connection,
            kind="no_triggerer",
            subject="",
            message=(
                "Tasks wait for their triggers, and no triggerer gets on: nothing that they wait "
                "for is noticed. Start one with `manage.py triggerer`, or look at its log."
            ),
        )
    else:
        resolve_incident(connection, kind="no_triggerer", subject="")


def watch_for_leaderless(connection: psycopg.Connection[Any]) -> None:
    """An incident is open exactly while runs wait in shards that have no lease: nobody may decide."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT coalesce(array_agg(shard ORDER BY shard), '{}') FROM ("
            " SELECT shard FROM run WHERE is_active EXCEPT SELECT shard FROM lease) s"
        )
        row = cursor.fetchone()
    shards = row[0] if row is not None else []
    if shards:
        raise_incident(
            connection,
            kind="shard_without_lease",
            subject="",
            message=(
                f"Runs wait in shards without a lease: {', '.join(map(str, shards))}. Nothing decides"
                " for them. Stop the schedulers and run `manage.py leases reshard` with the present"
                " number of shards, which brings the rows back."
            ),
        )
    else:
        resolve_incident(connection, kind="shard_without_lease", subject="")


def lose_silent(
    connection: psycopg.Connection[Any], *, leases: Leases, terms: dict[int, int]
) -> set[int]:
    """Attempts whose heartbeat died are lost; the runs that moved.

    Where only the attempt is silent and its worker beats, the worker is asked first.
    A breaker: when several workers fall silent together, that is an outage of something shared;
    nothing is killed and an incident is raised, until their beats return or a long time passed.
    """
    dead_after_s = settings.HEARTBEAT_DEAD_AFTER_S
    rows = _running(connection, terms, dead_after_s)
    rows += callbacks.running(connection, terms)
    stale = [row for row in rows if row["is_stale"]]
    stale = silent.absent(connection, asked_by=leases.holder, stale=stale)
    if not stale:
        resolve_incident(connection, kind="mass_heartbeat_loss", subject="workers")
        return set()
    workers = {row["worker_job_id"] for row in stale if not row["is_long_silent"]}
    if (
        len(stale) >= BREAKER_MIN
        and len(stale) > BREAKER_SHARE * len(rows)
        and len(workers) >= BREAKER_WORKERS_MIN
    ):
        raise_incident(
            connection,
            kind="mass_heartbeat_loss",
            subject="workers",
            message=(
                f"{len(stale)} of {len(rows)} running attempts on {len(workers)} workers fell silent "
                "together: nothing is declared lost. Check the database and the network; if the "
                "workers are really gone, they are given up after three times the dead time."
            ),
        )
        stale = [row for row in stale if row["is_long_silent"]]
        if not stale:
            return set()
    with connection.transaction():
        leases.prove(connection, terms)
        of_tasks = [row["attempt_id"] for row in stale if not row["is_callback"]]
        lost = lose(
            connection,
            attempt_ids=of_tasks,
            dead_after_s=dead_after_s,
            budget=settings.INFRASTRUCTURE_BUDGET,
            source="scheduler: heartbeat sweep",
            callbacks=callbacks.after_loss(connection, of_tasks),
        )
        callbacks.repeat_silent(
            connection,
            [row["attempt_id"] for row in stale if row["is_callback"]],
            dead_after_s=dead_after_s,
        )
        count(connection, "scheduler_attempts_lost_total", len(lost))
        count(connection, "scheduler_executor_events_processed_total", len(lost))
        failpoints.reach("lose.before_commit")
    failpoints.reach("lose.after_commit")
    for row in lost:
        logger.warning(
            "an attempt was lost",
            extra={"attempt_id": str(row["attempt_id"]), "task_state": row["state"]},
        )
    return {row["run_id"] for row in lost}


def _unclaimed(connection: psycopg.Connection[Any], terms: dict[int, int]) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            # Ids grow with the time of issue: what was issued later lies behind in the primary key.
            "SELECT p.id AS attempt_id, p.ti_id, p.run_id, p.fence, p.lease_token, p.queue,"
            "  p.publish_count,"
            "  EXISTS (SELECT 1 FROM attempt q WHERE q.id > p.id AND q.queue = p.queue"
            "   AND q.published_at > p.published_at"
            "   AND q.started_at < clock_timestamp() - make_interval(secs => %(served_s)s::float8))"
            "   AS overtaken"
            " FROM attempt p JOIN task_instance i ON i.id = p.ti_id AND i.attempt_id = p.id"
            " WHERE p.shard = ANY(%(shard)s) AND p.is_live AND p.state = 'issued'"
            "  AND i.held_by IS NULL"
            "  AND p.published_at < clock_timestamp() - make_interval(secs => %(timeout_s)s::float8)"
            " ORDER BY p.published_at LIMIT %(limit)s",
            {
                "shard": list(terms),
                "served_s": SERVED_WITHIN_S,
                "timeout_s": settings.QUEUED_TIMEOUT_S,
                "limit": BATCH_MAX,
            },
        )
        return cursor.fetchall()


def _running(
    connection: psycopg.Connection[Any], terms: dict[int, int], dead_after_s: float
) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT p.id AS attempt_id, p.worker_job_id, s.seen AS seen_at, false AS is_callback,"
            "  s.seen < clock_timestamp() - make_interval(secs => %(dead_s)s::float8) AS is_stale,"
            "  s.seen < clock_timestamp() - make_interval(secs => 3 * %(dead_s)s::float8)"
            "   AS is_long_silent"
            " FROM attempt p JOIN task_instance i ON i.id = p.ti_id AND i.attempt_id = p.id,"
            "  LATERAL (SELECT greatest(p.started_at, p.heartbeat_at, in_touch_since())"
            "   AS seen) s"
            " WHERE p.shard = ANY(%(shard)s) AND p.is_live AND p.state = 'running'"
            # Of one whose end was witnessed the verdict on that event decides.
            "  AND NOT EXISTS (SELECT 1 FROM executor_event e"
            "   WHERE e.attempt_id = p.id AND e.verdict = 'pending')"
            "  AND i.held_by IS NULL ORDER BY p.started_at LIMIT %(limit)s",
            {"shard": list(terms), "dead_s": dead_after_s, "limit": 20 * BATCH_MAX},
        )
        return cursor.fetchall()


def _nobody_listens(
    connection: psycopg.Connection[Any], queue: str, attempt_id: UUID, what: str
) -> None:
    raise_incident(
        connection,
        kind="nobody_listens",
        subject=queue,
        message=(
            f"Nobody listens on queue {queue!r}: attempt {attempt_id} was {what}. Start a worker "
            f"with --queues {queue}."
        ),
    )
