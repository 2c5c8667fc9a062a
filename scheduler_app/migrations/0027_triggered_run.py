"""Which task instance triggered which run."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("scheduler_app", "0026_run_retry_counters"),
    ]

    operations = [
        migrations.CreateModel(
            name="TriggeredRun",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("parent_run_id", models.BigIntegerField()),
                ("ti_id", models.BigIntegerField()),
                ("attempt_id", models.UUIDField()),
                ("budget_start", models.IntegerField()),
                ("try_number", models.IntegerField()),
                ("key", models.CharField(max_length=250)),
                ("run_id", models.BigIntegerField()),
                ("how", models.CharField(max_length=8)),
                ("depth", models.IntegerField()),
                ("waits", models.BooleanField(db_default=False, default=False)),
                ("on_stop", models.CharField(max_length=10)),
                ("is_watched", models.BooleanField(db_default=False, default=False)),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "db_table": "triggered_run",
                "indexes": [
                    models.Index(fields=["run_id"], name="triggered_run_of_run"),
                    models.Index(fields=["parent_run_id"], name="triggered_run_of_parent"),
                    models.Index(
                        condition=models.Q(("is_watched", True)),
                        fields=["id"],
                        name="triggered_run_watched",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("ti_id", "budget_start", "key", "try_number"),
                        name="triggered_run_once",
                    )
                ],
            },
        ),
    ]
