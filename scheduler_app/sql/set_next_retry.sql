-- Set the next retry: the next execution of a waiting task instance begins then, or now where that has
-- passed. Nothing moves that is no longer as it was seen.
-- Parameters: ti, seen_attempt, seen_state, at (null: after_s from now), after_s, edited (jsonb: actor,
-- reason).
-- Walks: the primary key. The caller holds the run. One row, if it moved: the time.
UPDATE task_instance i
   SET next_retry_at = greatest(clock_timestamp(),
         coalesce(%(at)s::timestamptz, clock_timestamp() + make_interval(secs => %(after_s)s::float8))),
       next_retry_why = coalesce(i.next_retry_why, '{}') || jsonb_build_object(
         'edited', %(edited)s::jsonb || jsonb_build_object(
           'was', i.next_retry_at,
           'at', to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"')))
 WHERE i.id = %(ti)s AND i.state = %(seen_state)s AND i.attempt_id IS NOT DISTINCT FROM %(seen_attempt)s
   AND i.state IN ('up_for_retry', 'up_for_reschedule') AND i.held_by IS NULL
   AND i.stop_requested_at IS NULL
RETURNING i.next_retry_at
