-- Run end: the run and its run attempt are over, unless a task instance is unfinished or an attempt
-- is live. A statement of its own, after the one that locked the run: only a fresh snapshot sees
-- what was committed while the lock was waited for.
-- Parameters: run, state, reason. Walks: task_instance_open, attempt_of_run. One row if it ended.
WITH r AS (
  UPDATE run
     SET state = %(state)s, is_active = false, ended_at = clock_timestamp(),
         state_reason = %(reason)s
   WHERE id = %(run)s AND state = 'running' AND frozen_at IS NULL
     AND NOT EXISTS (SELECT 1 FROM task_instance t WHERE t.run_id = %(run)s AND t.is_open)
     AND NOT EXISTS (SELECT 1 FROM attempt a
                      WHERE a.run_id = %(run)s AND a.is_live AND a.kind = 'task'
                        AND a.filter_code IS NULL)
  RETURNING id, run_attempt)
UPDATE run_attempt ra
   SET state = %(state)s, ended_at = clock_timestamp(), outcome_reason = %(reason)s
  FROM r WHERE ra.run_id = r.id AND ra.number = r.run_attempt
RETURNING ra.run_id
