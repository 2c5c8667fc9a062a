"""Keys that one execution at a time may hold."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("scheduler_app", "0024_artifacts"),
    ]

    operations = [
        migrations.CreateModel(
            name="Exclusive",
            fields=[
                ("key", models.CharField(max_length=250, primary_key=True, serialize=False)),
                ("attempt_id", models.UUIDField()),
                ("at", models.DateTimeField()),
            ],
            options={"db_table": "exclusive"},
        ),
    ]
