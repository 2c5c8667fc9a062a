-- Part of a claim: of the lists that these tasks returned, the element at the instance's own map index, if it
-- is in the run that the worker expects. Of a large list, which would be unpacked whole for each element, the
-- id of the attempt that returned it, so that a child that has it need not read it again: [element], or
-- [null, id]. Parameters: near_run, near_items. Walks: as near_results.
, (SELECT jsonb_object_agg(i.task_id, CASE WHEN pg_column_size(p.result) > 4096
                                           THEN jsonb_build_array(NULL, p.id)
                                           ELSE jsonb_build_array(p.result->t.map_index) END)
     FROM task_instance i JOIN attempt p ON p.id = i.attempt_id AND p.is_accepted
    WHERE i.run_id = t.run_id AND t.run_id = %(near_run)s AND i.task_id = ANY(%(near_items)s)
      AND i.map_index = -1 AND i.state = 'success' AND t.map_index >= 0
      -- Of what is no list, no length may be asked, in whatever order conditions are looked at.
      AND CASE WHEN pg_column_size(p.result) > 4096 THEN true
               WHEN jsonb_typeof(p.result) = 'array'
               THEN t.map_index < jsonb_array_length(p.result) END) AS near_items
