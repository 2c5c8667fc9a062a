"""What fires triggers: kinds, wake-up times, watchers; and external events."""

from __future__ import annotations

from django.db import migrations, models

COUNTERS = (
    "triggers_succeeded_total",
    "triggers_failed_total",
    "triggers_blocked_main_thread_total",
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
        ("scheduler_app", "0003_api_token"),
    ]

    operations = [
        migrations.CreateModel(
            name="ExternalEvent",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("ti_id", models.BigIntegerField()),
                ("key", models.CharField(max_length=250)),
                ("payload", models.JSONField(null=True)),
                ("actor", models.CharField(max_length=250)),
                ("received_at", models.DateTimeField()),
                ("trigger_id", models.BigIntegerField(null=True)),
                ("taken_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "external_event",
            },
        ),
        migrations.RemoveIndex(
            model_name="trigger",
            name="trigger_waiting",
        ),
        migrations.AddField(
            model_name="trigger",
            name="block_count",
            field=models.IntegerField(default=0),
        ),
        migrations.AddField(
            model_name="trigger",
            name="event_key",
            field=models.CharField(max_length=250, null=True),
        ),
        migrations.AddField(
            model_name="trigger",
            name="kind",
            field=models.CharField(default="watched", max_length=8),
        ),
        migrations.AddField(
            model_name="trigger",
            name="wake_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddIndex(
            model_name="trigger",
            index=models.Index(
                condition=models.Q(("is_waiting", True)), fields=["wake_at"], name="trigger_wake"
            ),
        ),
        migrations.AddIndex(
            model_name="trigger",
            index=models.Index(
                condition=models.Q(("is_waiting", True), ("kind", "watched")),
                fields=["triggerer_job_id"],
                name="trigger_watched",
            ),
        ),
        migrations.AddIndex(
            model_name="externalevent",
            index=models.Index(
                condition=models.Q(("trigger_id__isnull", True)),
                fields=["ti_id", "id"],
                name="external_event_early",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["flow", "logical_date"], name="run_of_date"),
        ),
        migrations.RunPython(first_rows, migrations.RunPython.noop),
    ]
