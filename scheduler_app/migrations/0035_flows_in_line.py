"""Flows remember from which date on theirs wait in line; backfills that run all again say so."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("scheduler_app", "0034_reads_over_history"),
    ]

    operations = [
        migrations.AddField(
            model_name="flow",
            name="in_line_from",
            field=models.DateTimeField(null=True),
        ),
        migrations.RunSQL(
            "UPDATE backfill SET reprocess = 'all' WHERE reprocess = 'completed'",
            "UPDATE backfill SET reprocess = 'completed' WHERE reprocess = 'all'",
        ),
    ]
