"""What a person may do about leadership: force a release, drain a scheduler, mark a record reviewed.

And how far each process's clock is from the database's.
"""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("scheduler_app", "0015_run_retry_and_guards"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="clock_ahead_s",
            field=models.FloatField(null=True),
        ),
        migrations.AddField(
            model_name="job",
            name="clock_within_s",
            field=models.FloatField(null=True),
        ),
        migrations.AddField(
            model_name="job",
            name="drain_reason",
            field=models.TextField(blank=True, db_default="", default=""),
        ),
        migrations.AddField(
            model_name="job",
            name="drain_requested_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="job",
            name="drain_requested_by",
            field=models.CharField(blank=True, db_default="", default="", max_length=250),
        ),
        migrations.AddField(
            model_name="lease",
            name="forced_by",
            field=models.CharField(blank=True, db_default="", default="", max_length=250),
        ),
        migrations.CreateModel(
            name="Reviewed",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("key", models.CharField(max_length=300)),
                ("actor", models.CharField(max_length=250)),
                ("note", models.TextField(blank=True, default="")),
                ("at", models.DateTimeField()),
            ],
            options={
                "db_table": "reviewed",
                "constraints": [
                    models.UniqueConstraint(fields=("key",), name="reviewed_of_record")
                ],
            },
        ),
    ]
