-- Due: what waiting triggers fire with now without anybody telling them: their time has come, their
-- time limit is over, an external event came before they did, or a freeze ended that kept what they
-- fired with. Those of frozen task instances are left alone: their clocks stand still.
-- Parameters: limit. Walks: trigger_wake (cost follows what is due, not what waits), primary keys,
-- external_event_early. One row a trigger, longest due first; state null: nothing yet, sleep on.
SELECT g.id AS trigger_id,
       CASE WHEN g.state <> 'waiting' THEN g.state
            WHEN g.due_at <= n.now AND (g.timeout_at IS NULL OR g.due_at <= g.timeout_at) THEN 'fired'
            WHEN e.id IS NOT NULL THEN 'fired'
            WHEN g.timeout_at <= n.now THEN 'timed_out' END AS state,
       CASE WHEN g.state <> 'waiting' THEN NULL
            WHEN g.due_at <= n.now AND (g.timeout_at IS NULL OR g.due_at <= g.timeout_at) THEN
              jsonb_build_object('event', jsonb_build_object('__daylight__', 'datetime', 'value',
                to_char(g.due_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')))
            WHEN e.id IS NOT NULL THEN jsonb_build_object('event', e.payload)
            WHEN g.timeout_at <= n.now THEN
              jsonb_build_object('error', jsonb_build_object('kind', 'timeout',
                'after_s', extract(epoch FROM g.timeout_at - g.created_at)::float8)) END AS payload,
       CASE WHEN g.state = 'waiting' THEN e.id END AS event_id
  FROM (SELECT clock_timestamp() AS now) n,
       trigger g
       JOIN task_instance i ON i.id = g.ti_id
       LEFT JOIN LATERAL (
         SELECT e.id, e.payload FROM external_event e
          WHERE g.kind = 'event' AND e.ti_id = g.ti_id AND e.key = g.event_key
            AND e.trigger_id IS NULL
          ORDER BY e.id LIMIT 1) e ON true
 WHERE g.is_waiting AND g.wake_at <= (SELECT clock_timestamp()) AND i.held_by IS NULL
 ORDER BY g.wake_at LIMIT %(limit)s
