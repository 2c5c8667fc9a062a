-- Strays: each live attempt for which no task instance waits, and which nobody executes (never claimed,
-- or without a heartbeat), is ended; its task stays as it is, and a confirmed event tells it. A stray
-- that beats is stopped by its worker first.
-- Parameters: attempt (array of ids), ti (array: their task instances that the caller has locked in a
-- statement before), dead_after_s, source. Walks: primary keys.
WITH o AS (
  SELECT p.id, p.state, i.state AS task_state, i.attempt_id AS current_attempt_id
    FROM attempt p LEFT JOIN task_instance i ON i.id = p.ti_id
   WHERE p.id = ANY(%(attempt)s::uuid[]) AND p.is_live AND p.kind = 'task' AND i.held_by IS NULL
     AND (i.id IS NULL OR i.id = ANY(%(ti)s::bigint[]))
     AND (i.id IS NULL OR i.attempt_id IS DISTINCT FROM p.id
          OR i.state NOT IN ('queued', 'running', 'restarting'))
     AND (p.state = 'issued'
          OR greatest(p.started_at, p.heartbeat_at, in_touch_since())
             < clock_timestamp() - make_interval(secs => %(dead_after_s)s::float8))),
x AS (
  UPDATE attempt p
     SET state = 'ended', is_live = false, ended_at = clock_timestamp(),
         outcome = CASE o.state WHEN 'issued' THEN 'terminated' ELSE 'lost' END,
         outcome_reason = format('No task waits for it: its task is %%s, and goes on with attempt %%s.',
                                 coalesce(o.task_state, 'unknown'),
                                 coalesce(nullif(o.current_attempt_id, p.id)::text, 'none'))
    FROM o WHERE p.id = o.id AND p.is_live
  RETURNING p.id, p.ti_id, p.run_id, p.task_id, p.map_index, p.try_number, p.shard, p.hostname, p.pid,
            p.outcome, p.outcome_reason, o.state, o.task_state, o.current_attempt_id),
e AS (
  INSERT INTO executor_event (attempt_id, ti_id, run_id, task_id, map_index, try_number, shard, kind,
                              source, payload, received_at, verdict, verdict_code, verdict_reason,
                              verdict_detail, judged_at)
  SELECT x.id, x.ti_id, x.run_id, x.task_id, x.map_index, x.try_number, x.shard, 'orphaned', %(source)s,
         jsonb_build_object('hostname', x.hostname, 'pid', x.pid), clock_timestamp(), 'confirmed',
         'stray', format('It is %%s. %%s', x.outcome, x.outcome_reason),
         jsonb_build_object('rule', 'strays', 'attempt_state', x.state, 'task_state', x.task_state,
                            'attempt_id', x.id, 'current_attempt_id', x.current_attempt_id),
         clock_timestamp()
    FROM x
  RETURNING id)
SELECT x.id AS attempt_id, x.run_id FROM x
