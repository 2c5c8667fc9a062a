-- Who waits for slots of a pool or of a key, in the order of priority, then of how long.
-- Parameters: pool, key (each null where it says nothing), codes (of waits), flow_ids (that the reader may
-- see; null: all), limit, offset. `total` counts all of them. Walks: task_instance_open.
SELECT i.id AS ti, r.id AS run, r.flow_id, r.run_key, i.task_id, i.map_index, i.map_label,
       i.pool_slots AS slots, i.priority, i.wait->>'code' AS code, i.wait->>'detail' AS detail,
       (i.wait->>'since')::timestamptz AS since, count(*) OVER () AS total
  FROM task_instance i JOIN run r ON r.id = i.run_id
 WHERE i.is_open AND i.held_by IS NULL AND i.wait->>'code' = ANY(%(codes)s::text[])
   AND i.state IN ('scheduled', 'up_for_retry', 'up_for_reschedule')
   AND i.filter_code IS NULL AND r.is_active AND r.filter_code IS NULL
   AND (%(pool)s::text IS NULL OR i.pool = %(pool)s)
   AND (%(key)s::text IS NULL OR i.wait->>'about' = %(key)s)
   AND (%(flow_ids)s::text[] IS NULL OR r.flow_id = ANY(%(flow_ids)s::text[]))
 ORDER BY i.priority DESC, since, i.id LIMIT %(limit)s OFFSET %(offset)s
