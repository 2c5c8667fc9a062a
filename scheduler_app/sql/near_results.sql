-- Part of a claim: the results of the tasks that the worker will ask for if it is in the run that it expects,
-- unless they are large. Parameters: near_run, near_tasks. Walks: task_instance_unique, attempt_pkey.
, (SELECT jsonb_object_agg(i.task_id, p.result)
     FROM task_instance i LEFT JOIN attempt p ON p.id = i.attempt_id AND i.state = 'success'
    WHERE i.run_id = t.run_id AND t.run_id = %(near_run)s AND i.task_id = ANY(%(near_tasks)s)
      AND i.map_index = -1 AND coalesce(pg_column_size(p.result), 0) <= 4096) AS near_results
