-- Finish: the attempt is ended with its outcome and the task instance has its next state, or no row
-- comes back (already done, or no longer current) and nothing changed.
-- Parameters: ti, attempt, nonce, state, is_open, retry_after_s (null: no next retry), outcome,
-- reason, result (jsonb), error (jsonb). Walks: primary keys. May issue callbacks as it moves.
WITH t AS (
  UPDATE task_instance
     SET state = %(state)s, is_open = %(is_open)s,
         next_retry_at = clock_timestamp() + make_interval(secs => %(retry_after_s)s::float8),
         next_method = NULL, next_kwargs = NULL, wait = NULL,
         ended_at = clock_timestamp()
   WHERE id = %(ti)s AND attempt_id = %(attempt)s AND claim_nonce = %(nonce)s AND state = 'running'
  RETURNING id, run_id),
x AS (
  UPDATE attempt p
     SET state = 'ended', is_live = false, is_accepted = true, outcome = %(outcome)s,
         outcome_reason = %(reason)s, result = %(result)s::jsonb, error = %(error)s::jsonb,
         ended_at = clock_timestamp()
    FROM t WHERE p.id = %(attempt)s
  RETURNING p.id)
/* callbacks */
SELECT t.run_id FROM t, x
