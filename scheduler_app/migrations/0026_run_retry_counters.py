"""The counters of run retries and of automatic actions that wait for a person, from 0."""

from __future__ import annotations

from django.db import migrations

COUNTERS = ("scheduler_run_retries_total", "scheduler_automatic_actions_held_total")


def first_rows(apps, schema_editor):  # type: ignore[no-untyped-def]  # signature set by Django
    """The counters at 0."""
    del apps
    with schema_editor.connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO counter (name, labels, value) VALUES (%s, '', 0)"
            " ON CONFLICT (name, labels) DO NOTHING",
            [(name,) for name in COUNTERS],
        )


class Migration(migrations.Migration):
    dependencies = [
        ("scheduler_app", "0025_exclusive"),
    ]

    operations = [migrations.RunPython(first_rows, migrations.RunPython.noop)]
