-- Part of a claim: the results of the tasks that the claimed one needed when the worker executed it for another
-- run, unless they are large. Parameters: near_needs (jsonb: task -> the tasks that it needs). Walks: as
-- near_results.
, (SELECT jsonb_object_agg(i.task_id, p.result)
     FROM task_instance i LEFT JOIN attempt p ON p.id = i.attempt_id AND i.state = 'success'
    WHERE i.run_id = t.run_id AND i.map_index = -1
      AND i.task_id = ANY(ARRAY(SELECT jsonb_array_elements_text(%(near_needs)s::jsonb -> t.task_id)))
      AND coalesce(pg_column_size(p.result), 0) <= 4096) AS near_results
