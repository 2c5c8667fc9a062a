"""Laws that the database keeps itself, and the first rows: leases, default pool, counters."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import migrations

LAWS = """
-- Fences: one sequence, taken under the task instance's lock, so they grow per task instance.
CREATE SEQUENCE attempt_fence AS bigint;

-- Room for HOT updates: claim, beat and finish rewrite these rows in place.
ALTER TABLE task_instance SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE attempt SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE lease SET (fillfactor = 50);
ALTER TABLE job SET (fillfactor = 50);
ALTER TABLE counter SET (fillfactor = 50);

-- A token never falls, and every change of holder to a new one raises it.
CREATE FUNCTION lease_token_grows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.token < OLD.token THEN
    RAISE EXCEPTION 'the token of shard % would fall from % to %', OLD.shard, OLD.token, NEW.token;
  END IF;
  IF NEW.holder IS NOT NULL AND NEW.holder IS DISTINCT FROM OLD.holder AND NEW.token <= OLD.token THEN
    RAISE EXCEPTION 'shard % changed its holder without a new token', OLD.shard;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER lease_token_grows BEFORE UPDATE ON lease
  FOR EACH ROW EXECUTE FUNCTION lease_token_grows();

-- An executor event is append-only, and its verdict is set once.
CREATE FUNCTION executor_event_is_judged_once() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER executor_event_is_judged_once BEFORE UPDATE ON executor_event
  FOR EACH ROW EXECUTE FUNCTION executor_event_is_judged_once();

CREATE FUNCTION rows_are_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'rows of % are append-only', TG_TABLE_NAME;
END $$;
CREATE TRIGGER executor_event_is_kept BEFORE DELETE ON executor_event
  FOR EACH ROW EXECUTE FUNCTION rows_are_kept();
CREATE TRIGGER lease_event_is_kept BEFORE UPDATE OR DELETE ON lease_event
  FOR EACH ROW EXECUTE FUNCTION rows_are_kept();
CREATE TRIGGER audit_is_kept BEFORE UPDATE OR DELETE ON audit
  FOR EACH ROW EXECUTE FUNCTION rows_are_kept();
"""

UNDO = """
DROP TRIGGER audit_is_kept ON audit;
DROP TRIGGER lease_event_is_kept ON lease_event;
DROP TRIGGER executor_event_is_kept ON executor_event;
DROP TRIGGER executor_event_is_judged_once ON executor_event;
DROP TRIGGER lease_token_grows ON lease;
DROP FUNCTION rows_are_kept();
DROP FUNCTION executor_event_is_judged_once();
DROP FUNCTION lease_token_grows();
DROP SEQUENCE attempt_fence;
"""

COUNTERS = (
    "scheduler_executor_events_processed_total",
    "scheduler_tasks_killed_externally_total",
    "scheduler_attempts_issued_total",
    "scheduler_attempts_lost_total",
    "scheduler_deliveries_refused_total",
    "scheduler_fenced_writes_total",
    "scheduler_runs_created_total",
)


def first_rows(apps, schema_editor):  # type: ignore[no-untyped-def]  # signature set by Django
    """One lease a shard, the default pool, the installation's identity, the counters at 0."""
    del apps
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO lease (shard, token) SELECT generate_series(0, %s - 1), 0",
            [settings.SHARD_COUNT],
        )
        cursor.execute(
            "INSERT INTO pool (name, slots, description, include_deferred) VALUES"
            " ('default', %s, 'Every task that names no pool', false)",
            [settings.DEFAULT_POOL_SLOTS],
        )
        cursor.execute(
            "INSERT INTO installation (id, created_at) VALUES (%s, clock_timestamp())", [uuid.uuid4()]
        )
        cursor.executemany(
            "INSERT INTO counter (name, labels, value) VALUES (%s, '', 0)",
            [(name,) for name in COUNTERS],
        )


class Migration(migrations.Migration):
    dependencies = [("scheduler_app", "0001_records")]

    operations = [
        migrations.RunSQL(LAWS, UNDO),
        migrations.RunPython(first_rows, migrations.RunPython.noop),
    ]
