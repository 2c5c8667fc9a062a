"""Stops that people ask for, when a job is alive, and what jobs count."""

from __future__ import annotations

from django.db import migrations, models

# The one definition of a live job. ``alive_s``: how old its heartbeat may be, in seconds.
ALIVE = """
CREATE FUNCTION job_is_alive(
  ended_at timestamptz, heartbeat_at timestamptz, alive_s double precision
) RETURNS boolean LANGUAGE sql VOLATILE AS $$
  SELECT ended_at IS NULL AND heartbeat_at > clock_timestamp() - make_interval(secs => alive_s)
$$;
"""

UNDO = "DROP FUNCTION job_is_alive(timestamptz, timestamptz, double precision)"

COUNTERS = tuple(
    f"{kind}_{what}_total"
    for kind in ("scheduler", "triggerer", "worker", "web")
    for what in ("start", "end", "heartbeat_failure")
)


def first_rows(apps, schema_editor):  # type: ignore[no-untyped-def]  # signature set by Django
    """The counters at 0."""
    del apps
    with schema_editor.connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO counter (name, labels, value) VALUES (%s, '', 0)"
            " ON CONFLICT (name, labels) DO NOTHING",
            [(name,) for name in COUNTERS],
        )


class Migration(migrations.Migration):
    dependencies = [
        ("scheduler_app", "0006_events_by_try"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="beat_nonce",
            field=models.UUIDField(null=True),
        ),
        migrations.AddField(
            model_name="job",
            name="stop_reason",
            field=models.TextField(blank=True, default=""),
        ),
        migrations.AddField(
            model_name="job",
            name="stop_requested_by",
            field=models.CharField(blank=True, default="", max_length=250),
        ),
        migrations.AddField(
            model_name="taskinstance",
            name="stop_reason",
            field=models.TextField(null=True),
        ),
        migrations.AddField(
            model_name="taskinstance",
            name="stop_requested_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.RunSQL(ALIVE, UNDO),
        migrations.RunPython(first_rows, migrations.RunPython.noop),
    ]
