-- Claim: the attempt is running under this delivery's nonce, or no row comes back and nothing changed.
-- A repeated claim with the same nonce (its answer was lost) passes; a second delivery does not.
-- Parameters: ti, attempt, token, fence (as the message carries them), nonce (new per delivery),
-- worker (job id), hostname, pid, with_callbacks. Walks: primary keys. May bring along what is near.
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
       r.data_interval_end, r.conf, v.bundle_id AS bundle_digest, r.created_at AS run_created_at /* near */
  FROM t, x, run r, flow_version v
 WHERE r.id = t.run_id AND v.id = r.version_id
