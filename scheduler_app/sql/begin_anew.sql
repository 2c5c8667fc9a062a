-- Begin anew: a task instance that was cleared while it ran is none again, with a whole budget of
-- retries from this try on, or failed if a person asked it to end meanwhile; its attempt, which has
-- stopped, is ended as terminated. One row if it moved.
-- Parameters: attempt, reason. Walks: primary keys.
-- A budget is what lies between its start and its end, whatever the definition says by now.
WITH t AS (
  UPDATE task_instance i
     SET state = CASE WHEN i.stop_requested_at IS NULL THEN 'none'
                 ELSE coalesce(i.mark->>'state', 'failed') END,
         is_open = i.stop_requested_at IS NULL, max_tries = i.try_number + greatest(0, i.max_tries - i.budget_start),
         budget_start = i.try_number, infra_losses = 0, next_method = NULL, next_kwargs = NULL,
         wait = NULL, next_retry_at = NULL, next_retry_why = NULL, queued_at = NULL, started_at = NULL,
         ended_at = CASE WHEN i.stop_requested_at IS NOT NULL THEN clock_timestamp() END
    FROM attempt p
   WHERE p.id = %(attempt)s AND i.id = p.ti_id AND i.attempt_id = p.id AND i.state = 'restarting'
  RETURNING i.id, i.run_id, i.attempt_id),
x AS (
  UPDATE attempt p
     SET state = 'ended', is_live = false, outcome = 'terminated', outcome_reason = %(reason)s,
         ended_at = clock_timestamp()
    FROM t WHERE p.id = t.attempt_id AND p.is_live
  RETURNING p.id)
SELECT t.run_id FROM t
