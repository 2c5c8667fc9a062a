-- Push: the attempt has handed out the value under the key, in place of what it pushed there before;
-- one row comes back. No row comes back, and nothing changed, unless the attempt is its task
-- instance's current one, claimed by this delivery, and running.
-- Parameters: ti, attempt, nonce, fence, key, value (jsonb). Walks: primary keys, pushed_value_unique.
WITH t AS MATERIALIZED (
  SELECT i.id, i.attempt_id, i.try_number FROM task_instance i
   WHERE i.id = %(ti)s AND i.attempt_id = %(attempt)s AND i.claim_nonce = %(nonce)s
     AND i.state = 'running'
     FOR SHARE OF i)
INSERT INTO pushed_value (attempt_id, ti_id, try_number, fence, key, value, at)
SELECT t.attempt_id, t.id, t.try_number, %(fence)s::bigint, %(key)s::text, %(value)s::jsonb,
       clock_timestamp()
  FROM t
ON CONFLICT (attempt_id, key) DO UPDATE SET value = excluded.value, at = excluded.at
RETURNING ti_id
