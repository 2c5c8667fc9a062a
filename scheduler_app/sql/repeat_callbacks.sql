-- Repeat callbacks: each running callback whose process or worker is gone is ended and, while it may
-- be begun again, set aside by a new issued attempt of the same call; past that it stays as it ended.
-- The heartbeat is looked at again where one is asked for; a freeze of what it is about holds it.
-- Parameters: arrays of one length: attempt, next_id (new ids); outcome (lost, terminated), reason,
-- dead_after_s (null: its end was witnessed), calls_max, source (null: an event tells it already).
-- Walks: attempt's primary key. One row a callback that ended: next_id null where it was the last.
WITH u AS (
  SELECT * FROM unnest(%(attempt)s::uuid[], %(next_id)s::uuid[]) AS u(id, next_id)),
l AS (
  SELECT p.id, u.next_id, p.dispatch_no < %(calls_max)s AS again
    FROM attempt p JOIN u ON u.id = p.id LEFT JOIN task_instance i ON i.id = p.ti_id
    LEFT JOIN run r ON r.id = p.run_id LEFT JOIN flow f ON f.flow_id = r.flow_id
   WHERE p.kind = 'callback' AND p.state = 'running' AND i.held_by IS NULL
     AND r.frozen_at IS NULL AND f.frozen_at IS NULL
     AND (%(dead_after_s)s::float8 IS NULL
          OR greatest(p.started_at, p.heartbeat_at, in_touch_since())
             < clock_timestamp() - make_interval(secs => %(dead_after_s)s::float8))
   ORDER BY p.id FOR NO KEY UPDATE OF p SKIP LOCKED),
x AS (
  UPDATE attempt p
     SET state = 'ended', is_live = false, outcome = %(outcome)s::text, outcome_reason = %(reason)s::text,
         ended_at = clock_timestamp(),
         filter_code = CASE WHEN l.again THEN 'callback_repeated' END,
         filtered_at = CASE WHEN l.again THEN clock_timestamp() END,
         superseded_by = CASE WHEN l.again THEN l.next_id::text END,
         filter_detail = CASE WHEN l.again THEN jsonb_build_object(
           'rule', 'callback', 'callback', p.callback->>'name', 'on', p.callback->>'on',
           'shard', p.shard, 'token', p.lease_token, 'outcome', %(outcome)s::text,
           'dispatch_no', p.dispatch_no, 'new_dispatch_no', p.dispatch_no + 1) END
    FROM l WHERE p.id = l.id AND p.state = 'running'
  RETURNING p.*, l.again, l.next_id),
n AS (
  INSERT INTO attempt (id, ti_id, run_id, task_id, map_index, kind, shard, try_number, resume_index,
                       dispatch_no, run_attempt, lease_token, fence, queue, pool, pool_slots, state,
                       is_live, is_accepted, publish_count, issued_at, callback, callback_key)
  SELECT x.next_id, x.ti_id, x.run_id, x.task_id, x.map_index, 'callback', x.shard, x.try_number,
         x.resume_index, x.dispatch_no + 1, x.run_attempt, x.lease_token, nextval('attempt_fence'),
         x.queue, x.pool, 0, 'issued', true, false, 0, clock_timestamp(), x.callback, x.callback_key
    FROM x WHERE x.again
  RETURNING id),
e AS (
  INSERT INTO executor_event (attempt_id, ti_id, run_id, task_id, map_index, try_number, shard, kind,
                              source, payload, dedupe_key, received_at, verdict, verdict_code,
                              verdict_reason, judged_at)
  SELECT x.id, x.ti_id, x.run_id, x.task_id, x.map_index, x.try_number, x.shard, 'worker_lost',
         %(source)s::text,
         jsonb_build_object('hostname', x.hostname, 'pid', x.pid, 'heartbeat_at', x.heartbeat_at),
         'lost:' || x.id, clock_timestamp(), 'confirmed', 'worker_lost', %(reason)s::text,
         clock_timestamp()
    FROM x WHERE %(source)s::text IS NOT NULL
  ON CONFLICT (dedupe_key) DO NOTHING
  RETURNING id)
SELECT x.id AS attempt_id, x.ti_id, x.run_id, x.task_id, x.dispatch_no, x.callback,
       CASE WHEN x.again THEN x.next_id END AS next_id
  FROM x WHERE (SELECT count(*) FROM n) >= 0 AND (SELECT count(*) FROM e) >= 0
