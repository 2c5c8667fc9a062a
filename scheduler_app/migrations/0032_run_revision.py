"""How often somebody moved what had ended in a run, for schedulers that keep it in memory."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("scheduler_app", "0031_sign_in"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="revision",
            field=models.IntegerField(db_default=0, default=0),
        ),
    ]
