-- Killed: a task instance whose executor has let go of it without a report takes the next state (a
-- retry is used), and its current attempt, if it is still live, is ended as terminated. One row if the
-- task instance was still in the state that was seen, with this attempt.
-- Parameters: attempt, from_state, state, is_open, retry_after_s (null: none), reason.
-- Walks: primary keys.
WITH t AS (
  UPDATE task_instance i
     SET state = %(state)s, is_open = %(is_open)s,
         next_retry_at = clock_timestamp() + make_interval(secs => %(retry_after_s)s::float8),
         next_method = NULL, next_kwargs = NULL, wait = NULL, ended_at = clock_timestamp()
    FROM attempt p
   WHERE p.id = %(attempt)s AND i.id = p.ti_id AND i.attempt_id = p.id AND i.state = %(from_state)s
     AND (p.is_live OR i.state = 'scheduled')
  RETURNING i.id, i.run_id, i.attempt_id),
x AS (
  UPDATE attempt p
     SET state = 'ended', is_live = false, outcome = 'terminated', outcome_reason = %(reason)s,
         ended_at = clock_timestamp()
    FROM t WHERE p.id = t.attempt_id AND p.is_live
  RETURNING p.id)
SELECT t.run_id FROM t
