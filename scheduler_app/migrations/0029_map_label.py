"""What people see in place of the map index of a mapped task instance."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("scheduler_app", "0028_key_limits"),
    ]

    operations = [
        migrations.AddField(
            model_name="taskinstance",
            name="map_label",
            field=models.CharField(max_length=250, null=True),
        ),
    ]
