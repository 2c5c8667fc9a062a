-- Lost: each running attempt whose heartbeat is still stale is ended as lost; its task instance goes
-- back to scheduled while the infrastructure budget lasts, else it is failed; one that was cleared while
-- it ran begins anew, with a whole budget of retries; one that a person asked to end is failed. A
-- confirmed event tells it.
-- Task instances are locked first, in id order, skipping locked ones (they move by themselves).
-- Parameters: attempt (array of ids), dead_after_s, budget, token (array of lease tokens by shard is
-- proved by the caller), source. Walks: primary keys.
WITH seen AS (
  SELECT i.id FROM task_instance i JOIN attempt p ON p.ti_id = i.id
   WHERE p.id = ANY(%(attempt)s::uuid[]) AND i.attempt_id = p.id AND i.held_by IS NULL
   ORDER BY i.id FOR NO KEY UPDATE OF i SKIP LOCKED),
t AS (
  UPDATE task_instance i
     SET state = CASE WHEN i.stop_requested_at IS NOT NULL THEN coalesce(i.mark->>'state', 'failed')
                      WHEN i.state = 'restarting' THEN 'none'
                      WHEN i.infra_losses < %(budget)s THEN 'scheduled' ELSE 'failed' END,
         is_open = i.stop_requested_at IS NULL
                   AND (i.state = 'restarting' OR i.infra_losses < %(budget)s),
         infra_losses = CASE i.state WHEN 'restarting' THEN 0 ELSE i.infra_losses + 1 END,
         max_tries = CASE i.state WHEN 'restarting'
                     THEN i.try_number + greatest(0, i.max_tries - i.budget_start)
                     ELSE i.max_tries END,
         budget_start = CASE i.state WHEN 'restarting' THEN i.try_number ELSE i.budget_start END,
         next_method = CASE WHEN i.state = 'running' AND i.infra_losses < %(budget)s
                            AND i.stop_requested_at IS NULL THEN i.next_method END,
         next_kwargs = CASE WHEN i.state = 'running' AND i.infra_losses < %(budget)s
                            AND i.stop_requested_at IS NULL THEN i.next_kwargs END,
         ended_at = CASE WHEN i.stop_requested_at IS NOT NULL
                           OR (i.state = 'running' AND i.infra_losses >= %(budget)s)
                    THEN clock_timestamp() END
    FROM seen, attempt p
   WHERE i.id = seen.id AND p.id = i.attempt_id AND i.state IN ('running', 'restarting')
     AND p.state = 'running'
     AND greatest(p.started_at, p.heartbeat_at, in_touch_since())
         < clock_timestamp() - make_interval(secs => %(dead_after_s)s::float8)
  RETURNING i.id, i.attempt_id, i.run_id, i.task_id, i.map_index, i.try_number, i.shard, i.state,
            i.infra_losses, i.stop_requested_at IS NOT NULL AS is_asked_to_stop),
x AS (
  UPDATE attempt p
     SET state = 'ended', is_live = false, outcome = 'lost', ended_at = clock_timestamp(),
         outcome_reason = format('no heartbeat since %%s; loss %%s of %%s',
           to_char(greatest(p.started_at, p.heartbeat_at) AT TIME ZONE 'UTC', 'HH24:MI:SS "UTC"'),
           t.infra_losses, %(budget)s::int)
    FROM t WHERE p.id = t.attempt_id
  RETURNING p.id, p.heartbeat_at, p.started_at, p.hostname, p.pid),
e AS (
  INSERT INTO executor_event (attempt_id, ti_id, run_id, task_id, map_index, try_number, shard, kind,
                              source, payload, dedupe_key, received_at, verdict, verdict_code,
                              verdict_reason, judged_at)
  SELECT t.attempt_id, t.id, t.run_id, t.task_id, t.map_index, t.try_number, t.shard, 'worker_lost',
         %(source)s,
         jsonb_build_object('hostname', x.hostname, 'pid', x.pid, 'heartbeat_at', x.heartbeat_at,
                            'infra_losses', t.infra_losses),
         'lost:' || t.attempt_id, clock_timestamp(), 'confirmed', 'worker_lost',
         format('No heartbeat for more than %%s s from %%s:%%s; the attempt is lost, the task is %%s.',
                %(dead_after_s)s::float8, coalesce(x.hostname, 'unknown'), coalesce(x.pid, 0), t.state),
         clock_timestamp()
    FROM t JOIN x ON x.id = t.attempt_id
  ON CONFLICT (dedupe_key) DO NOTHING
  RETURNING id)
SELECT t.id AS ti_id, t.attempt_id, t.run_id, t.state, t.infra_losses, t.is_asked_to_stop,
       (SELECT count(*) FROM e) AS events
  FROM t
