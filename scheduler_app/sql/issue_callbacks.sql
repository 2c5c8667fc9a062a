-- Issue callbacks: each callable that the end or the start of an attempt calls for has an issued
-- attempt of its own; or it had one already, and nothing changed. Written with the transition: in its
-- transaction, or in its very statement (sql.with_callbacks), where `x` is the attempt that moved.
-- It carries the lease token of the attempt that it is about: who may end that one, by its nonce or
-- under a proved lease, may say what follows from it.
-- Parameters: arrays of one length: callback_id (new ids), callback_of (attempt), callback (jsonb).
-- Walks: attempt's primary key; attempt_callback_unique.
INSERT INTO attempt (id, ti_id, run_id, task_id, map_index, kind, shard, try_number, resume_index,
                     dispatch_no, run_attempt, lease_token, fence, queue, pool, pool_slots, state,
                     is_live, is_accepted, publish_count, issued_at, callback, callback_key)
SELECT u.id, p.ti_id, p.run_id, p.task_id, p.map_index, 'callback', p.shard, p.try_number,
       p.resume_index, 1, p.run_attempt, p.lease_token, nextval('attempt_fence'), p.queue, p.pool, 0,
       'issued', true, false, 0, clock_timestamp(), u.callback,
       p.id || ':' || (u.callback->>'on') || ':' || (u.callback->>'index')
  FROM unnest(%(callback_id)s::uuid[], %(callback_of)s::uuid[], %(callback)s::jsonb[])
         WITH ORDINALITY AS u(id, of, callback, place)
  JOIN attempt p ON p.id = u.of /* moved */
 ORDER BY u.place
    ON CONFLICT (callback_key, dispatch_no) WHERE callback_key IS NOT NULL DO NOTHING
