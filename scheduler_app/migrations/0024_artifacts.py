"""What attempts show of their work: links, tables, notes."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("scheduler_app", "0023_next_retry_why"),
    ]

    operations = [
        migrations.CreateModel(
            name="Artifact",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("attempt_id", models.UUIDField()),
                ("ti_id", models.BigIntegerField()),
                ("try_number", models.IntegerField()),
                ("fence", models.BigIntegerField()),
                ("key", models.CharField(max_length=250)),
                ("kind", models.CharField(max_length=10)),
                ("title", models.CharField(max_length=250)),
                ("body", models.JSONField()),
                ("at", models.DateTimeField()),
            ],
            options={
                "db_table": "artifact",
                "constraints": [
                    models.UniqueConstraint(fields=["attempt_id", "key"], name="artifact_unique")
                ],
                "indexes": [models.Index(fields=["ti_id", "fence"], name="artifact_of_ti")],
            },
        ),
    ]
