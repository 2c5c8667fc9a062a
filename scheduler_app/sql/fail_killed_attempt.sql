-- Killed: a running attempt whose child process ended without a report, while its worker lives, is
-- ended as terminated; the task instance takes the next state (a retry is used). One row if it moved.
-- Parameters: attempt, state, is_open, retry_after_s (null: none), reason. Walks: primary keys.
WITH t AS (
  UPDATE task_instance i
     SET state = %(state)s, is_open = %(is_open)s,
         next_retry_at = clock_timestamp() + make_interval(secs => %(retry_after_s)s::float8),
         next_method = NULL, next_kwargs = NULL, ended_at = clock_timestamp()
    FROM attempt p
   WHERE p.id = %(attempt)s AND i.id = p.ti_id AND i.attempt_id = p.id AND i.state = 'running'
     AND p.state = 'running'
  RETURNING i.id, i.run_id, i.attempt_id)
UPDATE attempt p
   SET state = 'ended', is_live = false, outcome = 'terminated', outcome_reason = %(reason)s,
       ended_at = clock_timestamp()
  FROM t WHERE p.id = t.attempt_id
RETURNING t.run_id
