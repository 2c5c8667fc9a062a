-- Hand-back: a worker that shuts down gives a running attempt of its own back: the attempt is ended as
-- lost, the task instance is scheduled again, and no budget is used; or failed, if a person asked it to
-- end.
-- Parameters: attempt, worker (job id), reason. Walks: primary keys. One row if it was handed back.
WITH t AS (
  UPDATE task_instance i
     SET state = CASE WHEN i.stop_requested_at IS NULL THEN 'scheduled'
                 ELSE coalesce(i.mark->>'state', 'failed') END,
         is_open = i.stop_requested_at IS NULL,
         ended_at = CASE WHEN i.stop_requested_at IS NOT NULL THEN clock_timestamp() END
    FROM attempt p
   WHERE p.id = %(attempt)s AND i.id = p.ti_id AND i.attempt_id = p.id AND i.state = 'running'
     AND p.state = 'running' AND p.worker_job_id = %(worker)s
  RETURNING i.id, i.run_id, i.attempt_id)
UPDATE attempt p
   SET state = 'ended', is_live = false, outcome = 'lost', outcome_reason = %(reason)s,
       ended_at = clock_timestamp()
  FROM t WHERE p.id = t.attempt_id
RETURNING t.run_id
