-- Run ends: each of these runs and its run attempt are over, unless a task instance of it is unfinished or
-- an attempt live. A statement of its own, after the one that locked the runs: only a fresh snapshot sees
-- what was committed while the lock was waited for. Where a person said how it ends, it ends so, and is
-- quiet unless callbacks were asked for.
-- Parameters: arrays run, state, reason. Walks: primary keys, task_instance_open, attempt_of_run.
-- The offsets keep both looks from becoming joins, which a plan may do by going through all that is live.
-- One row for each that ended: run_id, state, is_quiet.
WITH r AS (
  UPDATE run
     SET state = coalesce(mark->>'state', u.state), is_active = false, ended_at = clock_timestamp(),
         state_reason = coalesce(left(mark->>'said', 250), u.reason)
    FROM unnest(%(run)s::bigint[], %(state)s::text[], %(reason)s::text[]) AS u(id, state, reason)
   WHERE run.id = u.id AND run.state = 'running' AND frozen_at IS NULL
     AND NOT EXISTS (SELECT 1 FROM task_instance t WHERE t.run_id = u.id AND t.is_open OFFSET 0)
     AND NOT EXISTS (SELECT 1 FROM attempt a
                      WHERE a.run_id = u.id AND a.is_live AND a.kind = 'task'
                        AND a.filter_code IS NULL OFFSET 0)
  RETURNING run.id, run_attempt, run.state, state_reason,
            mark IS NOT NULL AND mark->>'callbacks' <> 'true' AS is_quiet)
UPDATE run_attempt ra
   SET state = r.state, ended_at = clock_timestamp(), outcome_reason = r.state_reason
  FROM r WHERE ra.run_id = r.id AND ra.number = r.run_attempt
RETURNING r.id AS run_id, r.state, r.is_quiet
