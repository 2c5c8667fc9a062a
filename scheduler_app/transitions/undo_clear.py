"""Undoing a clear of which nothing has started: every row that it changed is as it was before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import dict_row, tuple_row

from scheduler_app.models import Run, RunAttempt, TaskInstance
from scheduler_app.transitions.run import revise_runs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    import psycopg

# What a clear changes of an attempt; the rest (its result, its error) it never touches.
_OF_ATTEMPT: Final = (
    *("cleared", "filter_code", "filtered_at", "filter_detail", "superseded_by"),
    *("state", "is_live", "outcome", "outcome_reason", "ended_at"),
    *("stop_requested_at", "stop_reason"),
)
_FIXED: Final = {
    *("id", "run_id", "flow_id", "run_key", "shard", "task_id", "map_index", "number"),
    "revision",  # that never goes back
}


def _columns(model: type[Any]) -> tuple[str, ...]:
    """What may differ before and after: every column but those that tell one row from another."""
    return tuple(
        field.column
        for field in model._meta.concrete_fields  # noqa: SLF001 - documented by Django as public
        if field.column not in _FIXED and not field.generated
    )


def keep_rows(
    connection: psycopg.Connection[Any], *, plan_id: UUID, run_id: int, ti_ids: Sequence[int]
) -> None:
    """The plan keeps the rows that its clear is about to change; the caller holds them."""
    attempt = ", ".join(f"'{column}', p.{column}" for column in ("id", *_OF_ATTEMPT))
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE clear_plan SET undo = jsonb_build_object("  # noqa: S608 - column names of ours
            " 'run', (SELECT to_jsonb(r) FROM run r WHERE r.id = %(run)s),"
            " 'run_attempts', (SELECT coalesce(jsonb_agg(to_jsonb(a)), '[]') FROM run_attempt a"
            "    WHERE a.run_id = %(run)s),"
            " 'tis', (SELECT coalesce(jsonb_agg(to_jsonb(i)), '[]') FROM task_instance i"
            "    WHERE i.id = ANY(%(ti)s)),"
            f" 'attempts', (SELECT coalesce(jsonb_agg(jsonb_build_object({attempt})), '[]')"
            "    FROM task_instance i JOIN attempt p ON p.id = i.attempt_id WHERE i.id = ANY(%(ti)s)),"
            " 'checkpoints', (SELECT coalesce(jsonb_agg(jsonb_build_object("
            "    'id', c.id, 'scope', c.scope, 'owner', c.owner)), '[]') FROM checkpoint c"
            "    WHERE c.scope = 'task' AND c.owner = ANY(%(owner)s)))"
            " WHERE id = %(plan)s",
            {
                "plan": plan_id,
                "run": run_id,
                "ti": list(ti_ids),
                "owner": [str(ti_id) for ti_id in ti_ids],
            },
        )


def moved_since(
    connection: psycopg.Connection[Any], *, plan_id: UUID, run_id: int
) -> list[dict[str, Any]]:
    """The task instances of the clear that are not as it left them, locked with the others in id order.

    One dict each: task_id, map_index, state. The caller holds the run.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT i.id, i.task_id, i.map_index, i.state, i.state NOT IN ('none', 'scheduled')"
            "   OR i.attempt_id IS NOT NULL OR i.held_by IS NOT NULL"
            "   OR i.try_number <> (u.row->>'try_number')::int AS is_moved"
            " FROM clear_plan c, jsonb_array_elements(c.undo->'tis') AS u(row)"
            " JOIN task_instance i ON i.id = (u.row->>'id')::bigint AND i.run_id = %s"
            " WHERE c.id = %s ORDER BY i.id FOR NO KEY UPDATE OF i",
            [run_id, plan_id],
        )
        return [row for row in cursor.fetchall() if row["is_moved"]]


def put_back(
    connection: psycopg.Connection[Any],
    *,
    plan_id: UUID,
    run_id: int,
    run_attempt: int | None,
    actor: str,
) -> list[int]:
    """Every row that the clear changed is as it was; the ids of its task instances.

    The caller holds the run and locked the task instances. ``run_attempt``: the one that the clear began
    and in which nothing started; it is gone. The run's own end is put back where it had ended.
    """
    values = {"plan": plan_id, "run": run_id, "number": run_attempt, "actor": actor}
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "DELETE FROM run_attempt WHERE run_id = %(run)s AND number = %(number)s", values
        )
        cursor.execute(_restore("run_attempt", "run_attempts", _columns(RunAttempt)), values)
        cursor.execute(_restore("attempt", "attempts", _OF_ATTEMPT), values)
        cursor.execute(
            _restore("task_instance", "tis", _columns(TaskInstance)) + " RETURNING t.id", values
        )
        ids = sorted(row[0] for row in cursor.fetchall())
        revise_runs(connection, ti_ids=ids)
        cursor.execute(_restore("checkpoint", "checkpoints", ("scope", "owner")), values)
        cursor.execute(_RUN.format(columns=_pairs(_columns(Run))), values)
        cursor.execute(
            "UPDATE run r SET run_attempt = (c.undo->'run'->>'run_attempt')::int"
            " FROM clear_plan c WHERE c.id = %(plan)s AND r.id = %(run)s",
            values,
        )
        cursor.execute(
            "UPDATE clear_plan SET undone_at = clock_timestamp(), undone_by = %(actor)s"
            " WHERE id = %(plan)s",
            values,
        )
    return ids


def _pairs(columns: Sequence[str]) -> str:
    return ", ".join(f'"{column}" = u."{column}"' for column in columns)


def _restore(table: str, part: str, columns: Sequence[str]) -> str:
    return (
        f"UPDATE {table} t SET {_pairs(columns)} FROM clear_plan c,"  # noqa: S608 - names of ours
        f" jsonb_populate_recordset(null::{table}, c.undo->'{part}') u"
        f" WHERE c.id = %(plan)s AND t.id = u.id"
    )


# A run that went on all the time keeps what it came to since.
_RUN: Final = """
UPDATE run t SET {columns}
  FROM clear_plan c, jsonb_populate_record(null::run, c.undo->'run') u
 WHERE c.id = %(plan)s AND t.id = %(run)s AND u.state IN ('success', 'failed')
"""
