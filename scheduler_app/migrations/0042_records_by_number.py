"""Records say when they came and which number they have, so that each table is read from its indexes."""

from __future__ import annotations

import importlib

from django.db import migrations, models

BEFORE = importlib.import_module("scheduler_app.migrations.0010_records_by_index").RECORD

# ``came_at`` is a column of each table, over which it has an index. No conditions here: PostgreSQL then
# reads the tables as if they had been asked for by themselves.
RECORD = """
DROP VIEW record;
CREATE VIEW record AS
SELECT ('run:' || id)::varchar AS key, 'run'::varchar AS noun, id::varchar AS record_id,
       id::bigint AS number, coalesce(filtered_at, created_at) AS at, created_at AS came_at,
       filter_code, filtered_at, filter_detail,
       superseded_by, flow_id::varchar, id::bigint AS run_id, NULL::bigint AS ti_id,
       NULL::varchar AS task_id, NULL::integer AS map_index, NULL::uuid AS attempt_id,
       NULL::varchar AS hostname, NULL::integer AS pid, shard, run_type::varchar AS kind,
       state::varchar, false AS ran
  FROM run
UNION ALL
SELECT ('run_attempt:' || id)::varchar, 'run_attempt'::varchar, id::varchar,
       id::bigint, coalesce(filtered_at, started_at), started_at,
       filter_code, filtered_at, filter_detail,
       superseded_by, NULL::varchar, run_id::bigint, NULL::bigint, NULL::varchar,
       NULL::integer, NULL::uuid, NULL::varchar, NULL::integer, NULL::integer, cause::varchar,
       state::varchar, false
  FROM run_attempt
UNION ALL
SELECT ('task_instance:' || id)::varchar, 'task_instance'::varchar, id::varchar,
       id::bigint, coalesce(filtered_at, queued_at), queued_at,
       filter_code, filtered_at, filter_detail,
       superseded_by, NULL::varchar, run_id::bigint, id::bigint,
       task_id::varchar, map_index, attempt_id, NULL::varchar, NULL::integer, shard, NULL::varchar,
       state::varchar, false
  FROM task_instance
UNION ALL
SELECT ('attempt:' || id)::varchar, 'attempt'::varchar, id::varchar,
       NULL::bigint, coalesce(filtered_at, issued_at), issued_at,
       filter_code, filtered_at, filter_detail,
       superseded_by, NULL::varchar, run_id::bigint, ti_id, task_id::varchar, map_index, id,
       hostname::varchar, pid, shard, kind::varchar, coalesce(outcome, state)::varchar,
       started_at IS NOT NULL
  FROM attempt
UNION ALL
SELECT ('executor_event:' || id)::varchar, 'executor_event'::varchar, id::varchar,
       id::bigint, coalesce(filtered_at, received_at), received_at,
       filter_code, filtered_at, filter_detail,
       superseded_by, NULL::varchar, run_id::bigint, ti_id, task_id::varchar, map_index,
       attempt_id, (payload->>'hostname')::varchar,
       CASE WHEN jsonb_typeof(payload->'pid') = 'number' THEN (payload->>'pid')::integer END, shard,
       kind::varchar, verdict::varchar,
       kind IN ('exit_success', 'exit_failed', 'exit_killed', 'late_report', 'inventory')
  FROM executor_event
UNION ALL
SELECT ('flow:' || flow_id)::varchar, 'flow'::varchar, flow_id::varchar,
       NULL::bigint, coalesce(removed_at, created_at), created_at,
       CASE WHEN removed_at IS NOT NULL THEN 'flow_removed' END::varchar(40), removed_at,
       CASE WHEN removed_at IS NOT NULL THEN
         jsonb_build_object('folder', folder, 'path', path, 'at', removed_at) END,
       NULL::varchar(64), flow_id::varchar, NULL::bigint, NULL::bigint, NULL::varchar, NULL::integer,
       NULL::uuid, NULL::varchar, NULL::integer, shard, NULL::varchar, NULL::varchar, false
  FROM flow
UNION ALL
SELECT ('job:' || id)::varchar, 'job'::varchar, id::varchar,
       NULL::bigint,
       CASE WHEN ended_at IS NOT NULL OR state = 'dead' THEN coalesce(ended_at, heartbeat_at)
            ELSE started_at END, started_at,
       CASE WHEN ended_at IS NOT NULL THEN 'ended_incarnation'
            WHEN state = 'dead' THEN 'dead_incarnation' END::varchar(40),
       CASE WHEN ended_at IS NOT NULL OR state = 'dead' THEN coalesce(ended_at, heartbeat_at) END,
       CASE WHEN ended_at IS NOT NULL OR state = 'dead' THEN
         jsonb_build_object('hostname', hostname, 'pid', pid, 'at', coalesce(ended_at, heartbeat_at))
       END,
       NULL::varchar(64), NULL::varchar, NULL::bigint, NULL::bigint, NULL::varchar, NULL::integer,
       NULL::uuid, hostname::varchar, pid, NULL::integer, kind::varchar, state::varchar, false
  FROM job
"""


class Migration(migrations.Migration):
    dependencies = [
        ("scheduler_app", "0041_lists_by_index"),
    ]

    operations = [
        migrations.AddField(
            model_name="record",
            name="number",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="record",
            name="came_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.RunSQL(RECORD, BEFORE),
    ]
