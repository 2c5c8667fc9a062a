"""The standing of a whole run: set aside with everything below it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    import psycopg

# Ready or waiting ones end; a running one is asked to end and reports by itself.
_END_TASKS: Final = """
UPDATE task_instance SET state = 'failed', is_open = false, ended_at = clock_timestamp(),
       next_method = NULL, next_kwargs = NULL
 WHERE id = ANY(%(tis)s) AND is_open AND state NOT IN ('running', 'restarting')
"""
_END_ISSUED: Final = """
UPDATE attempt SET state = 'ended', is_live = false, outcome = 'terminated',
       outcome_reason = %(reason)s, ended_at = clock_timestamp()
 WHERE run_id = %(run)s AND state = 'issued'
"""
_STOP_RUNNING: Final = """
UPDATE attempt SET stop_requested_at = clock_timestamp(), stop_reason = %(reason)s
 WHERE run_id = %(run)s AND state = 'running' AND stop_reason IS NULL
"""
_CANCEL_TRIGGERS: Final = """
UPDATE trigger SET state = 'cancelled', is_waiting = false, ended_at = clock_timestamp()
 WHERE run_id = %(run)s AND is_waiting
"""
_SET_ASIDE: Final = (
    "UPDATE run SET filter_code = %(code)s, filtered_at = clock_timestamp(),"
    " filter_detail = %(detail)s, superseded_by = %(kept)s WHERE id = %(run)s",
    "UPDATE run_attempt SET filter_code = %(code)s, filtered_at = clock_timestamp(),"
    " filter_detail = %(detail)s WHERE run_id = %(run)s",
    "UPDATE task_instance SET filter_code = %(code)s, filtered_at = clock_timestamp(),"
    " filter_detail = %(detail)s WHERE id = ANY(%(tis)s)",
    "UPDATE attempt SET filter_code = %(code)s, filtered_at = clock_timestamp(),"
    " filter_detail = %(detail)s"
    " WHERE run_id = %(run)s AND (ti_id IS NOT NULL OR kind = 'callback')",
)
_END_EMPTY: Final = """
WITH r AS (
  UPDATE run SET state = 'failed', is_active = false, ended_at = clock_timestamp(),
         state_reason = 'set aside: ' || filter_code
   WHERE is_active AND shard = ANY(%(shards)s) AND filter_code IS NOT NULL
     AND NOT EXISTS (SELECT 1 FROM attempt p WHERE p.run_id = run.id AND p.is_live)
  RETURNING id, run_attempt)
UPDATE run_attempt ra SET state = 'failed', ended_at = clock_timestamp() FROM r
 WHERE ra.run_id = r.id AND ra.number = r.run_attempt AND ra.ended_at IS NULL
"""


def set_run_aside(
    connection: psycopg.Connection[Any],
    *,
    run_id: int,
    code: str,
    detail: dict[str, Any],
    kept: int | None,
) -> bool:
    """The run and everything below it are set aside with this code, and nothing of it starts any more.

    False if it was set aside before. Running attempts are asked to stop; the run ends, once none is
    live, by ``end_runs_set_aside``. The caller proved its lease.
    """
    reason = f"its run was set aside: {code}"
    values: dict[str, Any] = {
        "run": run_id,
        "code": code,
        "detail": Jsonb(detail),
        "kept": None if kept is None else str(kept),
        "reason": reason,
    }
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM run WHERE id = %s AND filter_code IS NULL FOR NO KEY UPDATE", [run_id]
        )
        if cursor.fetchone() is None:
            return False
        cursor.execute(
            "SELECT id FROM task_instance WHERE run_id = %s ORDER BY id FOR NO KEY UPDATE", [run_id]
        )
        values["tis"] = [row["id"] if isinstance(row, dict) else row[0] for row in cursor]
        for statement in (_END_TASKS, _END_ISSUED, _STOP_RUNNING, _CANCEL_TRIGGERS, *_SET_ASIDE):
            cursor.execute(statement, values)
    return True


def end_runs_set_aside(connection: psycopg.Connection[Any], *, shards: list[int]) -> None:
    """Runs of these shards that are set aside and in which nothing is live any more have ended."""
    with connection.cursor() as cursor:
        cursor.execute(_END_EMPTY, {"shards": shards})
