-- Dispatch: each task instance that is still as it was seen is queued, its new attempt is issued and
-- current, and its predecessor is set aside with the reason (the clear that stopped it, if one did); the others are left alone.
-- Parameters: arrays of one length: ti, attempt (new ids), previous (attempt id seen, null for none),
-- try_number, resume_index, dispatch_no, run_attempt, token, cause (filter code for the predecessor).
-- The caller holds the runs. Walks: primary keys.
-- The insert counts `old` so that the predecessors lose their place in the unique index first.
WITH u AS (
  SELECT * FROM unnest(%(ti)s::bigint[], %(attempt)s::uuid[], %(previous)s::uuid[],
                       %(try_number)s::int[], %(resume_index)s::int[], %(dispatch_no)s::int[],
                       %(run_attempt)s::int[], %(token)s::bigint[], %(cause)s::text[])
    AS u(ti, attempt, previous, try_number, resume_index, dispatch_no, run_attempt, token, cause)),
t AS (
  UPDATE task_instance i
     SET state = 'queued', attempt_id = u.attempt, claim_nonce = NULL,
         infra_losses = CASE WHEN u.try_number > i.try_number THEN 0 ELSE i.infra_losses END,
         started_at = CASE WHEN u.try_number > i.try_number THEN NULL ELSE i.started_at END,
         try_number = u.try_number, resume_index = u.resume_index, dispatch_no = u.dispatch_no,
         queued_at = clock_timestamp(), ended_at = NULL, next_retry_at = NULL, next_retry_why = NULL, wait = NULL,
         stop_requested_at = NULL, stop_reason = NULL, mark = NULL
    FROM u
   WHERE i.id = u.ti AND i.held_by IS NULL AND i.attempt_id IS NOT DISTINCT FROM u.previous
     AND i.state IN ('none', 'scheduled', 'up_for_retry', 'up_for_reschedule')
  RETURNING u.*, i.run_id, i.task_id, i.map_index, i.shard, i.pool, i.pool_slots, i.queue),
old AS (
  UPDATE attempt p
     SET filter_code = CASE WHEN p.cleared IS NULL THEN t.cause
                       WHEN p.cleared->'group' IS NOT NULL THEN 'superseded_by_group_attempt'
                       WHEN p.cleared->'new_run_attempt' = 'null' THEN 'superseded_by_clear'
                       ELSE 'superseded_by_run_attempt' END,
         filtered_at = clock_timestamp(), superseded_by = t.attempt::text,
         filter_detail = jsonb_build_object(
           'rule', 'dispatch', 'shard', t.shard, 'token', t.token,
           'try_number', p.try_number, 'resume_index', p.resume_index, 'dispatch_no', p.dispatch_no,
           'new_try_number', t.try_number, 'new_resume_index', t.resume_index,
           'new_dispatch_no', t.dispatch_no, 'outcome', p.outcome,
           'run_attempt', p.run_attempt) || coalesce(p.cleared, '{}')
    FROM t WHERE p.id = t.previous AND p.filter_code IS NULL
  RETURNING p.id)
INSERT INTO attempt (id, ti_id, run_id, task_id, map_index, kind, shard, try_number, resume_index,
                     dispatch_no, run_attempt, lease_token, fence, queue, pool, pool_slots, state,
                     is_live, is_accepted, publish_count, issued_at)
SELECT t.attempt, t.ti, t.run_id, t.task_id, t.map_index, 'task', t.shard, t.try_number,
       t.resume_index, t.dispatch_no, t.run_attempt, t.token, nextval('attempt_fence'), t.queue,
       t.pool, t.pool_slots, 'issued', true, false, 0, clock_timestamp()
  FROM t WHERE (SELECT count(*) FROM old) >= 0
RETURNING id AS attempt_id, ti_id, run_id, fence, lease_token, queue
