"""Records that run or wait for longer than their task's own history explains: flagged, never killed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from psycopg.rows import dict_row, tuple_row

from scheduler_app.rules import ghosts, task_stats
from scheduler_app.rules.definition import FlowDefinition, TaskDefinition, from_dict
from scheduler_app.rules.states import AttemptState

if TYPE_CHECKING:
    from collections.abc import Collection

    import psycopg

SUSPECTS_MAX: Final = 500  # looked at in one go, the oldest first

# Nothing is suspect before the floor, so only older ones are read. Walks the index of live attempts.
_OLD = """
SELECT p.id AS attempt_id, p.state, p.ti_id, p.task_id, p.map_index, p.try_number, p.shard,
       p.lease_token, p.queue, p.hostname, p.pid, p.worker_job_id, r.id AS run, r.run_key AS run_id,
       r.flow_id, r.version_id, coalesce(s.successes, 0) AS successes, s.run_p99_s, s.queue_p99_s,
       extract(epoch FROM clock_timestamp() - b.began)::float8 - frozen_seconds(
         r.flow_id, r.id, p.ti_id, p.shard, b.began, clock_timestamp()) AS age_s
  FROM attempt p
  JOIN task_instance i ON i.id = p.ti_id AND i.attempt_id = p.id AND i.held_by IS NULL
  JOIN run r ON r.id = p.run_id
  LEFT JOIN task_stats s ON s.flow_id = r.flow_id AND s.task_id = p.task_id,
  LATERAL (SELECT CASE WHEN p.state = 'running' THEN p.started_at ELSE p.issued_at END AS began) b
 WHERE p.shard = ANY(%(shards)s) AND p.is_live AND p.kind = 'task'
   AND b.began < clock_timestamp() - make_interval(secs => %(floor_s)s::float8)
 ORDER BY b.began LIMIT %(max)s
"""


def suspects(
    connection: psycopg.Connection[Any], *, shards: Collection[int]
) -> list[ghosts.Sighting]:
    """A sighting for each live attempt that takes too long."""
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            _OLD,
            {
                "shards": list(shards),
                "floor_s": settings.SUSPECT_FLOOR_S,
                "max": SUSPECTS_MAX,
            },
        )
        rows = cursor.fetchall()
    definitions = _definitions(connection, {row["version_id"] for row in rows})
    limits = task_stats.Limits(
        factor=settings.SUSPECT_FACTOR,
        floor_s=settings.SUSPECT_FLOOR_S,
        estimate_s=settings.SUSPECT_ESTIMATE_S,
        successes_min=settings.SUSPECT_SUCCESSES_MIN,
    )
    found = []
    for row in rows:
        task = _task(definitions.get(row["version_id"]), row["task_id"])
        allowed = task_stats.threshold(
            p99_s=row["run_p99_s"] if _runs(row) else row["queue_p99_s"],
            successes=row["successes"],
            factor=(task and task.suspect_factor) or limits.factor,
            limits=limits,
            own_s=task.suspect_after_s if task and _runs(row) else None,
        )
        if row["age_s"] > allowed.seconds:
            found.append(_sighting(row, allowed))
    return found


def _runs(row: dict[str, Any]) -> bool:
    return bool(row["state"] == AttemptState.RUNNING)


def _task(definition: FlowDefinition | None, task_id: str) -> TaskDefinition | None:
    try:
        return None if definition is None else definition.task(task_id)
    except KeyError:
        return None


def _definitions(
    connection: psycopg.Connection[Any], version_ids: Collection[int]
) -> dict[int, FlowDefinition]:
    if not version_ids:
        return {}
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT id, definition FROM flow_version WHERE id = ANY(%s)", [list(version_ids)]
        )
        return {row[0]: from_dict(row[1]) for row in cursor.fetchall()}


def _sighting(row: dict[str, Any], allowed: task_stats.Threshold) -> ghosts.Sighting:
    return ghosts.Sighting(
        kind=ghosts.SUSPECT_RUNNING if _runs(row) else ghosts.SUSPECT_QUEUED,
        subject=f"attempt {row['attempt_id']}",
        attempt_id=row["attempt_id"],
        ti_id=row["ti_id"],
        run=row["run"],
        task_id=row["task_id"],
        map_index=row["map_index"],
        try_number=row["try_number"],
        shard=row["shard"],
        lease_token=row["lease_token"],
        hostname=row["hostname"],
        pid=row["pid"],
        worker_job_id=row["worker_job_id"],
        detail={
            "attempt_id": str(row["attempt_id"]),
            "flow_id": row["flow_id"],
            "run_id": row["run_id"],
            "task_id": row["task_id"],
            "queue": row["queue"],
            "age_s": round(row["age_s"], 1),
            "threshold_s": round(allowed.seconds, 1),
            "threshold_words": allowed.words,
            "successes": row["successes"],
            "shard": row["shard"],
            "token": row["lease_token"],
            "rule": "task_stats.threshold",
        },
    )
