-- Clear: each task instance that is still as it was seen begins anew. One that runs is restarting until
-- its attempt, which is asked to stop, has ended; every other is none with a whole budget of retries from
-- its present try on, without a current attempt: that is set aside with the clear that did it, ended if
-- nobody had claimed it, and the trigger that it waited for is cancelled. The try never falls.
-- Parameters: arrays of one length: ti, seen_state, seen_attempt (null: none), retries, pool, pool_slots,
-- queue, priority (as the version says that will execute); code (of the attempts set aside), cleared
-- (jsonb: clear, actor, reason, run_attempt, new_run_attempt), why (in words, for what is stopped).
-- Walks: primary keys, trigger_unique.
-- The caller holds the run and locked the task instances in an earlier statement. One row per task
-- instance that moved: its id and state.
-- Where it runs, the budget is what begin_anew.sql makes of it: max_tries less budget_start.
WITH u AS (
  SELECT * FROM unnest(%(ti)s::bigint[], %(seen_state)s::text[], %(seen_attempt)s::uuid[],
                       %(retries)s::int[], %(pool)s::text[], %(pool_slots)s::int[],
                       %(queue)s::text[], %(priority)s::int[])
    AS u(ti, seen_state, seen_attempt, retries, pool, pool_slots, queue, priority)),
t AS (
  UPDATE task_instance i
     SET state = CASE WHEN i.state = 'running' THEN 'restarting' ELSE 'none' END,
         is_open = true,
         attempt_id = CASE WHEN i.state = 'running' THEN i.attempt_id END,
         claim_nonce = CASE WHEN i.state = 'running' THEN i.claim_nonce END,
         max_tries = CASE WHEN i.state = 'running' THEN i.budget_start ELSE i.try_number END + u.retries,
         budget_start = CASE WHEN i.state = 'running' THEN i.budget_start ELSE i.try_number END,
         infra_losses = CASE WHEN i.state = 'running' THEN i.infra_losses ELSE 0 END,
         next_method = CASE WHEN i.state = 'running' THEN i.next_method END,
         next_kwargs = CASE WHEN i.state = 'running' THEN i.next_kwargs END,
         queued_at = CASE WHEN i.state = 'running' THEN i.queued_at END,
         started_at = CASE WHEN i.state = 'running' THEN i.started_at END,
         pool = u.pool, pool_slots = u.pool_slots, queue = u.queue, priority = u.priority,
         ready_at = NULL, ended_at = NULL, next_retry_at = NULL, next_retry_why = NULL, wait = NULL,
         stop_requested_at = NULL, stop_reason = NULL, mark = NULL
    FROM u
   WHERE i.id = u.ti AND i.held_by IS NULL AND i.state = u.seen_state
     AND i.attempt_id IS NOT DISTINCT FROM u.seen_attempt
  RETURNING i.id, i.state, u.seen_attempt),
x AS (
  UPDATE attempt p
     SET cleared = %(cleared)s::jsonb,
         filter_code = CASE WHEN t.state = 'none' THEN %(code)s::text END,
         filtered_at = CASE WHEN t.state = 'none' THEN clock_timestamp() END,
         filter_detail = CASE WHEN t.state = 'none' THEN
           %(cleared)s::jsonb || jsonb_build_object(
             'rule', 'clear', 'try_number', p.try_number, 'resume_index', p.resume_index,
             'dispatch_no', p.dispatch_no, 'outcome', p.outcome, 'run_attempt', p.run_attempt) END,
         stop_requested_at = CASE WHEN p.state = 'running' THEN clock_timestamp()
                             ELSE p.stop_requested_at END,
         stop_reason = CASE WHEN p.state = 'running' THEN %(why)s ELSE p.stop_reason END,
         state = CASE p.state WHEN 'issued' THEN 'ended' ELSE p.state END,
         is_live = p.state = 'running',
         outcome = CASE p.state WHEN 'issued' THEN 'terminated' ELSE p.outcome END,
         outcome_reason = CASE p.state WHEN 'issued' THEN %(why)s ELSE p.outcome_reason END,
         ended_at = CASE p.state WHEN 'issued' THEN clock_timestamp() ELSE p.ended_at END
    FROM t WHERE p.id = t.seen_attempt AND p.filter_code IS NULL
  RETURNING p.id),
g AS (
  UPDATE trigger g
     SET state = 'cancelled', is_waiting = false, wake_at = NULL, ended_at = clock_timestamp()
    FROM t WHERE g.ti_id = t.id AND t.state = 'none' AND g.is_waiting
     AND (SELECT count(*) FROM x) >= 0
  RETURNING g.id)
SELECT t.id, t.state FROM t WHERE (SELECT count(*) FROM g) >= 0 ORDER BY t.id
