"""Why a task is tried again when it is, or why no try follows: kept beside the time."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("scheduler_app", "0022_turn_counter"),
    ]

    operations = [
        migrations.AddField(
            model_name="taskinstance", name="next_retry_why", field=models.JSONField(null=True)
        ),
    ]
