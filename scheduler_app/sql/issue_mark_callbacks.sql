-- Issue callbacks of marks: each callable that the mark of a task instance calls for has an issued
-- attempt. In the transaction of the marks, after them: no attempt moved the task instance, so the
-- time of its end tells one mark from the next, and the token is that of the lease that decided.
-- Parameters: arrays of one length: callback_id (new ids), ti, token, callback (jsonb).
-- Walks: primary keys.
INSERT INTO attempt (id, ti_id, run_id, task_id, map_index, kind, shard, try_number, resume_index,
                     dispatch_no, run_attempt, lease_token, fence, queue, pool, pool_slots, state,
                     is_live, is_accepted, publish_count, issued_at, callback, callback_key)
SELECT u.id, i.id, i.run_id, i.task_id, i.map_index, 'callback', i.shard, i.try_number,
       i.resume_index, 1, r.run_attempt, u.token, nextval('attempt_fence'), i.queue, i.pool, 0,
       'issued', true, false, 0, clock_timestamp(), u.callback,
       format('ti:%%s:%%s:%%s:%%s', i.id, extract(epoch FROM i.ended_at), u.callback->>'on',
              u.callback->>'index')
  FROM unnest(%(callback_id)s::uuid[], %(ti)s::bigint[], %(token)s::bigint[],
              %(callback)s::jsonb[]) WITH ORDINALITY AS u(id, ti, token, callback, place)
  JOIN task_instance i ON i.id = u.ti
  JOIN run r ON r.id = i.run_id
 ORDER BY u.place
