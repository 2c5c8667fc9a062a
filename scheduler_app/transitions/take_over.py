"""Take-overs: the record of what a new leader found, and of what it decided about each attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.rows import class_row, tuple_row

from scheduler_app.transitions.counters import count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    import psycopg

# What the acquisition said is read from its own event: it holds after a crash in between, too.
_BEGIN = """
WITH term AS (
  SELECT m.shard, m.token, e.at AS acquired_at, e.detail
    FROM unnest(%(shard)s::int[], %(token)s::bigint[]) AS m(shard, token)
    LEFT JOIN lease_event e ON e.shard = m.shard AND e.token = m.token AND e.kind = 'acquired'),
earlier AS (
  UPDATE take_over t
     SET ended_at = clock_timestamp(),
         counts = CASE WHEN t.counts ? 'open'
           THEN t.counts - 'open' || jsonb_build_object('passed_on', t.counts->'open')
           ELSE t.counts END
    FROM term WHERE t.shard = term.shard AND t.ended_at IS NULL RETURNING t.id, term.token),
passed_on AS (
  UPDATE take_over_item i
     SET decision = 'passed_on', decided_at = clock_timestamp(),
         reason = ltrim(i.reason || format(' The next leader, token %%s, goes on with it.',
                                           earlier.token))
    FROM earlier WHERE i.take_over_id = earlier.id AND i.decision = 'open'),
t AS (
  INSERT INTO take_over (shard, holder, old_token, new_token, cause, old_holder, old_renewed_at,
                         old_expires_at, acquired_at, ask_id, started_at, counts)
  SELECT shard, %(holder)s, nullif(token - 1, 0), token, coalesce(detail->>'cause', 'first'),
         coalesce((detail->>'from')::uuid, (
           SELECT e.holder FROM lease_event e
            WHERE e.shard = term.shard AND e.token = term.token - 1 AND e.kind = 'released'
            ORDER BY e.id DESC LIMIT 1)),
         (detail->>'old_renewed_at')::timestamptz,
         (detail->>'old_expires_at')::timestamptz, acquired_at, %(ask)s, clock_timestamp(), '{}'
    FROM term
  RETURNING id, shard),
i AS (
  INSERT INTO take_over_item (take_over_id, attempt_id, found, decision, reason, worker_job_id,
                              hostname, pid)
  SELECT t.id, p.id,
         CASE WHEN p.state = 'running' THEN 'running' WHEN p.published_at IS NULL THEN 'unpublished'
              ELSE 'published' END,
         'open', '', p.worker_job_id, p.hostname, p.pid
    FROM t JOIN attempt p ON p.shard = t.shard AND p.is_live AND p.kind = 'task'
  RETURNING id)
SELECT (SELECT count(*) FROM t)::int, (SELECT count(*) FROM i)::int
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenItem:
    """One item that is not decided yet, with what is known of its attempt now."""

    item_id: int
    take_over_id: int
    found: str
    reason: str
    attempt_id: UUID
    state: str
    outcome: str | None
    outcome_reason: str | None
    is_accepted: bool
    is_published: bool
    hostname: str | None
    pid: int | None
    is_worker_alive: bool
    asked_at: datetime
    answered_at: datetime | None
    has_it: bool | None
    heartbeat_at: datetime | None


_OPEN_ITEMS = """
SELECT i.id AS item_id, i.take_over_id, i.found, i.reason, p.id AS attempt_id, p.state, p.outcome,
       p.outcome_reason, p.is_accepted, p.published_at IS NOT NULL AS is_published,
       coalesce(p.hostname, i.hostname) AS hostname, coalesce(p.pid, i.pid) AS pid,
       coalesce(j.ended_at IS NULL AND j.heartbeat_at
                > clock_timestamp() - make_interval(secs => %(dead_after_s)s::float8), false)
         AS is_worker_alive,
       t.started_at AS asked_at, q.answered_at,
       CASE WHEN q.answered_at IS NOT NULL THEN
         q.holdings @> jsonb_build_array(jsonb_build_object('attempt_id', p.id::text)) END AS has_it,
       p.heartbeat_at
  FROM take_over t JOIN take_over_item i ON i.take_over_id = t.id AND i.decision = 'open'
  JOIN attempt p ON p.id = i.attempt_id
  LEFT JOIN job j ON j.id = p.worker_job_id
  LEFT JOIN inquiry q ON q.ask_id = t.ask_id AND q.worker_job_id = p.worker_job_id
 WHERE t.shard = ANY(%(shard)s) AND t.ended_at IS NULL
 ORDER BY i.id LIMIT %(limit)s
"""

# Executions that workers told of and that no live record acknowledges. An attempt of another shard
# is that shard's; one that nobody issued belongs to the newest of the take-overs that asked.
_UNACKNOWLEDGED = """
WITH open AS (
  SELECT t.id, t.shard, t.new_token, t.ask_id, max(t.id) OVER (PARTITION BY t.ask_id) AS last
    FROM take_over t WHERE t.shard = ANY(%(shard)s) AND t.ended_at IS NULL),
told AS (
  SELECT DISTINCT ON (h.attempt_id, q.worker_job_id)
         h.attempt_id, h.pid, q.hostname, q.worker_job_id, q.answered_at, q.ask_id
    FROM (SELECT DISTINCT ask_id FROM open) o JOIN inquiry q ON q.ask_id = o.ask_id,
         jsonb_to_recordset(q.holdings) AS h(attempt_id uuid, pid int, report_waits boolean)
   WHERE q.answered_at IS NOT NULL AND NOT coalesce(h.report_waits, false))
SELECT o.id AS take_over_id, o.shard, o.new_token, told.attempt_id, told.hostname, told.pid,
       told.worker_job_id, told.answered_at, p.id IS NOT NULL AS is_known, p.state, p.outcome,
       p.ended_at, p.filter_code, p.superseded_by
  FROM told LEFT JOIN attempt p ON p.id = told.attempt_id
  JOIN open o ON o.ask_id = told.ask_id AND (o.shard = p.shard OR p.id IS NULL AND o.id = o.last)
 WHERE (p.id IS NULL OR p.state = 'ended' OR p.filter_code IS NOT NULL)
   -- One that ended just before the answer was on its way out.
   AND (p.ended_at IS NULL
        OR p.ended_at < told.answered_at - make_interval(secs => %(grace_s)s::float8))
   AND NOT EXISTS (SELECT 1 FROM take_over_item i
                    WHERE i.take_over_id = o.id AND i.attempt_id = told.attempt_id)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unacknowledged:
    """An execution that a worker told of, and what the records say."""

    take_over_id: int
    shard: int
    new_token: int
    attempt_id: UUID
    hostname: str
    pid: int | None
    worker_job_id: UUID
    answered_at: datetime
    is_known: bool
    state: str | None
    outcome: str | None
    ended_at: datetime | None
    filter_code: str | None
    superseded_by: str | None


def begin_take_overs(
    connection: psycopg.Connection[Any], *, holder: UUID, terms: Mapping[int, int], ask_id: UUID
) -> int:
    """Each term has a take-over with an open item per live attempt; how many items.

    Earlier take-overs of the shards that were not through are ended, and pass their items on.
    """
    shards = sorted(terms)
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            _BEGIN,
            {
                "shard": shards,
                "token": [terms[shard] for shard in shards],
                "holder": holder,
                "ask": ask_id,
            },
        )
        row = cursor.fetchone()
    assert row is not None, "a SELECT without FROM gives one row"
    begun, items = row
    count(connection, "scheduler_take_overs_total", begun)
    return int(items)


def open_items(
    connection: psycopg.Connection[Any],
    *,
    shards: Sequence[int],
    dead_after_s: float,
    limit: int,
) -> list[OpenItem]:
    """Items of these shards that are not decided yet, oldest first."""
    with connection.cursor(row_factory=class_row(OpenItem)) as cursor:
        cursor.execute(
            _OPEN_ITEMS, {"shard": list(shards), "dead_after_s": dead_after_s, "limit": limit}
        )
        return cursor.fetchall()


def unacknowledged(
    connection: psycopg.Connection[Any], *, shards: Sequence[int], grace_s: float
) -> list[Unacknowledged]:
    """Executions that the workers asked by open take-overs run, and that no live record knows."""
    with connection.cursor(row_factory=class_row(Unacknowledged)) as cursor:
        cursor.execute(_UNACKNOWLEDGED, {"shard": list(shards), "grace_s": grace_s})
        return cursor.fetchall()


def decide_items(
    connection: psycopg.Connection[Any], *, decided: Sequence[tuple[int, str, str]]
) -> None:
    """Open items have these decisions and reasons: (item id, decision, reason)."""
    if not decided:
        return
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "UPDATE take_over_item i SET decision = u.decision, reason = u.reason,"
            " decided_at = CASE WHEN u.decision <> 'open' THEN clock_timestamp() END"
            " FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS u(id, decision, reason)"
            " WHERE i.id = u.id AND i.decision = 'open' RETURNING i.decision",
            [
                [item_id for item_id, _, _ in decided],
                [decision for _, decision, _ in decided],
                [reason for _, _, reason in decided],
            ],
        )
        adopted = sum(1 for (decision,) in cursor.fetchall() if decision == "adopted")
    count(connection, "scheduler_orphaned_tasks_adopted_total", adopted)


def recount(connection: psycopg.Connection[Any], *, shards: Sequence[int]) -> None:
    """The counts of open take-overs of these shards are those of their items."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE take_over t SET counts = n.counts"
            " FROM (SELECT o.id, coalesce((SELECT jsonb_object_agg(c.decision, c.n) FROM ("
            "   SELECT i.decision, count(*) AS n FROM take_over_item i WHERE i.take_over_id = o.id"
            "    GROUP BY 1) c), '{}') AS counts"
            "  FROM take_over o WHERE o.shard = ANY(%s) AND o.ended_at IS NULL) n"
            " WHERE t.id = n.id AND t.counts <> n.counts",
            [list(shards)],
        )


def record_found_ghost(
    connection: psycopg.Connection[Any],
    *,
    take_over_id: int,
    attempt_id: UUID,
    is_known: bool,
    worker_job_id: UUID,
    hostname: str,
    pid: int | None,
    reason: str,
) -> None:
    """The take-over has an item for an execution that no live record acknowledges."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO take_over_item (take_over_id, attempt_id, found, decision, reason,"
            " worker_job_id, hostname, pid, decided_at)"
            " VALUES (%s, %s, %s, 'ghost', %s, %s, %s, %s, clock_timestamp())"
            " ON CONFLICT (take_over_id, attempt_id) DO NOTHING",
            [
                take_over_id,
                attempt_id,
                "ended" if is_known else "unknown",
                reason,
                worker_job_id,
                hostname,
                pid,
            ],
        )


def end_take_overs(
    connection: psycopg.Connection[Any], *, shards: Sequence[int], answer_within_s: float
) -> list[int]:
    """Take-overs of these shards that are through have ended; their shards.

    Through: every item is decided, and every question is answered or older than ``answer_within_s``.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "UPDATE take_over t SET ended_at = clock_timestamp()"
            " WHERE t.shard = ANY(%(shard)s) AND t.ended_at IS NULL"
            "  AND NOT EXISTS (SELECT 1 FROM take_over_item i"
            "   WHERE i.take_over_id = t.id AND i.decision = 'open')"
            "  AND (t.started_at < clock_timestamp() - make_interval(secs => %(within)s::float8)"
            "   OR NOT EXISTS (SELECT 1 FROM inquiry q"
            "    WHERE q.ask_id = t.ask_id AND q.answered_at IS NULL))"
            " RETURNING t.shard",
            {"shard": list(shards), "within": answer_within_s},
        )
        return [row[0] for row in cursor.fetchall()]
