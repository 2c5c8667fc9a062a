"""Run retries: a failed run waits for its next run attempt, begins it, or is left as it is."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import dict_row

from scheduler_app.rules import clear as rules
from scheduler_app.rules import run_retry
from scheduler_app.transitions import clear as moves
from scheduler_app.transitions.audit import record_audit
from scheduler_app.transitions.counters import count
from scheduler_app.transitions.ids import uuid7

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    import psycopg

    from scheduler_app.rules.definition import FlowDefinition

REASON_CHARACTERS_MAX: Final = 250  # the column's width
CAUSES_MAX: Final = 200
SIBLING_STOP: Final = "Its run is retried"  # how the reason of a stopped sibling begins
_TIMEOUT: Final = "TaskTimeout"  # the type of a task that took longer than its timeout


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The run attempt that began."""

    plan_id: UUID
    run_attempt: int
    ti_ids: tuple[int, ...]


def causes_of(
    connection: psycopg.Connection[Any], *, run_id: int, is_overdue: bool
) -> tuple[list[run_retry.Cause], str]:
    """Why tasks of the run failed by themselves, and who marked one of them failed (empty: nobody).

    Those that were stopped for the retry's sake are none. Walks ``task_instance_unique``.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT i.task_id, i.stop_requested_at IS NOT NULL AS is_stopped, i.stop_reason,"
            "  i.mark->>'actor' AS marked_by, p.outcome, p.error->>'type' AS type,"
            "  ARRAY(SELECT jsonb_array_elements_text(coalesce(p.error->'bases', '[]'))) AS bases"
            " FROM task_instance i LEFT JOIN attempt p ON p.id = i.attempt_id"
            " WHERE i.run_id = %s AND i.state = 'failed' AND i.filter_code IS NULL"
            " ORDER BY i.id LIMIT %s",
            [run_id, CAUSES_MAX],
        )
        rows = cursor.fetchall()
    marked_by = next((row["marked_by"] for row in rows if row["marked_by"]), "")
    causes = [
        run_retry.Cause(
            task_id=row["task_id"],
            names=run_retry.names_of(
                error=row["type"] or "", bases=row["bases"], how=_how(row, is_overdue)
            ),
        )
        for row in rows
        if not (row["stop_reason"] or "").startswith(SIBLING_STOP)
    ]
    return causes, marked_by


def _how(row: Mapping[str, Any], is_overdue: bool) -> run_retry.How:
    if row["type"] == _TIMEOUT or (row["is_stopped"] and is_overdue):
        return run_retry.How.TIMED_OUT
    if row["outcome"] == "lost":
        return run_retry.How.LOST
    if row["outcome"] == "terminated":
        return run_retry.How.KILLED
    return run_retry.How.FAILED


def wait_for_retry(
    connection: psycopg.Connection[Any], *, run_id: int, in_s: float, reason: str
) -> None:
    """The run, which failed, begins its next run attempt in so many seconds."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE run SET retry_at = clock_timestamp() + make_interval(secs => %s::float8),"
            "  retry_reason = %s WHERE id = %s AND state = 'failed'",
            [in_s, reason[:REASON_CHARACTERS_MAX], run_id],
        )


def leave_failed(connection: psycopg.Connection[Any], *, run_id: int, reason: str) -> bool:
    """No run attempt follows by itself, for this reason; whether one was waited for."""
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "WITH old AS (SELECT id, retry_at FROM run WHERE id = %s)"
            " UPDATE run SET retry_at = NULL, retry_reason = %s FROM old WHERE run.id = old.id"
            " RETURNING old.retry_at",
            [run_id, reason[:REASON_CHARACTERS_MAX]],
        )
        row = cursor.fetchone()
    return row is not None and row["retry_at"] is not None


def bar_retry(connection: psycopg.Connection[Any], *, run_id: int, why: str) -> None:
    """The policy keeps out until something of the run is cleared: a person ended it or part of it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE run SET retry_barred = %s, retry_at = NULL WHERE id = %s",
            [why[:REASON_CHARACTERS_MAX], run_id],
        )


def count_retry(connection: psycopg.Connection[Any], *, run_id: int, seen: int, cap: int) -> bool:
    """Whether the run's counter went up by one now: it was still as it was seen, and below the cap.

    In the transaction that begins the run attempt. ``cap``: run retries, the first go not counted.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE run SET retry_count = retry_count + 1"
            " WHERE id = %s AND state = 'failed' AND retry_count = %s AND retry_count < %s",
            [run_id, seen, cap],
        )
        is_counted = cursor.rowcount == 1
    if is_counted:
        count(connection, "scheduler_run_retries_total", 1)
    return is_counted


def select_for_retry(
    connection: psycopg.Connection[Any],
    *,
    run_id: int,
    definition: FlowDefinition,
    options: rules.Options,
) -> tuple[rules.Selection, dict[int, dict[str, Any]]]:
    """What the next run attempt takes up again, and the rows, locked in id order.

    The caller holds the run.
    """
    rows = {row["id"]: row for row in moves.lock_instances(connection, run_id=run_id)}
    selection = rules.select(
        [candidate(row) for row in rows.values()],
        upstream={task.task_id: task.upstream for task in definition.tasks},
        retries={task.task_id: task.retries for task in definition.tasks},
        definition=definition,
        asked=None,
        options=options,
    )
    return selection, rows


def candidate(row: Mapping[str, Any]) -> rules.Candidate:
    """A task instance as the rules of clearing see it."""
    return rules.Candidate(
        id=row["id"],
        task_id=row["task_id"],
        map_index=row["map_index"],
        state=row["state"],
        try_number=row["try_number"],
        attempt_id=None if row["attempt_id"] is None else str(row["attempt_id"]),
        held_by=row["held_by"],
        is_asked_to_stop=row["is_asked_to_stop"],
    )


def begin_run_attempt(
    connection: psycopg.Connection[Any],
    *,
    run: Mapping[str, Any],
    definition: FlowDefinition,
    options: rules.Options,
    selection: rules.Selection,
    rows: Mapping[int, Mapping[str, Any]],
    actor: str,
    reason: str,
    cause: str = "run_retry",
) -> Begun:
    """The run is queued again in its next run attempt, with what was selected; audited, with its plan.

    ``run`` is locked, as ``lock_run`` gives it; for a run retry the caller raised its counter.
    """
    number = run["run_attempt"] + 1
    by = moves.Clear(id=uuid7(), actor=actor, reason=reason, new_run_attempt=number, cause=cause)
    about = {
        "run": run["id"],
        "run_attempt": run["run_attempt"],
        "options": asdict(options),
    }
    moves.keep_plan(
        connection,
        plan_id=by.id,
        run_id=run["id"],
        ti_ids=None,
        options=asdict(options),
        fingerprint=rules.fingerprint(about, selection),
        content=rules.facts(selection),
        actor=actor,
        valid_s=rules.PLAN_VALID_S,
    )
    moves.use_plan(connection, plan_id=by.id)
    tasks = {task.task_id: task for task in definition.tasks}
    chosen = [one for one in selection.included if one.id is not None and one.task_id in tasks]
    now = moves.clear_task_instances(
        connection,
        cleared=[
            moves.Cleared(
                ti_id=one.id,
                state=one.state,
                attempt_id=rows[one.id]["attempt_id"],
                task=tasks[one.task_id],
            )
            for one in chosen
            if one.id is not None
        ],
        by=by,
    )
    if not options.keep_checkpoints:
        moves.put_checkpoints_away(connection, ti_ids=list(now), by=by)
    moves.reopen_run(connection, run_id=run["id"], by=by)
    record_audit(
        connection,
        actor=actor,
        action="retry" if cause == "run_retry" else cause,
        object_kind="run",
        object_id=str(run["id"]),
        flow_id=run["flow_id"],
        reason=reason,
        before={"run_state": run["state"], "run_attempt": run["run_attempt"]},
        after={
            "run_attempt": number,
            "plan": str(by.id),
            "options": asdict(options),
            "task_instances": len(now),
        },
    )
    return Begun(plan_id=by.id, run_attempt=number, ti_ids=tuple(now))


def due_runs(
    connection: psycopg.Connection[Any], *, shards: Sequence[int], limit: int
) -> tuple[list[int], float | None]:
    """Runs whose next run attempt is due, oldest first, and in how many seconds the next one is.

    Walks ``run_retry_due``.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT r.id, extract(epoch FROM r.retry_at - clock_timestamp())::float8 AS in_s"
            " FROM run r JOIN flow f ON f.flow_id = r.flow_id"
            " WHERE r.shard = ANY(%s) AND r.retry_at IS NOT NULL AND r.filter_code IS NULL"
            "  AND r.frozen_at IS NULL AND f.frozen_at IS NULL"
            " ORDER BY r.retry_at LIMIT %s",
            [list(shards), limit],
        )
        rows = cursor.fetchall()
    later = [row["in_s"] for row in rows if row["in_s"] > 0]
    return [row["id"] for row in rows if row["in_s"] <= 0], min(later, default=None)


def flow_of(connection: psycopg.Connection[Any], *, run_id: int) -> str | None:
    """The flow of the run, which never changes."""
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute("SELECT flow_id FROM run WHERE id = %s", [run_id])
        row = cursor.fetchone()
    return None if row is None else str(row["flow_id"])


def is_due(connection: psycopg.Connection[Any], *, run_id: int) -> bool:
    """Whether the run, which the caller holds, may begin its next run attempt by now."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM run WHERE id = %s AND retry_at <= clock_timestamp()", [run_id]
        )
        return cursor.fetchone() is not None
