-- Note what ready task instances wait for: none becomes scheduled, and `wait` says code, detail and
-- since when; what the code is about, and what of the detail lasts, if that is more. The caller holds the
-- runs. Parameters: arrays ti, code, detail, about, sign. Walks: primary key.
UPDATE task_instance i
   SET state = CASE WHEN i.state = 'none' THEN 'scheduled' ELSE i.state END,
       ready_at = coalesce(i.ready_at, clock_timestamp()),
       wait = jsonb_build_object('code', u.code, 'detail', u.detail,
                                 'since', CASE
           WHEN i.state IN ('up_for_retry', 'up_for_reschedule')
             THEN coalesce(i.next_retry_at, clock_timestamp())
           WHEN i.attempt_id IS NULL THEN coalesce(i.ready_at, clock_timestamp())
           ELSE coalesce((i.wait->>'since')::timestamptz, clock_timestamp()) END)
              || CASE WHEN u.about IS NULL THEN '{}' ELSE jsonb_build_object('about', u.about) END
              || CASE WHEN u.sign IS NULL THEN '{}' ELSE jsonb_build_object('sign', u.sign) END
  FROM unnest(%(ti)s::bigint[], %(code)s::text[], %(detail)s::text[], %(about)s::text[], %(sign)s::text[])
    AS u(ti, code, detail, about, sign)
 WHERE i.id = u.ti AND i.state IN ('none', 'scheduled', 'up_for_retry', 'up_for_reschedule')
