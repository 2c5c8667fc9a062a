"""What is usual for each task: kept from confirmed exits, a batch at a time."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import dict_row, tuple_row
from psycopg.types.json import Jsonb

from scheduler_app.rules import task_stats

if TYPE_CHECKING:
    import psycopg

BATCH_MAX: Final = 2000  # events
# Ids are given before their rows are committed; an event that is so young waits for its neighbours.
SETTLED_AFTER_S: Final = 10.0
CURSOR: Final = 1

# The executions that ended well since the cursor, with the time that they ran and waited.
_NEW = """
SELECT e.id AS event_id, r.flow_id, p.task_id,
       extract(epoch FROM p.ended_at - p.started_at)::float8
         - frozen_seconds(r.flow_id, r.id, p.ti_id, p.shard, p.started_at, p.ended_at) AS ran_s,
       extract(epoch FROM p.started_at - p.issued_at)::float8
         - frozen_seconds(r.flow_id, r.id, p.ti_id, p.shard, p.issued_at, p.started_at) AS queued_s
  FROM executor_event e
  JOIN attempt p ON p.id = e.attempt_id AND p.is_accepted AND p.outcome = 'success'
   AND p.kind = 'task' AND p.filter_code IS NULL
  JOIN run r ON r.id = p.run_id
 WHERE e.id > %s AND e.id <= %s AND e.kind = 'exit_success' AND e.verdict = 'confirmed'
"""


def learn(connection: psycopg.Connection[Any], *, settled_after_s: float = SETTLED_AFTER_S) -> int:
    """Durations of the next accepted successes are counted, each once; how many.

    One transaction; whoever holds the cursor counts, another finds nothing to do.
    """
    with connection.transaction(), connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "INSERT INTO task_stats_cursor (id, event_id) VALUES (%s, 0) ON CONFLICT DO NOTHING",
            [CURSOR],
        )
        cursor.execute(
            "SELECT event_id FROM task_stats_cursor WHERE id = %s FOR UPDATE SKIP LOCKED", [CURSOR]
        )
        row = cursor.fetchone()
        if row is None:
            return 0
        seen = row["event_id"]
        until = _until(connection, seen, settled_after_s)
        if until is None:
            return 0
        cursor.execute(_NEW, [seen, until])
        found = cursor.fetchall()
        durations: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        for each in found:
            durations[each["flow_id"], each["task_id"]].append(
                (max(0.0, each["ran_s"]), max(0.0, each["queued_s"] or 0.0))
            )
        for (flow_id, task_id), several in sorted(durations.items()):
            _add(connection, flow_id, task_id, several)
        cursor.execute("UPDATE task_stats_cursor SET event_id = %s WHERE id = %s", [until, CURSOR])
        return len(found)


def _until(connection: psycopg.Connection[Any], seen: int, settled_after_s: float) -> int | None:
    """The last event of the next batch: those after it may still have younger neighbours."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT max(id) FROM (SELECT id, received_at FROM executor_event WHERE id > %s"
            "  ORDER BY id LIMIT %s) e"
            " WHERE received_at < clock_timestamp() - make_interval(secs => %s::float8)",
            [seen, BATCH_MAX, settled_after_s],
        )
        row = cursor.fetchone()
        return row[0] if row else None


def _add(
    connection: psycopg.Connection[Any],
    flow_id: str,
    task_id: str,
    several: list[tuple[float, float]],
) -> None:
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT successes, run_buckets, queue_buckets, run_max_s FROM task_stats"
            " WHERE flow_id = %s AND task_id = %s FOR UPDATE",
            [flow_id, task_id],
        )
        old = cursor.fetchone() or {
            "successes": 0,
            "run_buckets": {},
            "queue_buckets": {},
            "run_max_s": 0.0,
        }
        ran = task_stats.added(old["run_buckets"], [each[0] for each in several])
        queued = task_stats.added(old["queue_buckets"], [each[1] for each in several])
        cursor.execute(
            "INSERT INTO task_stats (flow_id, task_id, successes, run_buckets, queue_buckets,"
            "  run_p50_s, run_p99_s, queue_p99_s, run_max_s, updated_at)"
            " VALUES (%(flow)s, %(task)s, %(successes)s, %(ran)s, %(queued)s, %(p50)s, %(p99)s,"
            "  %(queue_p99)s, %(max)s, clock_timestamp())"
            " ON CONFLICT (flow_id, task_id) DO UPDATE SET successes = excluded.successes,"
            "  run_buckets = excluded.run_buckets, queue_buckets = excluded.queue_buckets,"
            "  run_p50_s = excluded.run_p50_s, run_p99_s = excluded.run_p99_s,"
            "  queue_p99_s = excluded.queue_p99_s, run_max_s = excluded.run_max_s,"
            "  updated_at = excluded.updated_at",
            {
                "flow": flow_id,
                "task": task_id,
                "successes": old["successes"] + len(several),
                "ran": Jsonb(ran),
                "queued": Jsonb(queued),
                "p50": task_stats.percentile(ran, 0.5),
                "p99": task_stats.percentile(ran, 0.99),
                "queue_p99": task_stats.percentile(queued, 0.99),
                "max": max(old["run_max_s"] or 0.0, *(each[0] for each in several)),
            },
        )
