"""Ghosts and their audits, what workers report, how long tasks usually take, and every filtered record."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models

# The columns of each part have one type, and no part joins: so a page of the newest filtered records
# walks the partial index of each table and stops.
RECORD = """
CREATE VIEW record AS
SELECT ('run:' || id)::varchar AS key, 'run'::varchar AS noun, id::varchar AS record_id,
       coalesce(filtered_at, created_at) AS at, filter_code::varchar, filtered_at, filter_detail,
       superseded_by::varchar, flow_id::varchar, id::bigint AS run_id, NULL::bigint AS ti_id,
       NULL::varchar AS task_id, NULL::integer AS map_index, NULL::uuid AS attempt_id,
       NULL::varchar AS hostname, NULL::integer AS pid, shard, run_type::varchar AS kind,
       state::varchar, false AS ran
  FROM run
UNION ALL
SELECT ('run_attempt:' || id)::varchar, 'run_attempt'::varchar, id::varchar,
       coalesce(filtered_at, ended_at, started_at), filter_code::varchar, filtered_at, filter_detail,
       superseded_by::varchar, NULL::varchar, run_id::bigint, NULL::bigint, NULL::varchar,
       NULL::integer, NULL::uuid, NULL::varchar, NULL::integer, NULL::integer, cause::varchar,
       state::varchar, false
  FROM run_attempt
UNION ALL
SELECT ('task_instance:' || id)::varchar, 'task_instance'::varchar, id::varchar,
       coalesce(filtered_at, ended_at, queued_at, ready_at), filter_code::varchar, filtered_at,
       filter_detail, superseded_by::varchar, NULL::varchar, run_id::bigint, id::bigint,
       task_id::varchar, map_index, attempt_id, NULL::varchar, NULL::integer, shard, NULL::varchar,
       state::varchar, false
  FROM task_instance
UNION ALL
SELECT ('attempt:' || id)::varchar, 'attempt'::varchar, id::varchar, coalesce(filtered_at, issued_at),
       filter_code::varchar, filtered_at, filter_detail, superseded_by::varchar, NULL::varchar,
       run_id::bigint, ti_id, task_id::varchar, map_index, id, hostname::varchar, pid, shard,
       kind::varchar, coalesce(outcome, state)::varchar, started_at IS NOT NULL
  FROM attempt
UNION ALL
SELECT ('executor_event:' || id)::varchar, 'executor_event'::varchar, id::varchar,
       coalesce(filtered_at, received_at), filter_code::varchar, filtered_at, filter_detail,
       superseded_by::varchar, NULL::varchar, run_id::bigint, ti_id, task_id::varchar, map_index,
       attempt_id, (payload->>'hostname')::varchar,
       CASE WHEN jsonb_typeof(payload->'pid') = 'number' THEN (payload->>'pid')::integer END, shard,
       kind::varchar, verdict::varchar,
       kind IN ('exit_success', 'exit_failed', 'exit_killed', 'late_report', 'inventory')
  FROM executor_event
UNION ALL
SELECT ('flow:' || flow_id)::varchar, 'flow'::varchar, flow_id::varchar,
       coalesce(removed_at, created_at),
       CASE WHEN removed_at IS NOT NULL THEN 'flow_removed' END::varchar, removed_at,
       CASE WHEN removed_at IS NOT NULL THEN
         jsonb_build_object('folder', folder, 'path', path, 'at', removed_at) END,
       NULL::varchar, flow_id::varchar, NULL::bigint, NULL::bigint, NULL::varchar, NULL::integer,
       NULL::uuid, NULL::varchar, NULL::integer, shard, NULL::varchar, NULL::varchar, false
  FROM flow
UNION ALL
SELECT ('job:' || id)::varchar, 'job'::varchar, id::varchar, coalesce(ended_at, heartbeat_at),
       CASE WHEN ended_at IS NOT NULL THEN 'ended_incarnation'
            WHEN state = 'dead' THEN 'dead_incarnation' END::varchar,
       CASE WHEN ended_at IS NOT NULL OR state = 'dead' THEN coalesce(ended_at, heartbeat_at) END,
       CASE WHEN ended_at IS NOT NULL OR state = 'dead' THEN
         jsonb_build_object('hostname', hostname, 'pid', pid, 'at', coalesce(ended_at, heartbeat_at))
       END,
       NULL::varchar, NULL::varchar, NULL::bigint, NULL::bigint, NULL::varchar, NULL::integer,
       NULL::uuid, hostname::varchar, pid, NULL::integer, kind::varchar, state::varchar, false
  FROM job
"""

# How many seconds between two instants some freeze held this task instance; overlaps count once.
FROZEN = """
CREATE FUNCTION frozen_seconds(
  of_flow varchar, of_run bigint, of_ti bigint, of_shard integer,
  began timestamptz, ended timestamptz) RETURNS double precision LANGUAGE sql STABLE AS $$
  SELECT coalesce(sum(extract(epoch FROM upper(held) - lower(held))), 0)::double precision
    FROM unnest((
      SELECT range_agg(tstzrange(greatest(f.created_at, began),
                                 least(coalesce(f.ended_at, 'infinity'), ended)))
        FROM "freeze" f
       WHERE f.created_at < ended AND coalesce(f.ended_at, 'infinity') > began AND began < ended
         AND (f.scope_kind = 'all'
              OR (f.scope_kind = 'flow' AND f.scope_id = of_flow)
              OR (f.scope_kind = 'run' AND f.scope_id = of_run::varchar)
              OR (f.scope_kind = 'task_instance' AND f.scope_id = of_ti::varchar)
              OR (f.scope_kind = 'shard' AND f.scope_id = of_shard::varchar)))) held
$$
"""

STORAGE = "ALTER TABLE inventory SET (fillfactor = 50)"


def first_rows(apps, schema_editor):  # type: ignore[no-untyped-def]  # signature set by Django
    """The counter at 0."""
    del apps
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO counter (name, labels, value) VALUES ('scheduler_ghosts_seen_total', '', 0)"
            " ON CONFLICT (name, labels) DO NOTHING"
        )


class Migration(migrations.Migration):
    dependencies = [
        ("scheduler_app", "0008_callbacks"),
    ]

    operations = [
        migrations.CreateModel(
            name="Record",
            fields=[
                ("filter_code", models.CharField(blank=True, max_length=40, null=True)),
                ("filtered_at", models.DateTimeField(blank=True, null=True)),
                ("filter_detail", models.JSONField(blank=True, null=True)),
                ("superseded_by", models.CharField(blank=True, max_length=64, null=True)),
                ("key", models.CharField(max_length=300, primary_key=True, serialize=False)),
                ("noun", models.CharField(max_length=20)),
                ("record_id", models.CharField(max_length=250)),
                ("at", models.DateTimeField(null=True)),
                ("flow_id", models.CharField(max_length=250, null=True)),
                ("ti_id", models.BigIntegerField(null=True)),
                ("task_id", models.CharField(max_length=250, null=True)),
                ("map_index", models.IntegerField(null=True)),
                ("attempt_id", models.UUIDField(null=True)),
                ("hostname", models.CharField(max_length=250, null=True)),
                ("pid", models.IntegerField(null=True)),
                ("shard", models.IntegerField(null=True)),
                ("kind", models.CharField(max_length=30, null=True)),
                ("state", models.CharField(max_length=20, null=True)),
                ("ran", models.BooleanField()),
            ],
            options={
                "db_table": "record",
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="Ghost",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("kind", models.CharField(max_length=40)),
                ("subject", models.CharField(max_length=250)),
                ("seen_by", models.CharField(max_length=16)),
                ("attempt_id", models.UUIDField(null=True)),
                ("current_attempt_id", models.UUIDField(null=True)),
                ("ti_id", models.BigIntegerField(null=True)),
                ("task_id", models.CharField(max_length=250, null=True)),
                ("map_index", models.IntegerField(null=True)),
                ("try_number", models.IntegerField(null=True)),
                ("shard", models.IntegerField(null=True)),
                ("lease_token", models.BigIntegerField(null=True)),
                ("hostname", models.CharField(max_length=250, null=True)),
                ("pid", models.IntegerField(null=True)),
                ("worker_job_id", models.UUIDField(null=True)),
                ("detail", models.JSONField(default=dict)),
                ("first_seen_at", models.DateTimeField()),
                ("last_seen_at", models.DateTimeField()),
                ("policy", models.CharField(max_length=8)),
                ("stop_requested_at", models.DateTimeField(null=True)),
                ("stop_requested_by", models.CharField(max_length=250, null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("end_reason", models.CharField(max_length=250, null=True)),
            ],
            options={
                "db_table": "ghost",
            },
        ),
        migrations.CreateModel(
            name="GhostAudit",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("holder", models.UUIDField()),
                ("hour", models.DateTimeField()),
                ("first_at", models.DateTimeField()),
                ("last_at", models.DateTimeField()),
                ("audits", models.IntegerField(default=1)),
                ("compared", models.BigIntegerField(default=0)),
                ("last_compared", models.IntegerField(default=0)),
                ("last", models.JSONField(default=dict)),
                ("open_ghosts", models.JSONField(default=dict)),
                ("duration_ms", models.IntegerField(default=0)),
                ("is_complete", models.BooleanField(default=True)),
            ],
            options={
                "db_table": "ghost_audit",
            },
        ),
        migrations.CreateModel(
            name="Inventory",
            fields=[
                ("job_id", models.UUIDField(primary_key=True, serialize=False)),
                ("hostname", models.CharField(max_length=250)),
                ("pid", models.IntegerField()),
                ("at", models.DateTimeField()),
                ("executions", models.JSONField(default=list)),
            ],
            options={
                "db_table": "inventory",
            },
        ),
        migrations.CreateModel(
            name="TaskStats",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("flow_id", models.CharField(max_length=250)),
                ("task_id", models.CharField(max_length=250)),
                ("successes", models.BigIntegerField(default=0)),
                ("run_buckets", models.JSONField(default=dict)),
                ("queue_buckets", models.JSONField(default=dict)),
                ("run_p50_s", models.FloatField(null=True)),
                ("run_p99_s", models.FloatField(null=True)),
                ("queue_p99_s", models.FloatField(null=True)),
                ("run_max_s", models.FloatField(null=True)),
                ("updated_at", models.DateTimeField()),
            ],
            options={
                "db_table": "task_stats",
            },
        ),
        migrations.CreateModel(
            name="TaskStatsCursor",
            fields=[
                ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("event_id", models.BigIntegerField(default=0)),
            ],
            options={
                "db_table": "task_stats_cursor",
            },
        ),
        migrations.AddIndex(
            model_name="attempt",
            index=models.Index(
                condition=models.Q(("filter_code__isnull", False)),
                fields=["-filtered_at"],
                name="attempt_filtered_at",
            ),
        ),
        migrations.AddIndex(
            model_name="executorevent",
            index=models.Index(
                condition=models.Q(("filter_code__isnull", False)),
                fields=["-filtered_at"],
                name="executor_event_filtered_at",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("filter_code__isnull", False)),
                fields=["-filtered_at"],
                name="run_filtered_at",
            ),
        ),
        migrations.AddIndex(
            model_name="taskinstance",
            index=models.Index(
                condition=models.Q(("filter_code__isnull", False)),
                fields=["-filtered_at"],
                name="task_instance_filtered_at",
            ),
        ),
        migrations.AddField(
            model_name="ghost",
            name="run",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="scheduler_app.run",
            ),
        ),
        migrations.AddIndex(
            model_name="ghostaudit",
            index=models.Index(fields=["-last_at"], name="ghost_audit_newest"),
        ),
        migrations.AddConstraint(
            model_name="ghostaudit",
            constraint=models.UniqueConstraint(
                fields=("holder", "hour"), name="ghost_audit_hour_unique"
            ),
        ),
        migrations.AddConstraint(
            model_name="taskstats",
            constraint=models.UniqueConstraint(
                fields=("flow_id", "task_id"), name="task_stats_of_task"
            ),
        ),
        migrations.AddIndex(
            model_name="ghost",
            index=models.Index(fields=["attempt_id"], name="ghost_of_attempt"),
        ),
        migrations.AddIndex(
            model_name="ghost",
            index=models.Index(fields=["run"], name="ghost_of_run"),
        ),
        migrations.AddIndex(
            model_name="ghost",
            index=models.Index(
                condition=models.Q(("ended_at__isnull", True)), fields=["id"], name="ghost_open"
            ),
        ),
        migrations.AddConstraint(
            model_name="ghost",
            constraint=models.UniqueConstraint(
                condition=models.Q(("ended_at__isnull", True)),
                fields=("kind", "subject"),
                name="ghost_open_unique",
            ),
        ),
        migrations.AddConstraint(
            model_name="ghost",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("end_reason__isnull", True), ("ended_at__isnull", True)),
                    models.Q(("end_reason__isnull", False), ("ended_at__isnull", False)),
                    _connector="OR",
                ),
                name="ghost_ended_has_reason",
            ),
        ),
        migrations.RunSQL(RECORD, "DROP VIEW record"),
        migrations.RunSQL(
            FROZEN,
            "DROP FUNCTION frozen_seconds(varchar, bigint, bigint, integer, timestamptz, timestamptz)",
        ),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),
        migrations.RunPython(first_rows, migrations.RunPython.noop),
    ]
