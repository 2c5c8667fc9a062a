-- Issue callbacks of groups: each callable that the move of a group attempt calls for has an issued
-- attempt, without a task instance. In the transaction of the move, after it: a group attempt makes
-- each such move once, so its number tells one from the next.
-- Parameters: arrays of one length: callback_id (new ids), run, group (id), number (of the group
-- attempt), token (of the lease that decided), queue, callback (jsonb).
-- Walks: run's primary key, attempt_callback_unique.
INSERT INTO attempt (id, run_id, kind, shard, dispatch_no, run_attempt, lease_token, fence, queue,
                     pool, pool_slots, state, is_live, is_accepted, publish_count, issued_at,
                     callback, callback_key)
SELECT u.id, r.id, 'callback', r.shard, 1, r.run_attempt, u.token, nextval('attempt_fence'),
       u.queue, '', 0, 'issued', true, false, 0, clock_timestamp(), u.callback,
       format('group:%%s:%%s:%%s:%%s:%%s', r.id, md5(u.group_id), u.number, u.callback->>'on',
              u.callback->>'index')
  FROM unnest(%(callback_id)s::uuid[], %(run)s::bigint[], %(group)s::text[], %(number)s::int[],
              %(token)s::bigint[], %(queue)s::text[], %(callback)s::jsonb[])
         WITH ORDINALITY AS u(id, run_id, group_id, number, token, queue, callback, place)
  JOIN run r ON r.id = u.run_id
 ORDER BY u.place
    ON CONFLICT (callback_key, dispatch_no) WHERE callback_key IS NOT NULL DO NOTHING
