"""Runs that shall end with the task that triggered them: ended when that has stopped."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.rules.states import RUN_TERMINAL, RunState, TaskState
from scheduler_app.transitions import triggered_run as moves
from scheduler_app.transitions.audit import record_audit
from scheduler_app.transitions.run import end_queued_run, lock_run
from scheduler_app.transitions.run_retry import bar_retry
from scheduler_app.transitions.task_instance import lock_open, terminate

if TYPE_CHECKING:
    import psycopg

    from scheduler_app.scheduler.leases import Leases

BATCH_MAX: Final = 100  # runs looked at in one sweep

logger = logging.getLogger(__name__)


def end_with_their_tasks(
    connection: psycopg.Connection[Any], *, leases: Leases, terms: dict[int, int]
) -> set[int]:
    """Each run whose task failed, was stopped, marked or cleared is asked to end; those runs.

    Where the task succeeded, or the run has ended, nothing is left to look at. What is frozen is
    looked at again later.
    """
    found = moves.stopped_parents(connection, shards=list(terms), limit=BATCH_MAX)
    moved = set()
    for one in found:
        with connection.transaction():
            leases.prove(connection, terms)
            if _goes_on(one) or _end(connection, one):
                moves.settle(connection, link_ids=[one.id])
                if not _goes_on(one):
                    moved.add(one.run_id)
    return moved


def _goes_on(one: moves.Stopped) -> bool:
    """Whether the run is left alone: it has ended, or its task succeeded in this execution."""
    has_ended = not (one.is_active or one.will_retry)
    return has_ended or (one.state == TaskState.SUCCESS and not one.is_anew)


def _end(connection: psycopg.Connection[Any], one: moves.Stopped) -> bool:
    """Whether the run was asked to end, or needs not be."""
    run = lock_run(connection, run_id=one.run_id)
    if run is None or (RunState(run["state"]) in RUN_TERMINAL and run["retry_at"] is None):
        return True
    if run["is_frozen"]:
        return False
    what = "was cleared" if one.is_anew else f"is {one.state}"
    reason = (
        f"Task {one.parent_flow_id}.{one.task_id}, which triggered it, {what}: on_stop=terminate."
    )
    opened = lock_open(connection, run_id=one.run_id)
    ids = [i.id for i in opened if i.held_by is None and not i.is_asked_to_stop]
    terminate(connection, ti_ids=ids, reason=reason)
    # What its task gave up, no policy begins again.
    bar_retry(connection, run_id=one.run_id, why=reason)
    if run["state"] == RunState.QUEUED:
        end_queued_run(connection, run_id=one.run_id, reason=reason)
    record_audit(
        connection,
        actor="scheduler",
        action="terminate",
        object_kind="run",
        object_id=str(one.run_id),
        flow_id=run["flow_id"],
        reason=reason,
        before={"run_id": run["run_key"], "state": run["state"], "triggered_by_ti": one.ti_id},
    )
    logger.warning(
        "a run ends with the task that triggered it",
        extra={"run": one.run_id, "ti": one.ti_id, "task_state": one.state},
    )
    return all(i.held_by is None for i in opened)
