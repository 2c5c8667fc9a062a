-- Fire: of each trigger the first sender wins. Its task instance is scheduled with the resume index
-- raised and the payload in next_kwargs; the trigger is over. Where a freeze holds the task instance,
-- the trigger keeps the payload until a later call lets it through. Where the task instance no longer
-- waits for the trigger, that is cancelled.
-- Parameters: arrays of one length: trigger (ids), state (fired, failed, timed_out), payload (jsonb;
-- null: what the trigger keeps), event (external events that they take; null: none).
-- Walks: primary keys. Task instances are locked first, in id order, skipping locked ones.
-- One row a trigger asked for: what = moved, kept, over, late (somebody else was first), or again
-- (its task instance was locked: nothing is known yet).
WITH u AS (
  SELECT * FROM unnest(%(trigger)s::bigint[], %(state)s::text[], %(payload)s::jsonb[],
                       %(event)s::bigint[]) AS u(trigger_id, state, payload, event_id)),
l AS MATERIALIZED (
  SELECT g.id AS trigger_id, i.state, i.held_by, i.try_number, i.resume_index
    FROM task_instance i JOIN trigger g ON g.ti_id = i.id
   WHERE g.id = ANY(%(trigger)s::bigint[]) AND g.is_waiting
   ORDER BY i.id FOR NO KEY UPDATE OF i SKIP LOCKED),
w AS MATERIALIZED (
  SELECT g.id AS trigger_id, g.ti_id, u.event_id,
         CASE WHEN u.payload IS NULL THEN g.state ELSE u.state END AS state,
         coalesce(u.payload, g.payload) AS payload,
         CASE WHEN (l.state, l.try_number, l.resume_index)
                   IS DISTINCT FROM ('deferred', g.try_number, g.resume_index) THEN 'over'
              WHEN l.held_by IS NOT NULL THEN 'kept'
              ELSE 'moved' END AS what
    FROM u JOIN trigger g ON g.id = u.trigger_id JOIN l ON l.trigger_id = g.id
   WHERE g.is_waiting AND (g.state = 'waiting') = (u.payload IS NOT NULL)
   ORDER BY g.id FOR NO KEY UPDATE OF g),
t AS (
  UPDATE task_instance i
     SET state = 'scheduled', resume_index = i.resume_index + 1, wait = NULL,
         next_kwargs = i.next_kwargs || w.payload
    FROM w WHERE i.id = w.ti_id AND w.what = 'moved' AND i.state = 'deferred'
  RETURNING i.id),
x AS (
  UPDATE trigger g
     SET state = CASE w.what WHEN 'over' THEN 'cancelled' ELSE w.state END,
         payload = w.payload,
         is_waiting = w.what = 'kept',
         wake_at = CASE w.what WHEN 'kept' THEN clock_timestamp() END,
         ended_at = CASE w.what WHEN 'kept' THEN NULL ELSE clock_timestamp() END
    FROM w WHERE g.id = w.trigger_id AND (SELECT count(*) FROM t) >= 0
  RETURNING g.id),
e AS (
  UPDATE external_event e SET trigger_id = w.trigger_id, taken_at = clock_timestamp()
    FROM w, x WHERE x.id = w.trigger_id AND e.id = w.event_id AND w.what IN ('moved', 'kept')
     AND e.trigger_id IS NULL
  RETURNING e.id)
SELECT u.trigger_id, g.ti_id, g.run_id, w.state,
       CASE WHEN w.what IS NOT NULL THEN w.what
            WHEN g.is_waiting AND (g.state = 'waiting') = (u.payload IS NOT NULL) THEN 'again'
            ELSE 'late' END AS what
  FROM u JOIN trigger g ON g.id = u.trigger_id LEFT JOIN w ON w.trigger_id = u.trigger_id
 WHERE (SELECT count(*) FROM e) >= 0
