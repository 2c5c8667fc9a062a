-- Facts of a task instance: everything that the sentence about it needs, as one JSON object, read in one
-- snapshot: itself, its run, its current attempt with the event that ended it, its trigger, the freeze
-- and the lease over it, and its upstream by task and state.
-- Parameters: ti (id), alive_s (of a job's heartbeat), dead_after_s (of an attempt's).
-- Walks: primary keys, task_instance_unique, attempt_live, executor_event_of_attempt, trigger_unique.
SELECT jsonb_build_object(
  'now', clock_timestamp(),
  'ti', to_jsonb(i) - 'next_kwargs',
  'run', jsonb_build_object('state', r.state, 'frozen_at', r.frozen_at, 'flow_frozen_at', f.frozen_at,
                            'version', v.number, 'run_limit', v.definition->'max_active_runs',
                            'retry_at', r.retry_at, 'retry_reason', r.retry_reason),
  'task', jsonb_path_query_first(v.definition, '$.tasks[*] ? (@.task_id == $id)',
                                 jsonb_build_object('id', i.task_id)),
  'freeze', (SELECT to_jsonb(z) FROM "freeze" z WHERE z.id = i.held_by),
  'decider', (SELECT j.hostname || ':' || j.pid FROM lease l JOIN job j ON j.id = l.holder
               WHERE l.shard = i.shard AND l.expires_at > clock_timestamp()),
  'attempt', (SELECT jsonb_build_object(
      'id', p.id, 'state', p.state, 'outcome', p.outcome, 'reason', p.outcome_reason, 'error', p.error,
      'hostname', p.hostname, 'pid', p.pid, 'issued_at', p.issued_at, 'published_at', p.published_at,
      'publish_count', p.publish_count, 'started_at', p.started_at, 'heartbeat_at', p.heartbeat_at,
      'ended_at', p.ended_at, 'is_accepted', p.is_accepted,
      'is_silent', greatest(p.started_at, p.heartbeat_at, in_touch_since())
                   < clock_timestamp() - make_interval(secs => %(dead_after_s)s::float8),
      'signal', (SELECT e.payload->>'signal_name' FROM executor_event e
                  WHERE e.attempt_id = p.id AND e.kind = 'exit_killed' ORDER BY e.id DESC LIMIT 1),
      'event_code', (SELECT e.verdict_code FROM executor_event e
                      WHERE e.attempt_id = p.id AND e.verdict = 'confirmed' AND e.verdict_code IS NOT NULL
                      ORDER BY e.id DESC LIMIT 1))
    FROM attempt p WHERE p.id = i.attempt_id),
  'trigger', (SELECT jsonb_build_object(
      'kind', g.kind, 'state', g.state, 'event_key', g.event_key, 'due_at', g.due_at,
      'timeout_at', g.timeout_at, 'since', g.created_at, 'watcher', j.hostname || ':' || j.pid,
      'is_watcher_alive', job_is_alive(j.ended_at, j.progress_at, %(alive_s)s))
    FROM trigger g LEFT JOIN job j ON j.id = g.triggerer_job_id
   WHERE g.ti_id = i.id AND g.try_number = i.try_number AND g.resume_index = i.resume_index),
  'upstream', (SELECT coalesce(jsonb_agg(to_jsonb(u) ORDER BY u.task_id, u.state), '[]') FROM (
      SELECT u.task_id, u.state, count(*) AS number FROM task_instance u
       WHERE u.run_id = i.run_id AND u.task_id IN (
         SELECT jsonb_array_elements_text(
           jsonb_path_query_first(v.definition, '$.tasks[*] ? (@.task_id == $id).upstream',
                                  jsonb_build_object('id', i.task_id))))
       GROUP BY 1, 2) u),
  'queue_workers', (SELECT count(*) FROM job w
     WHERE w.kind = 'worker' AND w.ended_at IS NULL AND job_is_alive(w.ended_at, w.heartbeat_at, %(alive_s)s)
       AND w.detail->'queues' @> to_jsonb(i.queue::text)))
  FROM task_instance i
  LEFT JOIN run r ON r.id = i.run_id
  LEFT JOIN flow f ON f.flow_id = r.flow_id
  LEFT JOIN flow_version v ON v.id = r.version_id
 WHERE i.id = %(ti)s
