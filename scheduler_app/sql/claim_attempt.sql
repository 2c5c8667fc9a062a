-- Claim: the attempt is running under this delivery's nonce, or no row comes back and nothing changed.
-- A repeated claim with the same nonce (its answer was lost) passes; a second delivery does not.
-- Parameters: ti, attempt, token, fence (as the message carries them), nonce (new per delivery),
-- worker (job id), hostname, pid, with_callbacks, near_run, near_tasks and near_items (the run in which the
-- worker expects to be, or null, and the tasks whose results, or of whose lists its own element, it will
-- then ask for: they come along, results unless they are large). Walks: primary keys,
-- task_instance_unique.
-- The test on the attempt's immutable columns stands in the first update: in the second it would
-- leave the task instance running and the attempt not.
-- An attempt whose start calls for callbacks is claimed by the form that issues them (with_callbacks
-- true), and by no other; the plain form pays for it with one look at a null.
WITH t AS (
  UPDATE task_instance
     SET state = 'running', claim_nonce = %(nonce)s,
         started_at = coalesce(started_at, clock_timestamp())
   WHERE id = %(ti)s AND attempt_id = %(attempt)s AND held_by IS NULL
     AND EXISTS (SELECT 1 FROM attempt p
                  WHERE p.id = %(attempt)s AND p.lease_token = %(token)s AND p.fence = %(fence)s
                    AND (p.callback IS NOT NULL) = %(with_callbacks)s)
     AND (state = 'queued' OR (state = 'running' AND claim_nonce = %(nonce)s))
  RETURNING id, run_id, task_id, map_index, try_number, max_tries, budget_start, resume_index,
            next_method, next_kwargs, started_at),
x AS (
  UPDATE attempt p
     SET state = 'running', nonce = %(nonce)s, worker_job_id = %(worker)s,
         hostname = %(hostname)s, pid = %(pid)s,
         started_at = coalesce(p.started_at, clock_timestamp()),
         published_at = coalesce(p.published_at, clock_timestamp()),
         publish_count = greatest(p.publish_count, 1)
    FROM t WHERE p.id = %(attempt)s
  RETURNING p.id, p.run_attempt, p.dispatch_no)
/* callbacks */
SELECT t.id AS ti_id, t.run_id, t.task_id, t.map_index, t.try_number, t.max_tries, t.budget_start,
       t.resume_index, t.next_method, t.next_kwargs,
       extract(epoch FROM clock_timestamp() - t.started_at)::float8 AS elapsed_s, x.run_attempt, x.dispatch_no,
       r.flow_id, r.run_key, r.run_type, r.logical_date, r.data_interval_start,
       r.data_interval_end, r.conf, v.bundle_id AS bundle_digest, r.created_at AS run_created_at,
       (SELECT jsonb_object_agg(i.task_id, p.result)
          FROM task_instance i LEFT JOIN attempt p ON p.id = i.attempt_id AND i.state = 'success'
         WHERE i.run_id = t.run_id AND t.run_id = %(near_run)s AND i.task_id = ANY(%(near_tasks)s)
           AND i.map_index = -1 AND coalesce(pg_column_size(p.result), 0) <= 4096) AS near_results,
       (SELECT jsonb_object_agg(i.task_id, p.result->t.map_index)
          FROM task_instance i JOIN attempt p ON p.id = i.attempt_id AND p.is_accepted
         WHERE i.run_id = t.run_id AND t.run_id = %(near_run)s AND i.task_id = ANY(%(near_items)s)
           AND i.map_index = -1 AND i.state = 'success' AND t.map_index >= 0
           AND jsonb_typeof(p.result) = 'array'
           AND t.map_index < jsonb_array_length(p.result)) AS near_items
  FROM t, x, run r, flow_version v
 WHERE r.id = t.run_id AND v.id = r.version_id
