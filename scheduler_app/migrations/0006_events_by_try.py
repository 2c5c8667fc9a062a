"""Executor events by (task, try): compared values of every verdict, and a guard over what was said."""

from __future__ import annotations

from django.db import migrations, models

COUNTERS = (
    "scheduler_orphaned_tasks_adopted_total",
    "scheduler_orphaned_tasks_cleared_total",
)

GUARD = """
CREATE OR REPLACE FUNCTION executor_event_is_judged_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.verdict <> 'pending' THEN
    RAISE EXCEPTION 'executor event % is judged already: %', OLD.id, OLD.verdict;
  END IF;
  IF (NEW.attempt_id, NEW.ti_id, NEW.try_number, NEW.kind, NEW.source, NEW.payload, NEW.received_at)
     IS DISTINCT FROM
     (OLD.attempt_id, OLD.ti_id, OLD.try_number, OLD.kind, OLD.source, OLD.payload, OLD.received_at)
  THEN
    RAISE EXCEPTION 'what executor event % says cannot be changed', OLD.id;
  END IF;
  RETURN NEW;
END $$;
"""

GUARD_BEFORE = """
CREATE OR REPLACE FUNCTION executor_event_is_judged_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.verdict <> 'pending' THEN
    RAISE EXCEPTION 'executor event % is judged already: %', OLD.id, OLD.verdict;
  END IF;
  IF (NEW.attempt_id, NEW.kind, NEW.source, NEW.payload, NEW.received_at)
     IS DISTINCT FROM (OLD.attempt_id, OLD.kind, OLD.source, OLD.payload, OLD.received_at) THEN
    RAISE EXCEPTION 'what executor event % says cannot be changed', OLD.id;
  END IF;
  RETURN NEW;
END $$;
"""


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
    dependencies = [("scheduler_app", "0005_leases")]

    operations = [
        migrations.AddField(
            model_name="executorevent",
            name="verdict_detail",
            field=models.JSONField(null=True),
        ),
        # What is said of a task instance without an attempt id is looked for under its task instance.
        migrations.AddIndex(
            model_name="executorevent",
            index=models.Index(
                fields=["ti_id", "try_number", "id"],
                condition=models.Q(attempt_id__isnull=True, ti_id__isnull=False),
                name="executor_event_by_try",
            ),
        ),
        migrations.RunSQL(GUARD, GUARD_BEFORE),
        migrations.RunPython(first_rows, migrations.RunPython.noop),
    ]
