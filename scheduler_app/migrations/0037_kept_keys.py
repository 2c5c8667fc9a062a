"""Who waits for slots of a key that are kept for another counts among those that wait for it."""

from __future__ import annotations

import importlib

from django.db import migrations

BEFORE = importlib.import_module("scheduler_app.migrations.0036_limited_keys").LIMITED_KEY
ONE, BOTH = "i.wait->>'code' = 'key_limit'", "i.wait->>'code' IN ('key_limit', 'key_kept')"


class Migration(migrations.Migration):
    dependencies = [
        ("scheduler_app", "0036_limited_keys"),
    ]

    operations = [
        migrations.RunSQL(
            "DROP VIEW limited_key;" + BEFORE.replace(ONE, BOTH),
            "DROP VIEW limited_key;" + BEFORE,
        ),
    ]
