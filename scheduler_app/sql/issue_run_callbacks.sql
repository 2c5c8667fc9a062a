-- Issue callbacks of a run: each callable that the run's end calls for has an issued attempt, without
-- a task instance. In the transaction of the end, after it: its time tells one end from the next.
-- Nothing is due where the run failed by what a person ended, and by nothing else; past its deadline
-- it was the deadline that ended what was unfinished.
-- Parameters: run, token (of the lease that decided), queue, and arrays of one length: callback_id
-- (new ids), callback (jsonb). Walks: run's primary key, task_instance_unique.
INSERT INTO attempt (id, run_id, kind, shard, dispatch_no, run_attempt, lease_token, fence, queue,
                     pool, pool_slots, state, is_live, is_accepted, publish_count, issued_at,
                     callback, callback_key)
SELECT u.id, r.id, 'callback', r.shard, 1, r.run_attempt, %(token)s, nextval('attempt_fence'),
       %(queue)s, '', 0, 'issued', true, false, 0, clock_timestamp(), u.callback,
       format('run:%%s:%%s:%%s:%%s', r.id, extract(epoch FROM r.ended_at), u.callback->>'on',
              u.callback->>'index')
  FROM unnest(%(callback_id)s::uuid[], %(callback)s::jsonb[]) WITH ORDINALITY AS u(id, callback, place)
  JOIN run r ON r.id = %(run)s
 WHERE r.state <> 'failed' OR r.mark IS NOT NULL OR r.deadline_at <= r.ended_at
    OR (SELECT count(*) = 0 OR NOT bool_and(i.stop_requested_at IS NOT NULL)
          FROM task_instance i WHERE i.run_id = r.id AND i.state = 'failed')
 ORDER BY u.place
