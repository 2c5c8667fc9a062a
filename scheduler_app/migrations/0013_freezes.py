"""What a freeze needs to know of what it holds: since when, and which attempt it stopped."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("scheduler_app", "0012_checkpoints"),
    ]

    operations = [
        migrations.AddField(
            model_name="taskinstance", name="held_at", field=models.DateTimeField(null=True)
        ),
        migrations.AddField(
            model_name="taskinstance",
            name="frozen_attempt_id",
            field=models.UUIDField(null=True),
        ),
        migrations.AddIndex(
            model_name="taskinstance",
            index=models.Index(
                condition=models.Q(("held_by__isnull", False)),
                fields=["held_by"],
                name="task_instance_held",
            ),
        ),
    ]
