-- Mark by hand: each task instance that is still as it was seen is what a person says. One whose attempt
-- runs stays as it is until that, which is asked to stop, has ended; then it takes that state, whatever its
-- attempt reports. Every other takes it now; an attempt that nobody claimed is ended with it, and the trigger
-- that it waited for is cancelled.
-- Parameters: arrays of one length: ti (locked by an earlier statement of the transaction), seen_state,
-- state (success, failed, skipped); mark (jsonb: id, actor, reason, callbacks), why (in words).
-- Walks: primary keys, trigger_unique.
-- The caller holds the run. One row per task instance that moved: its id, and is_open while its attempt runs.
WITH u AS (
  SELECT * FROM unnest(%(ti)s::bigint[], %(seen_state)s::text[], %(state)s::text[])
    AS u(ti, seen_state, state)),
t AS (
  UPDATE task_instance i
     SET mark = %(mark)s::jsonb || jsonb_build_object('state', u.state),
         stop_requested_at = clock_timestamp(), stop_reason = %(why)s,
         state = CASE WHEN i.state IN ('running', 'restarting') THEN i.state ELSE u.state END,
         is_open = i.state IN ('running', 'restarting'),
         ended_at = CASE WHEN i.state IN ('running', 'restarting') THEN i.ended_at
                    ELSE clock_timestamp() END,
         next_retry_at = NULL, next_retry_why = NULL, wait = NULL,
         next_method = CASE WHEN i.state IN ('running', 'restarting') THEN i.next_method END,
         next_kwargs = CASE WHEN i.state IN ('running', 'restarting') THEN i.next_kwargs END
    FROM u
   WHERE i.id = u.ti AND i.held_by IS NULL AND i.state = u.seen_state AND i.state <> 'removed'
  RETURNING i.id, i.attempt_id, i.is_open),
x AS (
  UPDATE attempt p
     SET stop_requested_at = clock_timestamp(), stop_reason = %(why)s,
         state = CASE WHEN t.is_open THEN p.state ELSE 'ended' END,
         is_live = t.is_open,
         outcome = CASE WHEN NOT t.is_open THEN 'terminated' END,
         outcome_reason = CASE WHEN NOT t.is_open THEN %(why)s END,
         ended_at = CASE WHEN NOT t.is_open THEN clock_timestamp() END
    FROM t WHERE p.id = t.attempt_id AND p.is_live
  RETURNING p.id),
g AS (
  UPDATE trigger g
     SET state = 'cancelled', is_waiting = false, wake_at = NULL, ended_at = clock_timestamp()
    FROM t WHERE g.ti_id = t.id AND NOT t.is_open AND g.is_waiting AND (SELECT count(*) FROM x) >= 0
  RETURNING g.id)
SELECT t.id AS ti_id, t.is_open FROM t WHERE (SELECT count(*) FROM g) >= 0 ORDER BY t.id
