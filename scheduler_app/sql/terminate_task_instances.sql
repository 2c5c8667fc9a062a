-- Terminate: each task instance is asked to end. One whose attempt runs stays as it is until that has
-- stopped; every other is failed now, an attempt that nobody claimed with it, and its trigger cancelled.
-- Parameters: ti (array of ids, locked by an earlier statement of the transaction), reason (of each, in
-- words). Walks: primary keys, trigger_unique.
-- The caller holds the run. One row per task instance: ti_id, and is_open while its attempt runs.
WITH t AS (
  UPDATE task_instance i
     SET stop_requested_at = clock_timestamp(), stop_reason = %(reason)s,
         state = CASE WHEN i.state IN ('running', 'restarting') THEN i.state ELSE 'failed' END,
         is_open = i.state IN ('running', 'restarting'),
         ended_at = CASE WHEN i.state IN ('running', 'restarting') THEN i.ended_at
                    ELSE clock_timestamp() END,
         next_retry_at = NULL, next_retry_why = NULL, wait = NULL,
         next_method = CASE WHEN i.state IN ('running', 'restarting') THEN i.next_method END,
         next_kwargs = CASE WHEN i.state IN ('running', 'restarting') THEN i.next_kwargs END
   WHERE i.id = ANY(%(ti)s::bigint[]) AND i.is_open AND i.held_by IS NULL
  RETURNING i.id, i.attempt_id, i.is_open),
x AS (
  UPDATE attempt p
     SET stop_requested_at = clock_timestamp(), stop_reason = %(reason)s,
         state = CASE WHEN t.is_open THEN p.state ELSE 'ended' END,
         is_live = t.is_open,
         outcome = CASE WHEN NOT t.is_open THEN 'terminated' END,
         outcome_reason = CASE WHEN NOT t.is_open THEN %(reason)s END,
         ended_at = CASE WHEN NOT t.is_open THEN clock_timestamp() END
    FROM t WHERE p.id = t.attempt_id AND p.is_live
  RETURNING p.id),
g AS (
  UPDATE trigger g
     SET state = 'cancelled', is_waiting = false, wake_at = NULL, ended_at = clock_timestamp()
    FROM t WHERE g.ti_id = t.id AND NOT t.is_open AND g.is_waiting AND (SELECT count(*) FROM x) >= 0
  RETURNING g.id)
SELECT t.id AS ti_id, t.is_open FROM t WHERE (SELECT count(*) FROM g) >= 0 ORDER BY t.id
