"""What a worker says of its own executions, and what it does about those that no record acknowledges."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings

from scheduler_app.processes.attempt_records import records_of
from scheduler_app.rules import ghosts, reconcile
from scheduler_app.transitions.executor_event import (
    Judgement,
    NewEvent,
    record_events,
    record_ghost_attempt,
)
from scheduler_app.transitions.ghost import end_ghosts_of_process, see, store_inventory
from scheduler_app.transitions.run import record_ghost_run
from scheduler_app.worker.report import signature

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import psycopg

    from scheduler_app.worker.station import Station
    from scheduler_app.worker.witness import Execution

SEEN_BY: Final = "beat"

logger = logging.getLogger(__name__)


def report_inventory(
    connection: psycopg.Connection[Any], at: Station, executions: Sequence[Execution]
) -> None:
    """The database knows what this worker executes now; ghosts of it that ended are over."""
    now = time.monotonic()
    store_inventory(
        connection,
        job_id=at.job_id,
        hostname=at.hostname,
        pid=at.main_pid,
        executions=[
            {"attempt": str(each.attempt_id), "pid": each.pid, "age_s": round(now - each.since, 3)}
            for each in executions
        ],
    )
    end_ghosts_of_process(
        connection,
        worker_job_id=at.job_id,
        executing=[(each.attempt_id, each.pid) for each in executions],
        kinds=ghosts.OF_PROCESS,
    )


def haunts(connection: psycopg.Connection[Any], at: Station, execution: Execution) -> bool:
    """The execution is recorded as the ghost that it is; whether its end is wanted.

    One without a record has an attempt and, as far as this worker remembers, a run of that standing.
    """
    seen = _execution(connection, at, execution)
    record = records_of(connection, [execution.attempt_id]).get(execution.attempt_id)
    sighting = ghosts.of_execution(seen, record, execution.known)
    if sighting is None:
        return False  # acknowledged meanwhile
    with connection.transaction():
        if sighting.kind == ghosts.NO_RECORD and (record is None or record.run is None):
            run = _record_unknown(connection, at, execution, sighting)
            known = execution.known
            sighting = replace(sighting, run=run, task_id=known.task_id if known else None)
        row, *_ = see(
            connection, sightings=[sighting], seen_by=SEEN_BY, policy=settings.GHOST_POLICY
        )
    if row.is_new:
        logger.warning(
            "a ghost: %s",
            ghosts.explain(sighting.kind, sighting.detail),
            extra={"attempt_id": str(execution.attempt_id), "kind": sighting.kind},
        )
    # The policy is about executions that the database knows nothing of; others were decided against.
    return (
        sighting.kind != ghosts.NO_RECORD
        or row.is_stop_requested
        or row.policy == ghosts.Policy.STOP
    )


def _execution(
    connection: psycopg.Connection[Any], at: Station, execution: Execution
) -> ghosts.Execution:
    return ghosts.Execution(
        attempt_id=execution.attempt_id,
        worker_job_id=at.job_id,
        hostname=at.hostname,
        pid=execution.pid,
        reported_at=_now(connection),
        age_s=round(time.monotonic() - execution.since, 1),
    )


def _now(connection: psycopg.Connection[Any]) -> datetime:
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None, "a SELECT without FROM gives one row"
    now: datetime = row[0]
    return now


def _record_unknown(
    connection: psycopg.Connection[Any],
    at: Station,
    execution: Execution,
    sighting: ghosts.Sighting,
) -> int | None:
    """The ghost's attempt, event and, if it can be told, run are recorded; the run's id."""
    known = execution.known
    source = signature(at.hostname)
    values = {**sighting.detail, "found_by": f"the inventory of {at.hostname}:{at.main_pid}"}
    run = None
    if known is not None and known.flow_id and known.run_id:
        run = record_ghost_run(
            connection,
            flow_id=known.flow_id,
            run_key=known.run_id,
            run_type=known.run_type or "manual",
            logical_date=known.logical_date,
            created_at=known.run_created_at,
            detail={**values, "rule": values["found_by"]},
        )
    verdict = reconcile.reconcile(
        reconcile.Event(
            kind=reconcile.INVENTORY, attempt_id=str(execution.attempt_id), claimed=values
        ),
        None,
        None,
        reconcile.Facts(grace_over=True, worker_alive=True),
    )
    record_ghost_attempt(
        connection,
        attempt_id=execution.attempt_id,
        code=verdict.code or "ghost_no_record",
        detail=verdict.detail,
        hostname=at.hostname,
        pid=execution.pid,
        run_id=run,
        task_id=known.task_id if known else None,
        map_index=known.map_index if known else None,
        worker_job_id=at.job_id,
        is_executed=True,
    )
    event = NewEvent(
        attempt_id=execution.attempt_id,
        kind=reconcile.INVENTORY,
        source=source,
        source_job_id=at.job_id,
        payload=values,
        dedupe_key=f"inventory:{execution.attempt_id}:{at.job_id}:{execution.pid}",
        judgement=Judgement(
            verdict=verdict.verdict,
            code=verdict.code,
            reason=verdict.reason,
            detail=verdict.detail,
        ),
    )
    record_events(connection, events=[event])
    return run
