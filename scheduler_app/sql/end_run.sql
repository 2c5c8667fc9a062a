-- Run end: the run and its run attempt are over, unless a task instance is unfinished or an attempt
-- is live. A statement of its own, after the one that locked the run: only a fresh snapshot sees
-- what was committed while the lock was waited for. Where a person said how it ends, it ends so, and is
-- quiet unless callbacks were asked for.
-- Parameters: run, state, reason. Walks: task_instance_open, attempt_of_run. One row if it ended: state, is_quiet.
WITH r AS (
  UPDATE run
     SET state = coalesce(mark->>'state', %(state)s), is_active = false, ended_at = clock_timestamp(),
         state_reason = coalesce(left(mark->>'said', 250), %(reason)s)
   WHERE id = %(run)s AND state = 'running' AND frozen_at IS NULL
     AND NOT EXISTS (SELECT 1 FROM task_instance t WHERE t.run_id = %(run)s AND t.is_open)
     AND NOT EXISTS (SELECT 1 FROM attempt a
                      WHERE a.run_id = %(run)s AND a.is_live AND a.kind = 'task'
                        AND a.filter_code IS NULL)
  RETURNING id, run_attempt, state, state_reason,
            mark IS NOT NULL AND mark->>'callbacks' <> 'true' AS is_quiet)
UPDATE run_attempt ra
   SET state = r.state, ended_at = clock_timestamp(), outcome_reason = r.state_reason
  FROM r WHERE ra.run_id = r.id AND ra.number = r.run_attempt
RETURNING r.state, r.is_quiet
