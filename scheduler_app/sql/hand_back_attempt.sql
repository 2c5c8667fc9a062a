-- Hand-back: a worker that shuts down gives a running attempt of its own back: the attempt is ended as
-- lost, the task instance is scheduled again, and no budget is used.
-- Parameters: attempt, worker (job id), reason. Walks: primary keys. One row if it was handed back.
WITH t AS (
  UPDATE task_instance i SET state = 'scheduled'
    FROM attempt p
   WHERE p.id = %(attempt)s AND i.id = p.ti_id AND i.attempt_id = p.id AND i.state = 'running'
     AND p.state = 'running' AND p.worker_job_id = %(worker)s
  RETURNING i.id, i.run_id, i.attempt_id)
UPDATE attempt p
   SET state = 'ended', is_live = false, outcome = 'lost', outcome_reason = %(reason)s,
       ended_at = clock_timestamp()
  FROM t WHERE p.id = t.attempt_id
RETURNING t.run_id
