"""How often a transactional group of a run was begun, and what came of it."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("scheduler_app", "0019_alert_counters"),
    ]

    operations = [
        migrations.CreateModel(
            name="GroupAttempt",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("group_id", models.CharField(max_length=250)),
                ("number", models.IntegerField()),
                ("budget_start", models.IntegerField(default=0)),
                ("cause", models.CharField(max_length=40)),
                ("state", models.CharField(max_length=16)),
                ("reason", models.TextField(blank=True, default="")),
                ("is_current", models.BooleanField(default=True)),
                ("started_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
                ("retry_at", models.DateTimeField(null=True)),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="group_attempts",
                        to="scheduler_app.run",
                    ),
                ),
            ],
            options={"db_table": "group_attempt"},
        ),
        migrations.AddConstraint(
            model_name="groupattempt",
            constraint=models.UniqueConstraint(
                fields=("run", "group_id", "number"), name="group_attempt_number"
            ),
        ),
        migrations.AddConstraint(
            model_name="groupattempt",
            constraint=models.UniqueConstraint(
                condition=models.Q(("is_current", True)),
                fields=("run", "group_id"),
                name="group_attempt_current",
            ),
        ),
    ]
