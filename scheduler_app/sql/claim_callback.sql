-- Claim a callback: its attempt is running under this delivery's nonce, or no row comes back and
-- nothing changed. What it is about may have moved on; a freeze of it holds the callback.
-- Parameters: attempt, token, fence (as the message carries them), nonce (new per delivery), worker
-- (job id), hostname, pid. Walks: primary keys.
-- The task instance is locked FOR SHARE, so that a freeze and this claim have an order.
WITH i AS (
  SELECT i.id FROM task_instance i JOIN attempt p ON p.ti_id = i.id
   WHERE p.id = %(attempt)s AND i.held_by IS NULL FOR SHARE OF i),
x AS (
  UPDATE attempt p
     SET state = 'running', nonce = %(nonce)s, worker_job_id = %(worker)s,
         hostname = %(hostname)s, pid = %(pid)s,
         started_at = coalesce(p.started_at, clock_timestamp()),
         published_at = coalesce(p.published_at, clock_timestamp()),
         publish_count = greatest(p.publish_count, 1)
   WHERE p.id = %(attempt)s AND p.kind = 'callback' AND p.filter_code IS NULL
     AND p.lease_token = %(token)s AND p.fence = %(fence)s
     AND (p.ti_id IS NULL OR EXISTS (SELECT 1 FROM i))
     AND NOT EXISTS (SELECT 1 FROM run r JOIN flow f ON f.flow_id = r.flow_id
                      WHERE r.id = p.run_id
                        AND (r.frozen_at IS NOT NULL OR f.frozen_at IS NOT NULL))
     AND (p.state = 'issued' OR (p.state = 'running' AND p.nonce = %(nonce)s))
  RETURNING p.id, p.ti_id, p.run_id, p.task_id, p.map_index, p.try_number, p.resume_index,
            p.dispatch_no, p.run_attempt, p.queue, p.callback, p.callback_key)
SELECT x.ti_id, x.run_id, x.task_id, x.map_index, x.try_number, x.resume_index, x.dispatch_no,
       x.run_attempt, x.queue, x.callback, x.callback_key, i.max_tries, i.pool, i.priority,
       s.id AS subject_id, s.outcome, s.outcome_reason, s.error, s.hostname, s.pid, s.started_at,
       s.ended_at, r.flow_id, r.run_key, r.run_type, r.state AS run_state, r.logical_date,
       r.data_interval_start, r.data_interval_end, r.conf, r.note, r.queued_at AS run_queued_at,
       r.started_at AS run_started_at, r.ended_at AS run_ended_at, v.bundle_id AS bundle_digest
  FROM x JOIN run r ON r.id = x.run_id
         JOIN flow_version v ON v.id = r.version_id
         LEFT JOIN task_instance i ON i.id = x.ti_id
         LEFT JOIN attempt s ON s.id = (x.callback->>'of')::uuid
