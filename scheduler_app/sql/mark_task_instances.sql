-- Mark: each task instance that no attempt was issued for yet takes the terminal state that its
-- upstream decided (skipped, upstream_failed, removed). The caller holds the runs.
-- Parameters: arrays ti, state. Walks: primary key. Returns the ids that really moved.
UPDATE task_instance i
   SET state = u.state, is_open = false, ended_at = clock_timestamp(), wait = NULL
  FROM unnest(%(ti)s::bigint[], %(state)s::text[]) AS u(ti, state)
 WHERE i.id = u.ti AND i.state IN ('none', 'scheduled') AND i.held_by IS NULL
RETURNING i.id
