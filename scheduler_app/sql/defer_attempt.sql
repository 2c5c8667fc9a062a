-- Defer: the attempt is ended as deferred, its task instance waits, and so does the trigger that will
-- wake it; or no row comes back (already done, or no longer current) and nothing changed. Where a
-- person asked the task instance to end, it is failed instead (or what the person said that it is), the attempt terminated, without a trigger.
-- Parameters: ti, attempt, nonce, next_method, next_kwargs (jsonb), kind, classpath, kwargs (jsonb),
-- event_key, due_at (timestamptz), due_after_s, timeout_s (each null: none), detail (for people).
-- Walks: primary keys. No indexed column of the task instance is written, so its update stays HOT.
-- The attempt stays current until its resume is dispatched.
WITH n AS (SELECT clock_timestamp() AS now),
t AS (
  UPDATE task_instance
     SET state = CASE WHEN stop_requested_at IS NULL THEN 'deferred'
                 ELSE coalesce(mark->>'state', 'failed') END,
         is_open = stop_requested_at IS NULL,
         next_method = CASE WHEN stop_requested_at IS NULL THEN %(next_method)s END,
         next_kwargs = CASE WHEN stop_requested_at IS NULL THEN %(next_kwargs)s::jsonb END,
         wait = CASE WHEN stop_requested_at IS NULL
                THEN jsonb_build_object('code', 'deferred', 'detail', %(detail)s::text,
                                        'since', clock_timestamp()) END,
         ended_at = CASE WHEN stop_requested_at IS NOT NULL THEN clock_timestamp() END
   WHERE id = %(ti)s AND attempt_id = %(attempt)s AND claim_nonce = %(nonce)s AND state = 'running'
  RETURNING id, run_id, shard, try_number, resume_index, is_open, stop_reason),
x AS (
  UPDATE attempt p
     SET state = 'ended', is_live = false, is_accepted = true,
         outcome = CASE WHEN t.is_open THEN 'deferred' ELSE 'terminated' END,
         outcome_reason = CASE WHEN t.is_open THEN %(detail)s::text ELSE t.stop_reason END,
         ended_at = clock_timestamp()
    FROM t WHERE p.id = %(attempt)s
  RETURNING p.id),
g AS (
  INSERT INTO trigger (ti_id, run_id, shard, try_number, resume_index, kind, classpath, kwargs,
                       event_key, state, is_waiting, due_at, timeout_at, wake_at, block_count,
                       created_at)
  SELECT t.id, t.run_id, t.shard, t.try_number, t.resume_index, %(kind)s::text, %(classpath)s,
         %(kwargs)s::jsonb, %(event_key)s::text, 'waiting', true, m.due_at, m.timeout_at,
         -- An event may have come before: looked at as soon as this is committed.
         CASE WHEN %(kind)s::text = 'event' THEN n.now ELSE least(m.due_at, m.timeout_at) END,
         0, n.now
    FROM t, n,
         LATERAL (SELECT coalesce(%(due_at)s::timestamptz,
                                  n.now + make_interval(secs => %(due_after_s)s::float8)) AS due_at,
                         n.now + make_interval(secs => %(timeout_s)s::float8) AS timeout_at) m
   WHERE t.is_open
  RETURNING id)
SELECT t.run_id, g.id AS trigger_id FROM t CROSS JOIN x LEFT JOIN g ON true
