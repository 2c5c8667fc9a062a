"""Variables: sealed values of secrets, a version for compare-and-set, and the history of changes."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("scheduler_app", "0017_incidents"),
    ]

    operations = [
        migrations.AddField(
            model_name="variable", name="sealed", field=models.TextField(null=True)
        ),
        migrations.AddField(
            model_name="variable",
            name="sealed_with",
            field=models.CharField(blank=True, default="", max_length=16),
        ),
        migrations.AddField(
            model_name="variable", name="version", field=models.BigIntegerField(default=1)
        ),
        migrations.AddConstraint(
            model_name="variable",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("sealed__isnull", True),
                    models.Q(("is_secret", True), ("value__isnull", True)),
                    _connector="OR",
                ),
                name="variable_sealed_or_clear",
            ),
        ),
        migrations.CreateModel(
            name="VariableChange",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("key", models.CharField(max_length=250)),
                ("version", models.BigIntegerField()),
                ("at", models.DateTimeField()),
                ("actor", models.CharField(max_length=250)),
                ("action", models.CharField(max_length=12)),
                ("reason", models.TextField(blank=True, default="")),
                ("before", models.JSONField(null=True)),
                ("after", models.JSONField(null=True)),
                ("was_secret", models.BooleanField(null=True)),
                ("is_secret", models.BooleanField(null=True)),
                ("flow_id", models.CharField(max_length=250, null=True)),
                ("attempt_id", models.UUIDField(null=True)),
                ("call_id", models.UUIDField(null=True)),
            ],
            options={
                "db_table": "variable_change",
                "indexes": [
                    models.Index(fields=["key", "-id"], name="variable_change_of_key"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("call_id__isnull", False)),
                        fields=("call_id",),
                        name="variable_change_of_call",
                    ),
                ],
            },
        ),
    ]
