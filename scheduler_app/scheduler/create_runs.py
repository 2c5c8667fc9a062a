"""Due schedules become runs: one run per data interval, and the cursor moves with it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.rows import dict_row, tuple_row

from scheduler_app.processes import failpoints
from scheduler_app.rules import timetable
from scheduler_app.rules.definition import from_dict
from scheduler_app.rules.run_keys import scheduled_run_key
from scheduler_app.rules.states import RunType
from scheduler_app.transitions.flow_cursor import move_cursor
from scheduler_app.transitions.run import NewRun, create_failed_run, create_run

if TYPE_CHECKING:
    from scheduler_app.scheduler.leases import Leases

FLOWS_MAX: Final = 50  # due flows handled in one transaction

logger = logging.getLogger(__name__)


def create_due_runs(
    connection: psycopg.Connection[Any], *, leases: Leases, terms: dict[int, int]
) -> list[int]:
    """Each due schedule of these shards has its next run; the ids of the new runs.

    One transaction: proof, flows locked, runs created, cursors moved. A flow that has as many
    active runs as it may have keeps its cursor, so nothing is skipped. Raises ``Fenced``.
    """
    created: list[int] = []
    with connection.transaction():
        leases.prove(connection, terms)
        for flow in _due_flows(connection, list(terms)):
            try:
                with connection.transaction():
                    run_id = _create_next(connection, flow)
            except (psycopg.OperationalError, psycopg.InterfaceError):
                raise
            except Exception as error:
                logger.exception("a due run was not created", extra={"flow_id": flow["flow_id"]})
                _record_failure(connection, flow, error)
                continue
            if run_id is not None:
                created.append(run_id)
        failpoints.reach("create.before_commit")
    failpoints.reach("create.after_commit")
    return created


def _record_failure(
    connection: psycopg.Connection[Any], flow: dict[str, Any], error: Exception
) -> None:
    """The interval has a failed run that says why, and the schedule goes on behind it."""
    interval = timetable.DataInterval(
        start=flow["next_interval_start"], end=flow["next_interval_end"]
    )
    reason = f"The run could not be created: {type(error).__name__}: {error}"
    create_failed_run(
        connection,
        flow_id=flow["flow_id"],
        run_key=scheduled_run_key(interval.start),
        shard=flow["shard"],
        version_id=flow["version_id"],
        interval=interval,
        reason=reason,
    )
    # The next interval is as long as this one: the definition may be what is broken.
    following = timetable.DataInterval(
        start=interval.end, end=interval.end + (interval.end - interval.start)
    )
    move_cursor(connection, flow_id=flow["flow_id"], seen=interval, following=following)


def seconds_to_next_due(connection: psycopg.Connection[Any], *, shards: list[int]) -> float | None:
    """Seconds until the next schedule of these shards is due; null when none has one."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT extract(epoch FROM min(next_interval_end) - clock_timestamp())::float8 FROM flow"
            " WHERE shard = ANY(%s) AND NOT is_paused AND removed_at IS NULL AND frozen_at IS NULL"
            " AND next_interval_end IS NOT NULL",
            [shards],
        )
        row = cursor.fetchone()
    return None if row is None else row[0]


def _due_flows(connection: psycopg.Connection[Any], shards: list[int]) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT f.flow_id, f.shard, f.current_version_id AS version_id, v.definition,"
            "  f.next_interval_start, f.next_interval_end, clock_timestamp() AS now,"
            "  (SELECT count(*) FROM run r WHERE r.flow_id = f.flow_id AND r.is_active"
            "    AND r.filter_code IS NULL AND r.run_type = 'scheduled')::int AS active"
            " FROM flow f JOIN flow_version v ON v.id = f.current_version_id"
            " WHERE f.shard = ANY(%s) AND NOT f.is_paused AND f.removed_at IS NULL"
            "  AND f.frozen_at IS NULL AND f.next_interval_end <= clock_timestamp()"
            " ORDER BY f.next_interval_end, f.flow_id LIMIT %s FOR NO KEY UPDATE OF f SKIP LOCKED",
            [shards, FLOWS_MAX],
        )
        return cursor.fetchall()


def _create_next(connection: psycopg.Connection[Any], flow: dict[str, Any]) -> int | None:
    definition = from_dict(flow["definition"])
    if flow["active"] >= definition.max_active_runs:
        return None
    interval = timetable.DataInterval(
        start=flow["next_interval_start"], end=flow["next_interval_end"]
    )
    run_id = create_run(
        connection,
        new=NewRun(
            flow_id=flow["flow_id"],
            run_key=scheduled_run_key(interval.start),
            shard=flow["shard"],
            run_type=RunType.SCHEDULED,
            version_id=flow["version_id"],
            logical_date=interval.start,
            data_interval_start=interval.start,
            data_interval_end=interval.end,
            conf={},
            actor="scheduler",
        ),
        definition=definition,
    )
    if run_id is None:
        logger.info(
            "the run of this date exists already",
            extra={"flow_id": flow["flow_id"], "logical_date": interval.start.isoformat()},
        )
    move_cursor(
        connection,
        flow_id=flow["flow_id"],
        seen=interval,
        following=timetable.next_interval_of(definition, last=interval, now=flow["now"]),
    )
    return run_id
