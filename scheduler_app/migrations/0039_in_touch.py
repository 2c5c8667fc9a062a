"""Since when a session's process has been in touch with the database, for who judges silence."""

from __future__ import annotations

from django.db import migrations

# Bodies are looked up along the search path when they run, so that a test may set the clock.
MAKE = """
CREATE FUNCTION in_touch_since() RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT greatest(pg_postmaster_start_time(),
                  nullif(current_setting('daylight.in_touch_since', true), '')::timestamptz)
$$;
"""
UNDO = "DROP FUNCTION in_touch_since()"


class Migration(migrations.Migration):
    dependencies = [
        ("scheduler_app", "0038_connections"),
    ]

    operations = [
        migrations.RunSQL(MAKE, UNDO),
    ]
