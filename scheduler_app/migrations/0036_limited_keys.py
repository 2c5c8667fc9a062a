"""Every key of a limit that there is: set by an operator, held or waited for."""

from __future__ import annotations

from django.db import migrations, models

# Costs what is live and what waits. The rule that holds for a key is the longest that fits it, as in
# ``rules/limits.py``; where there is none, each task has its own number.
LIMITED_KEY = """
CREATE VIEW limited_key AS
WITH held AS (
  SELECT k.key, count(*)::int AS number
    FROM attempt a, LATERAL jsonb_array_elements_text(a.limit_keys) k (key)
   WHERE a.is_live AND a.kind = 'task' AND a.filter_code IS NULL GROUP BY 1),
waits AS (
  SELECT i.wait->>'about' AS key, count(*)::int AS number,
         min((i.wait->>'since')::timestamptz) AS since
    FROM task_instance i JOIN run r ON r.id = i.run_id
   WHERE i.is_open AND i.held_by IS NULL AND i.wait->>'code' = 'key_limit'
     AND i.state IN ('scheduled', 'up_for_retry', 'up_for_reschedule')
     AND i.filter_code IS NULL AND r.is_active AND r.filter_code IS NULL GROUP BY 1),
every AS (
  SELECT key FROM key_limit UNION SELECT key FROM held UNION SELECT key FROM waits)
SELECT e.key::varchar(250) AS key, coalesce(l.slots, p.slots) AS slots,
       CASE WHEN l.key IS NULL THEN p.key END AS rule, l.key IS NOT NULL AS is_set,
       coalesce(l.description, '') AS description, coalesce(h.number, 0) AS held,
       coalesce(w.number, 0) AS waiting, w.since AS waits_since
  FROM every e LEFT JOIN key_limit l ON l.key = e.key LEFT JOIN held h ON h.key = e.key
  LEFT JOIN waits w ON w.key = e.key LEFT JOIN LATERAL (
    SELECT key, slots FROM key_limit
     WHERE key LIKE '%*' AND starts_with(e.key, left(key, -1))
     ORDER BY length(key) DESC LIMIT 1) p ON l.key IS NULL;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("scheduler_app", "0035_flows_in_line"),
    ]

    operations = [
        migrations.RunSQL(LIMITED_KEY, "DROP VIEW limited_key;"),
        migrations.CreateModel(
            name="LimitedKey",
            fields=[
                ("key", models.CharField(max_length=250, primary_key=True, serialize=False)),
                ("slots", models.IntegerField(null=True)),
                ("rule", models.CharField(max_length=250, null=True)),
                ("is_set", models.BooleanField()),
                ("description", models.TextField()),
                ("held", models.IntegerField()),
                ("waiting", models.IntegerField()),
                ("waits_since", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "limited_key",
                "managed": False,
            },
        ),
    ]
