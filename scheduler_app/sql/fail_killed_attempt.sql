-- Killed: a task instance whose executor has let go of it without a report takes the next state (a
-- retry is used), and its current attempt, if it is still live, is ended as terminated. One row if the
-- task instance was still in the state that was seen, with this attempt. No retry follows where a person
-- asked the task instance to end; where a hard freeze stopped the attempt, none is used and the task
-- instance is scheduled again.
-- Parameters: attempt, from_state, state, is_open, retry_after_s (null: none), retry_why (jsonb),
-- max_tries (null: as it is; never lowered), reason.
-- Walks: primary keys.
WITH t AS (
  UPDATE task_instance i
     SET state = CASE WHEN i.mark IS NOT NULL THEN i.mark->>'state'
                 WHEN i.stop_requested_at IS NOT NULL AND %(is_open)s THEN 'failed'
                 WHEN i.stop_requested_at IS NULL AND i.frozen_attempt_id IS NOT DISTINCT FROM i.attempt_id
                 THEN 'scheduled'
                 ELSE %(state)s END,
         is_open = i.stop_requested_at IS NULL
                   AND (%(is_open)s OR i.frozen_attempt_id IS NOT DISTINCT FROM i.attempt_id),
         next_retry_at = CASE WHEN i.stop_requested_at IS NULL
                              AND i.frozen_attempt_id IS DISTINCT FROM i.attempt_id
                         THEN clock_timestamp() + make_interval(secs => %(retry_after_s)s::float8) END,
         next_retry_why = CASE WHEN i.stop_requested_at IS NULL
                               AND i.frozen_attempt_id IS DISTINCT FROM i.attempt_id
                          THEN %(retry_why)s::jsonb END,
         max_tries = greatest(i.max_tries, %(max_tries)s::int),
         next_method = CASE WHEN i.stop_requested_at IS NULL
                            AND i.frozen_attempt_id IS NOT DISTINCT FROM i.attempt_id
                       THEN i.next_method END,
         next_kwargs = CASE WHEN i.stop_requested_at IS NULL
                            AND i.frozen_attempt_id IS NOT DISTINCT FROM i.attempt_id
                       THEN i.next_kwargs END,
         wait = NULL, ended_at = clock_timestamp()
    FROM attempt p
   WHERE p.id = %(attempt)s AND i.id = p.ti_id AND i.attempt_id = p.id AND i.state = %(from_state)s
     AND (p.is_live OR i.state = 'scheduled')
  RETURNING i.id, i.run_id, i.attempt_id,
            i.stop_requested_at IS NOT NULL OR i.state = 'scheduled' AS is_asked_to_stop),
x AS (
  UPDATE attempt p
     SET state = 'ended', is_live = false, outcome = 'terminated', outcome_reason = %(reason)s,
         ended_at = clock_timestamp()
    FROM t WHERE p.id = t.attempt_id AND p.is_live
  RETURNING p.id)
SELECT t.run_id, t.is_asked_to_stop FROM t
