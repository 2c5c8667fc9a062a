"""What the database says of attempts that somebody claims to execute, in one read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg.rows import class_row

from scheduler_app.rules.ghosts import Record

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

    import psycopg

# One row per attempt that exists; the parents may be missing. Walks primary keys.
_READ = """
SELECT p.id AS attempt_id, p.kind, p.state, p.outcome, p.filter_code, p.ended_at, p.ti_id, p.task_id,
       p.map_index, p.try_number, p.shard, p.lease_token, i.attempt_id AS current_attempt_id,
       r.id AS run, r.run_key AS run_id, r.flow_id, r.state AS run_state, r.run_type,
       r.created_at AS run_created_at, r.ended_at AS run_ended_at, r.logical_date
  FROM attempt p
  LEFT JOIN task_instance i ON i.id = p.ti_id
  LEFT JOIN run r ON r.id = p.run_id
 WHERE p.id = ANY(%s)
"""


def records_of(
    connection: psycopg.Connection[Any], attempt_ids: Collection[UUID]
) -> dict[UUID, Record]:
    """The record of each attempt that has a row."""
    if not attempt_ids:
        return {}
    with connection.cursor(row_factory=class_row(Record)) as cursor:
        cursor.execute(_READ, [list(attempt_ids)])
        return {record.attempt_id: record for record in cursor.fetchall()}
