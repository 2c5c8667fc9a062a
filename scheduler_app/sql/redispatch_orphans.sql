-- Orphans: each task instance that some executor should have, while no attempt of it is live, is
-- scheduled again, one that was cleared while it ran begins anew, and one that was marked is what it was
-- marked as; a confirmed event tells it.
-- Parameters: ti (array of ids, locked by the caller in a statement before, so that this one's snapshot
-- sees every attempt that was issued for them), source. Walks: primary keys.
WITH o AS (
  SELECT i.id, i.state, i.attempt_id, p.state AS attempt_state, p.outcome
    FROM task_instance i LEFT JOIN attempt p ON p.id = i.attempt_id
   WHERE i.id = ANY(%(ti)s::bigint[]) AND i.held_by IS NULL
     AND i.state IN ('queued', 'running', 'restarting') AND p.is_live IS NOT TRUE),
t AS (
  UPDATE task_instance i
     SET state = CASE WHEN i.mark IS NOT NULL THEN i.mark->>'state'
                      WHEN o.state = 'restarting' THEN 'none' ELSE 'scheduled' END,
         is_open = i.mark IS NULL,
         ended_at = CASE WHEN i.mark IS NULL THEN i.ended_at ELSE clock_timestamp() END,
         max_tries = CASE o.state WHEN 'restarting'
                     THEN i.try_number + greatest(0, i.max_tries - i.budget_start)
                     ELSE i.max_tries END,
         budget_start = CASE o.state WHEN 'restarting' THEN i.try_number ELSE i.budget_start END,
         next_method = CASE WHEN o.state <> 'restarting' THEN i.next_method END,
         next_kwargs = CASE WHEN o.state <> 'restarting' THEN i.next_kwargs END,
         claim_nonce = NULL, queued_at = NULL, wait = NULL
    FROM o WHERE i.id = o.id
  RETURNING i.id, i.run_id, i.task_id, i.map_index, i.try_number, i.shard, i.state AS next_state,
            o.state, o.attempt_id, o.attempt_state, o.outcome),
e AS (
  INSERT INTO executor_event (attempt_id, ti_id, run_id, task_id, map_index, try_number, shard, kind,
                              source, payload, received_at, verdict, verdict_code, verdict_reason,
                              verdict_detail, judged_at)
  SELECT t.attempt_id, t.id, t.run_id, t.task_id, t.map_index, t.try_number, t.shard, 'orphaned',
         %(source)s, '{}', clock_timestamp(), 'confirmed', 'orphaned',
         format('Its task was %%s, and no live attempt of it was left (%%s): it is %%s again.', t.state,
                CASE WHEN t.attempt_id IS NULL THEN 'it has none'
                     WHEN t.attempt_state IS NULL THEN format('attempt %%s has no record', t.attempt_id)
                     ELSE format('attempt %%s ended as %%s', t.attempt_id, t.outcome) END,
                t.next_state),
         jsonb_build_object('rule', 'orphans', 'task_state', t.state, 'next_task_state', t.next_state,
                            'attempt_id', t.attempt_id, 'attempt_state', t.attempt_state,
                            'outcome', t.outcome),
         clock_timestamp()
    FROM t
  RETURNING id)
SELECT t.id AS ti_id, t.run_id, t.attempt_id, t.state, t.next_state FROM t
