"""Limits of keys, and the keys that an attempt holds a slot of."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("scheduler_app", "0027_triggered_run"),
    ]

    operations = [
        migrations.CreateModel(
            name="KeyLimit",
            fields=[
                ("key", models.CharField(max_length=250, primary_key=True, serialize=False)),
                ("slots", models.IntegerField()),
                ("description", models.TextField(blank=True, default="")),
            ],
            options={"db_table": "key_limit"},
        ),
        migrations.AddField(
            model_name="attempt",
            name="limit_keys",
            field=models.JSONField(null=True),
        ),
    ]
