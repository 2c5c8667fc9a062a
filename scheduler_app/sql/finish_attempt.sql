-- Finish: the attempt is ended with its outcome and the task instance has its next state, or no row
-- comes back (already done, or no longer current) and nothing changed. Where a person asked the task
-- instance to end, it ends: what would keep it open makes it failed; where a person said what it is, it
-- is that, whatever it reports. Where a hard freeze stopped the
-- attempt, no retry is used: the task instance is scheduled again, and the report is no result.
-- Parameters: ti, attempt, nonce, state, is_open, retry_after_s (null: no next retry), retry_why (jsonb),
-- max_tries (null: as it is; never lowered), outcome, reason, result (jsonb), error (jsonb).
-- Walks: primary keys. May issue callbacks as it moves.
WITH t AS (
  UPDATE task_instance
     SET state = CASE WHEN mark IS NOT NULL THEN mark->>'state'
                 WHEN stop_requested_at IS NOT NULL AND %(is_open)s THEN 'failed'
                 WHEN %(outcome)s::text = 'terminated' AND stop_requested_at IS NULL
                      AND frozen_attempt_id IS NOT DISTINCT FROM attempt_id THEN 'scheduled'
                 ELSE %(state)s END,
         is_open = stop_requested_at IS NULL AND (%(is_open)s
                   OR %(outcome)s::text = 'terminated'
                      AND frozen_attempt_id IS NOT DISTINCT FROM attempt_id),
         next_retry_at = CASE WHEN stop_requested_at IS NULL
                         THEN clock_timestamp() + make_interval(secs => %(retry_after_s)s::float8) END,
         next_retry_why = CASE WHEN stop_requested_at IS NULL THEN %(retry_why)s::jsonb END,
         max_tries = greatest(max_tries, %(max_tries)s::int),
         next_method = CASE WHEN %(outcome)s::text = 'terminated' AND stop_requested_at IS NULL
                             AND frozen_attempt_id IS NOT DISTINCT FROM attempt_id
                       THEN next_method END,
         next_kwargs = CASE WHEN %(outcome)s::text = 'terminated' AND stop_requested_at IS NULL
                             AND frozen_attempt_id IS NOT DISTINCT FROM attempt_id
                       THEN next_kwargs END,
         wait = NULL,
         ended_at = clock_timestamp()
   WHERE id = %(ti)s AND attempt_id = %(attempt)s AND claim_nonce = %(nonce)s AND state = 'running'
  RETURNING id, run_id, state = 'scheduled' AS is_given_back, stop_requested_at IS NOT NULL
            AND (mark IS NOT NULL OR %(is_open)s OR %(state)s::text = 'failed') AS is_cut_off),
x AS (
  UPDATE attempt p
     SET state = 'ended', is_live = false, is_accepted = NOT t.is_given_back,
         outcome = CASE WHEN t.is_cut_off AND %(outcome)s::text = 'rescheduled' THEN 'terminated'
                   ELSE %(outcome)s END,
         outcome_reason = %(reason)s, result = %(result)s::jsonb, error = %(error)s::jsonb,
         ended_at = clock_timestamp()
    FROM t WHERE p.id = %(attempt)s
  -- Of what a person asked for, no callback is due.
  RETURNING CASE WHEN NOT t.is_cut_off THEN p.id END AS id)
/* callbacks */
SELECT t.run_id FROM t, x
