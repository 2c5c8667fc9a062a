-- Claim: up to `limit` watched triggers that no live triggerer watches are watched by this one.
-- A triggerer lives while its loop gets on; a heartbeat alone proves nothing.
-- Parameters: job (id), limit, dead_after_s. Walks: trigger_watched, in jumps from owner to owner.
WITH RECURSIVE owner AS (
  (SELECT g.triggerer_job_id AS id FROM trigger g
    WHERE g.is_waiting AND g.kind = 'watched' AND g.triggerer_job_id IS NOT NULL
    ORDER BY g.triggerer_job_id LIMIT 1)
  UNION ALL
  SELECT (SELECT g.triggerer_job_id FROM trigger g
           WHERE g.is_waiting AND g.kind = 'watched' AND g.triggerer_job_id > owner.id
           ORDER BY g.triggerer_job_id LIMIT 1)
    FROM owner WHERE owner.id IS NOT NULL),
gone AS (
  SELECT owner.id FROM owner
   WHERE owner.id <> %(job)s AND NOT EXISTS (
     SELECT 1 FROM job j
      WHERE j.id = owner.id AND j.ended_at IS NULL
        AND j.progress_at > clock_timestamp() - make_interval(secs => %(dead_after_s)s::float8))),
l AS (
  SELECT g.id FROM trigger g
   WHERE g.is_waiting AND g.kind = 'watched' AND g.state = 'waiting'
     AND (g.triggerer_job_id IS NULL OR g.triggerer_job_id = ANY(ARRAY(SELECT id FROM gone)))
   LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED),
c AS (
  UPDATE trigger g SET triggerer_job_id = %(job)s FROM l WHERE g.id = l.id
  RETURNING g.id, g.ti_id, g.run_id, g.classpath, g.kwargs, g.block_count)
SELECT c.id AS trigger_id, c.ti_id, c.run_id, c.classpath, c.kwargs, c.block_count, r.flow_id,
       r.run_key, i.task_id, v.bundle_id AS bundle_digest
  FROM c JOIN task_instance i ON i.id = c.ti_id
         JOIN run r ON r.id = c.run_id
         JOIN flow_version v ON v.id = r.version_id
