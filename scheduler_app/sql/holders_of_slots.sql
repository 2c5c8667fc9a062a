-- Who holds slots now: live attempts, and in a pool that counts them, deferred task instances; longest first.
-- Parameters: pool, run, flow, task, key, queue (what the slots are of: each null where it says nothing),
-- flow_ids (that the reader may see; null: all), limit, offset. `total` counts all of them.
-- Walks: attempt_live, trigger_wake, primary keys.
WITH h AS (
  SELECT i.id AS ti, r.id AS run, r.flow_id, r.run_key, i.task_id, i.map_index, i.map_label,
         a.pool_slots AS slots, CASE a.state WHEN 'issued' THEN 'queued' ELSE a.state END AS state,
         coalesce(a.started_at, a.issued_at) AS since
    FROM attempt a JOIN task_instance i ON i.id = a.ti_id JOIN run r ON r.id = a.run_id
   WHERE a.is_live AND a.kind = 'task' AND a.filter_code IS NULL
     -- What was frozen while it was queued holds nothing.
     AND (%(key)s::text IS NOT NULL OR NOT (a.state = 'issued' AND i.held_by IS NOT NULL))
     AND (%(pool)s::text IS NULL OR a.pool = %(pool)s)
     AND (%(run)s::bigint IS NULL OR a.run_id = %(run)s)
     AND (%(flow)s::text IS NULL OR r.flow_id = %(flow)s)
     AND (%(task)s::text IS NULL OR a.task_id = %(task)s)
     AND (%(key)s::text IS NULL OR a.limit_keys @> to_jsonb(%(key)s::text))
     AND (%(queue)s::text IS NULL OR a.queue = %(queue)s AND a.state = 'issued')
  UNION ALL
  SELECT i.id, r.id, r.flow_id, r.run_key, i.task_id, i.map_index, i.map_label, i.pool_slots, i.state,
         g.created_at
    FROM trigger g JOIN task_instance i ON i.id = g.ti_id JOIN run r ON r.id = i.run_id
    JOIN pool p ON p.name = i.pool AND p.include_deferred
   WHERE g.is_waiting AND i.state = 'deferred' AND i.pool = %(pool)s::text)
SELECT h.*, count(*) OVER () AS total FROM h
 WHERE %(flow_ids)s::text[] IS NULL OR h.flow_id = ANY(%(flow_ids)s::text[])
 ORDER BY h.since, h.ti LIMIT %(limit)s OFFSET %(offset)s
