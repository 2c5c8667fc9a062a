-- Publish: the attempt shows the artifact under the key, in place of what it showed there before; one row
-- comes back. No row comes back, and nothing changed, unless the attempt is its task instance's current
-- one, claimed by this delivery, and running.
-- Parameters: ti, attempt, nonce, fence, key, kind, title, body (jsonb). Walks: primary keys,
-- artifact_unique.
WITH t AS MATERIALIZED (
  SELECT i.id, i.attempt_id, i.try_number FROM task_instance i
   WHERE i.id = %(ti)s AND i.attempt_id = %(attempt)s AND i.claim_nonce = %(nonce)s
     AND i.state = 'running'
     FOR SHARE OF i)
INSERT INTO artifact (attempt_id, ti_id, try_number, fence, key, kind, title, body, at)
SELECT t.attempt_id, t.id, t.try_number, %(fence)s::bigint, %(key)s::text, %(kind)s::text,
       %(title)s::text, %(body)s::jsonb, clock_timestamp()
  FROM t
ON CONFLICT (attempt_id, key) DO UPDATE
   SET kind = excluded.kind, title = excluded.title, body = excluded.body, at = excluded.at
RETURNING ti_id
