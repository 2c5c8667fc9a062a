-- Thaw: these task instances are held by nothing, and go on where they stood: for as long as they were
-- held no time has passed for their next retry, for the waiting for a delivery and for their triggers.
-- What a trigger kept is let through by the next look at what is due.
-- Parameters: ti (array of ids, locked by an earlier statement of the transaction), at (now).
-- Walks: primary keys, trigger_unique.
WITH h AS MATERIALIZED (
  SELECT id, attempt_id, held_at FROM task_instance
   WHERE id = ANY(%(ti)s::bigint[]) AND held_by IS NOT NULL),
t AS (
  UPDATE task_instance i
     SET held_by = NULL, held_at = NULL,
         -- A retry that was decided while it was held has waited from then on only.
         next_retry_at = i.next_retry_at + (%(at)s::timestamptz - greatest(h.held_at, i.ended_at))
    FROM h WHERE i.id = h.id
  RETURNING i.id),
x AS (
  UPDATE attempt p
     SET published_at = p.published_at + (%(at)s::timestamptz - greatest(h.held_at, p.published_at))
    FROM h WHERE p.id = h.attempt_id AND p.state = 'issued' AND p.published_at IS NOT NULL
  RETURNING p.id),
g AS (
  UPDATE trigger g
     SET due_at = g.due_at + (%(at)s::timestamptz - greatest(h.held_at, g.created_at)),
         timeout_at = g.timeout_at + (%(at)s::timestamptz - greatest(h.held_at, g.created_at)),
         -- An event that came while it was held is looked for at once.
         wake_at = CASE WHEN g.kind = 'event' THEN %(at)s::timestamptz
                   ELSE g.wake_at + (%(at)s::timestamptz - greatest(h.held_at, g.created_at)) END
    FROM h WHERE g.ti_id = h.id AND g.is_waiting AND g.state = 'waiting'
     AND (SELECT count(*) FROM x) >= 0
  RETURNING g.id)
SELECT t.id FROM t WHERE (SELECT count(*) FROM g) >= 0
