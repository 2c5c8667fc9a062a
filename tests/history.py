"""Years of history in minutes: runs, task instances, attempts, events and audit entries, all ended.

Written by statements over ``generate_series``, as the product would have left them: newest last, every
twentieth attempt replaced, every fiftieth task instance failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import psycopg

FLOWS: Final = 40
TASKS: Final = 10  # task instances of a run

_FLOWS: Final = """
INSERT INTO flow (flow_id, shard, is_paused, current_version_id, folder, path, description, owner, tags,
                  created_at, updated_at)
SELECT 'history_' || n, n %% 16, false, NULL, 'elsewhere', 'history.py', '', 'history', '[]',
       clock_timestamp(), clock_timestamp() FROM generate_series(1, %(flows)s) n
"""
_VERSIONS: Final = """
INSERT INTO flow_version (flow_id, number, digest, definition, bundle_id, created_at)
SELECT f.flow_id, 1, v.digest, jsonb_set(v.definition, '{flow_id}', to_jsonb(f.flow_id)), v.bundle_id,
       clock_timestamp()
  FROM flow f, flow_version v WHERE f.folder = 'elsewhere' AND v.id = %(version)s
"""
_CURRENT: Final = """
UPDATE flow SET current_version_id = v.id FROM flow_version v
 WHERE v.flow_id = flow.flow_id AND flow.folder = 'elsewhere'
"""
# A run every two seconds; each takes a minute.
_RUNS: Final = """
INSERT INTO run (flow_id, run_key, shard, run_type, state, is_active, logical_date, run_attempt,
                 version_id, conf, note, actor, state_reason, created_at, queued_at, started_at,
                 ended_at, retry_count)
SELECT f.flow_id, 'history__' || n, f.shard, 'manual',
       CASE WHEN n %% 20 = 0 THEN 'failed' ELSE 'success' END, false, t.at, 1, f.current_version_id,
       '{}', '', 'history', '', t.at, t.at, t.at + interval '1 second', t.at + interval '1 minute', 0
  FROM generate_series(1, %(runs)s) n
  JOIN flow f ON f.flow_id = 'history_' || (1 + n %% %(flows)s),
       LATERAL (SELECT clock_timestamp() - (%(runs)s - n + 60) * interval '2 seconds' AS at) t
 ORDER BY n
"""
_RUN_ATTEMPTS: Final = """
INSERT INTO run_attempt (run_id, number, cause, actor, state, started_at, ended_at)
SELECT id, 1, 'created', 'history', state, started_at, ended_at FROM run WHERE actor = 'history'
 ORDER BY id
"""
_INSTANCES: Final = """
INSERT INTO task_instance (run_id, shard, task_id, map_index, state, is_open, try_number, max_tries,
                           resume_index, dispatch_no, budget_start, infra_losses, pool, pool_slots,
                           queue, priority, attempt_id, ready_at, queued_at, started_at, ended_at)
SELECT r.id, r.shard, 'task_' || n, -1,
       CASE WHEN r.state = 'failed' AND n %% 5 = 0 THEN 'failed' ELSE 'success' END, false, 1, 0, 0, 1,
       0, 0, 'default', 1, 'default', 0,
       (lpad(to_hex((extract(epoch FROM r.started_at) * 1000 + n * 5000)::bigint), 12, '0') || '7'
        || lpad(to_hex(n), 3, '0') || '8000' || lpad(to_hex(r.id), 12, '0'))::uuid,
       t.at, t.at, t.at + interval '1 second', t.at + interval '4 seconds'
  FROM run r, generate_series(1, %(tasks)s) n,
       LATERAL (SELECT r.started_at + n * interval '5 seconds' AS at) t
 WHERE r.actor = 'history'
 ORDER BY r.id, n
"""
# Every twentieth was lost once, and replaced.
_ATTEMPTS: Final = """
INSERT INTO attempt (id, ti_id, run_id, task_id, map_index, kind, shard, try_number, resume_index,
                     dispatch_no, run_attempt, lease_token, fence, queue, pool, pool_slots, state,
                     is_live, outcome, is_accepted, nonce, worker_job_id, hostname, pid, issued_at,
                     published_at, publish_count, started_at, heartbeat_at, ended_at,
                     filter_code, filtered_at, filter_detail, superseded_by)
SELECT a.id, i.id, i.run_id, i.task_id, -1, 'task', i.shard, 1, 0, a.dispatch_no, 1, 1,
       nextval('attempt_fence'), 'default', 'default', 1, 'ended', false,
       CASE WHEN a.is_lost THEN 'lost' ELSE i.state END, NOT a.is_lost, gen_random_uuid(),
       md5((i.id / 100000)::text)::uuid, 'history', 1, i.queued_at, i.queued_at, 1, i.started_at,
       i.ended_at, i.ended_at,
       CASE WHEN a.is_lost THEN 'superseded_by_redispatch' END,
       CASE WHEN a.is_lost THEN i.ended_at END,
       CASE WHEN a.is_lost THEN '{"rule": "dispatch", "token": 1}'::jsonb END,
       CASE WHEN a.is_lost THEN i.attempt_id END
  FROM (SELECT i.* FROM task_instance i JOIN run r ON r.id = i.run_id AND r.actor = 'history'
         ORDER BY i.id) i,
       LATERAL (SELECT (left(i.attempt_id::text, 19) || '9' || right(i.attempt_id::text, 16))::uuid,
                       0, true WHERE i.id %% 20 = 0
                UNION ALL SELECT i.attempt_id, 1, false) a (id, dispatch_no, is_lost)
"""
_EVENTS: Final = """
INSERT INTO executor_event (attempt_id, ti_id, run_id, task_id, map_index, try_number, shard, kind,
                            source, payload, received_at, verdict, verdict_reason, judged_at)
SELECT i.attempt_id, i.id, i.run_id, i.task_id, -1, 1, i.shard, 'process_exit', 'history', '{}',
       i.ended_at, 'applied', 'history', i.ended_at
  FROM task_instance i JOIN run r ON r.id = i.run_id AND r.actor = 'history'
 WHERE i.id %% 10 = 0
 ORDER BY i.id
"""
_AUDIT: Final = """
INSERT INTO audit (at, actor, action, object_kind, object_id, flow_id, reason)
SELECT created_at, 'history', 'trigger', 'run', id, flow_id, '' FROM run WHERE actor = 'history'
 ORDER BY id
"""
_READ: Final = ("run", "run_attempt", "task_instance", "attempt", "executor_event", "audit", "flow")


def write(connection: psycopg.Connection[Any], *, version_id: int, instances: int) -> None:
    """So many task instances have ended; each table's statistics are fresh.

    ``version_id`` is a version of any flow: the flows of the history have its definition. The
    connection commits by itself.
    """
    values = {
        "version": version_id,
        "flows": FLOWS,
        "runs": instances // TASKS,
        "tasks": TASKS,
    }
    parts = (
        *(_FLOWS, _VERSIONS, _CURRENT, _RUNS, _RUN_ATTEMPTS, _INSTANCES),
        *(_ATTEMPTS, _EVENTS, _AUDIT),
    )
    for part in parts:
        with connection.transaction():
            # Of many rows, and not what is measured.
            connection.execute("SET LOCAL statement_timeout = '10min'")
            connection.execute(part, values)
    connection.execute(f"VACUUM (ANALYZE) {', '.join(_READ)}")
