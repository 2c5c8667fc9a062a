-- Save: each checkpoint has its value, and the progress its numbers; one row with the ids of run and
-- flow comes back. No row comes back, and nothing changed, unless the attempt is its task instance's
-- current one, claimed by this delivery, and running. The lock on the task instance makes whoever
-- replaces the attempt wait for this write, or this write see the replacement.
-- Of each checkpoint the newest "kept" saves stay.
-- Parameters: ti, attempt, nonce, kept; of the checkpoints scope[], owner[] (null: this task instance
-- or its flow), key[], value[] (jsonb); progress (bool), done, total, note.
-- Walks: primary keys, checkpoint_unique, checkpoint_save_unique. Two attempts that save the same
-- checkpoints of a flow take them in the same order.
WITH t AS MATERIALIZED (
  SELECT i.id, i.run_id, i.try_number, i.resume_index, i.attempt_id
    FROM task_instance i
   WHERE i.id = %(ti)s AND i.attempt_id = %(attempt)s AND i.claim_nonce = %(nonce)s
     AND i.state = 'running'
     FOR SHARE OF i),
m AS (SELECT t.*, r.flow_id FROM t JOIN run r ON r.id = t.run_id),
w AS (
  SELECT m.*, u.scope, u.key, u.value,
         CASE u.scope WHEN 'task' THEN m.id::text WHEN 'flow' THEN m.flow_id ELSE u.owner END AS owner
    FROM m, unnest(%(scope)s::text[], %(owner)s::text[], %(key)s::text[], %(value)s::jsonb[])
            AS u(scope, owner, key, value)),
c AS (
  INSERT INTO checkpoint AS c (scope, owner, key, value, version, flow_id, ti_id, attempt_id,
                               try_number, saved_at)
  SELECT w.scope, w.owner, w.key, w.value, 1, w.flow_id, w.id, w.attempt_id, w.try_number,
         clock_timestamp()
    FROM w ORDER BY w.scope, w.owner, w.key
  ON CONFLICT (scope, owner, key) DO UPDATE
     SET value = excluded.value, version = c.version + 1, flow_id = excluded.flow_id,
         ti_id = excluded.ti_id, attempt_id = excluded.attempt_id,
         try_number = excluded.try_number, saved_at = excluded.saved_at
  RETURNING c.id, c.version, c.value, c.ti_id, c.attempt_id, c.try_number, c.saved_at),
h AS (
  INSERT INTO checkpoint_save (checkpoint_id, version, value, ti_id, attempt_id, try_number,
                               resume_index, saved_at)
  SELECT c.id, c.version, c.value, c.ti_id, c.attempt_id, c.try_number, m.resume_index, c.saved_at
    FROM c, m),
d AS (
  DELETE FROM checkpoint_save s USING c
   WHERE s.checkpoint_id = c.id AND s.version <= c.version - %(kept)s::bigint),
p AS (
  INSERT INTO progress AS p (attempt_id, done, total, note, at)
  SELECT m.attempt_id, %(done)s::bigint, %(total)s::bigint, %(note)s::text, clock_timestamp()
    FROM m WHERE %(progress)s::bool
  ON CONFLICT (attempt_id) DO UPDATE
     SET done = excluded.done, total = excluded.total, note = excluded.note, at = excluded.at)
SELECT m.run_id, m.flow_id FROM m
