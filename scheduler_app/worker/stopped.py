"""An execution that had to stop and ended without a report: its attempt is terminated by its worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import dict_row

from scheduler_app.rules import callbacks
from scheduler_app.rules.definition import from_dict
from scheduler_app.rules.retry import RetryDecision
from scheduler_app.rules.states import TaskState
from scheduler_app.transitions.attempt import fail_killed
from scheduler_app.transitions.callback import NewCallbacks, end_killed_callback
from scheduler_app.worker.report import TIME_LIMIT, after_failure

if TYPE_CHECKING:
    from uuid import UUID

    import psycopg


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """Why it had to stop and what ended it, and whether another try may follow."""

    reason: str
    may_retry: bool  # it reached a limit of its own; else a person wanted it to end


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What moved by it."""

    run_id: int
    ti_id: int
    has_callbacks: bool  # that wait to be published


def record_stopped(
    connection: psycopg.Connection[Any],
    stopped: Stopped,
    *,
    attempt_id: UUID,
    job_id: UUID,
    pid: int,
) -> Moved | None:
    """The attempt is terminated if that process had claimed it and it is the current one.

    So a child that hung with a second delivery in its hands takes nothing away from the first.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(_CLAIMED, [attempt_id, job_id, pid])
        row = cursor.fetchone()
    if row is None:
        end_killed_callback(
            connection,
            attempt_id=attempt_id,
            worker_job_id=job_id,
            pid=pid,
            reason=stopped.reason,
        )
        return None
    task = from_dict(row["definition"]).task(row["task_id"])
    state, follows = TaskState.FAILED, RetryDecision(retries=False)
    if stopped.may_retry:
        state, follows = after_failure(
            task,
            TIME_LIMIT,
            try_number=row["try_number"],
            max_tries=row["max_tries"],
            budget_start=row["budget_start"],
            jitter_key=f"{row['run_key']}:{row['task_id']}:{row['map_index']}",
        )
    # A person who asked for a stop knows; a limit is the task's own failure.
    calls = callbacks.due(task.callbacks, state) if stopped.may_retry else ()
    with connection.transaction():
        run_id = fail_killed(
            connection,
            attempt_id=attempt_id,
            state=state,
            is_open=state is TaskState.UP_FOR_RETRY,
            retry_after_s=follows.delay_s,
            retry_why=follows.why,
            max_tries=follows.max_tries,
            reason=stopped.reason,
            callbacks=NewCallbacks.of(calls, state=state),
        )
    if run_id is None:
        return None
    return Moved(run_id=run_id, ti_id=row["ti_id"], has_callbacks=bool(calls))


_CLAIMED: Final = """
SELECT i.id AS ti_id, i.task_id, i.map_index, i.try_number, i.max_tries, i.budget_start, r.run_key,
       v.definition
  FROM attempt p JOIN task_instance i ON i.id = p.ti_id AND i.attempt_id = p.id
  JOIN run r ON r.id = i.run_id JOIN flow_version v ON v.id = r.version_id
 WHERE p.id = %s AND p.worker_job_id = %s AND p.pid = %s
"""
