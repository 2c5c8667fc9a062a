"""A freeze may hold one task of a run, with all of its instances."""
from __future__ import annotations

from django.db import migrations, models

# How many seconds between two instants some freeze held this task instance; overlaps count once.
FROZEN = """
CREATE OR REPLACE FUNCTION frozen_seconds(
  of_flow varchar, of_run bigint, of_ti bigint, of_shard integer,
  began timestamptz, ended timestamptz) RETURNS double precision LANGUAGE sql STABLE AS $$
  SELECT coalesce(sum(extract(epoch FROM upper(held) - lower(held))), 0)::double precision
    FROM unnest((
      SELECT range_agg(tstzrange(greatest(f.created_at, began),
                                 least(coalesce(f.ended_at, 'infinity'), ended)))
        FROM "freeze" f
       WHERE f.created_at < ended AND coalesce(f.ended_at, 'infinity') > began AND began < ended
         AND (f.scope_kind = 'all'
              OR (f.scope_kind = 'flow' AND f.scope_id = of_flow)
              OR (f.scope_kind = 'run' AND f.scope_id = of_run::varchar)
              OR (f.scope_kind = 'task' AND f.scope_id = of_run || ':' ||
                  (SELECT i.task_id FROM task_instance i WHERE i.id = of_ti))
              OR (f.scope_kind = 'task_instance' AND f.scope_id = of_ti::varchar)
              OR (f.scope_kind = 'shard' AND f.scope_id = of_shard::varchar)))) held
$$
"""
BEFORE = FROZEN.replace(
    """              OR (f.scope_kind = 'task' AND f.scope_id = of_run || ':' ||
                  (SELECT i.task_id FROM task_instance i WHERE i.id = of_ti))
""",
    "",
)


class Migration(migrations.Migration):
    dependencies = [
        ("scheduler_app", "0032_run_revision"),
    ]

    operations = [
        migrations.AlterField(
            model_name="freeze",
            name="scope_id",
            field=models.CharField(blank=True, default="", max_length=280),
        ),
        migrations.RunSQL(FROZEN, BEFORE),
    ]
