"""Attempts of kind callback: what they call, and about which transition."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("scheduler_app", "0007_stops"),
    ]

    operations = [
        migrations.AddField(
            model_name="attempt", name="callback", field=models.JSONField(null=True)
        ),
        migrations.AddField(
            model_name="attempt",
            name="callback_key",
            field=models.CharField(max_length=250, null=True),
        ),
        # The law: one transition calls each of its callables once; what is called again after a
        # loss has a higher dispatch_no.
        migrations.AddConstraint(
            model_name="attempt",
            constraint=models.UniqueConstraint(
                fields=["callback_key", "dispatch_no"],
                condition=models.Q(callback_key__isnull=False),
                name="attempt_callback_unique",
            ),
        ),
    ]
