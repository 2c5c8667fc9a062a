-- Beat: the heartbeat of each attempt that is still wanted is now; the answer has one row per attempt
-- asked for: is it wanted, and if it was asked to stop, why. Rows that another writer holds are skipped
-- (that writer moves them) so that two multi-row writers never wait for each other.
-- Parameters: attempt (array), worker (job id). Walks: primary keys; no indexed column is written.
WITH l AS (
  SELECT p.id FROM attempt p
   WHERE p.id = ANY(%(attempt)s::uuid[]) AND p.worker_job_id = %(worker)s AND p.state = 'running'
   ORDER BY p.id FOR NO KEY UPDATE SKIP LOCKED),
b AS (
  UPDATE attempt p SET heartbeat_at = clock_timestamp() FROM l WHERE p.id = l.id RETURNING p.id)
SELECT p.id AS attempt_id, p.stop_reason,
       p.state = 'running' AND p.worker_job_id = %(worker)s
         AND (p.kind = 'callback' OR coalesce(i.attempt_id = p.id AND i.state = 'running', false))
         AS is_wanted,
       p.state AS state
  FROM attempt p LEFT JOIN task_instance i ON i.id = p.ti_id
 WHERE p.id = ANY(%(attempt)s::uuid[]) AND (SELECT count(*) FROM b) >= 0
