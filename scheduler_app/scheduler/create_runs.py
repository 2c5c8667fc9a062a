"""Due schedules become runs: one run per data interval, and the cursor moves with it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.rows import dict_row, tuple_row

from scheduler_app.processes import failpoints
from scheduler_app.rules import timetable
from scheduler_app.rules.definition import Overlap, from_dict
from scheduler_app.rules.run_keys import scheduled_run_key
from scheduler_app.rules.states import RunState, RunType
from scheduler_app.rules.timetable import DataInterval
from scheduler_app.scheduler.failing_flows import pause_if_failing
from scheduler_app.transitions.audit import record_audit
from scheduler_app.transitions.flow_cursor import move_cursor, set_cursor, stand_in_line
from scheduler_app.transitions.run import (
    Aside,
    NewRun,
    create_failed_run,
    create_failed_runs,
    create_run,
    end_queued_run,
)
from scheduler_app.transitions.task_instance import lock_open, spared_teardowns, terminate

if TYPE_CHECKING:
    from scheduler_app.rules.definition import FlowDefinition
    from scheduler_app.scheduler.leases import Leases

FLOWS_MAX: Final = 50  # due flows handled in one transaction
SKIPS_MAX: Final = (
    500  # dates left out in one transaction, so that it stays short; each flow has its share
)

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Created:
    """What one round of due schedules came to."""

    run_ids: list[int] = field(default_factory=list)  # of the new runs
    passed: set[str] = field(default_factory=set)  # flows whose dates went by without a run

    @property
    def may_be_more(self) -> bool:
        """Whether something may be due behind what was seen to: another round goes on at once."""
        return bool(self.run_ids or self.passed)


def create_due_runs(
    connection: psycopg.Connection[Any], *, leases: Leases, terms: dict[int, int]
) -> Created:
    """Each due schedule of these shards has its next run, ``FLOWS_MAX`` at a time.

    One transaction: proof, flows locked, runs created, cursors moved. A flow that has as many
    active runs as it may have keeps its cursor, stands in line from then on, and holds up no
    other; one that leaves such dates out leaves out all that are due, ``SKIPS_MAX`` at a time.
    Raises ``Fenced``.
    """
    created = Created()
    with connection.transaction():
        leases.prove(connection, terms)
        due = _due_flows(connection, list(terms))
        share = max(1, SKIPS_MAX // len(due)) if due else 0
        for flow in due:
            try:
                with connection.transaction():
                    next_one = _create_next(connection, flow, terms[flow["shard"]], share)
            except (psycopg.OperationalError, psycopg.InterfaceError):
                raise
            except Exception as error:
                logger.exception("a due run was not created", extra={"flow_id": flow["flow_id"]})
                # What cannot be made is not tried at full speed: the next look is the sweep's.
                _record_failure(connection, flow, error)
                continue
            created.run_ids += next_one.run_ids
            created.passed |= next_one.passed
        failpoints.reach("create.before_commit")
    failpoints.reach("create.after_commit")
    return created


def _record_failure(
    connection: psycopg.Connection[Any], flow: dict[str, Any], error: Exception
) -> None:
    """The interval has a failed run that says why, and the schedule goes on behind it."""
    interval = DataInterval(start=flow["next_interval_start"], end=flow["next_interval_end"])
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
    following = DataInterval(start=interval.end, end=interval.end + (interval.end - interval.start))
    move_cursor(
        connection,
        flow_id=flow["flow_id"],
        seen=interval,
        following=following,
        is_in_line=following.end <= flow["now"],
    )


def seconds_to_next_due(connection: psycopg.Connection[Any], *, shards: list[int]) -> float | None:
    """Seconds until the next schedule of these shards comes due; null when none does.

    What is due already is not counted: it waits in line, and would hide what comes.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            # The first of each shard, since the index is by shard: no look at all the others.
            "SELECT extract(epoch FROM min(f.next_interval_end) - clock_timestamp())::float8"
            " FROM unnest(%s::int[]) s (shard), LATERAL ("
            "  SELECT next_interval_end FROM flow WHERE flow.shard = s.shard AND NOT is_paused"
            "   AND removed_at IS NULL AND frozen_at IS NULL"
            "   AND next_interval_end > (SELECT clock_timestamp())"
            "  ORDER BY next_interval_end LIMIT 1) f",
            [shards],
        )
        row = cursor.fetchone()
    return None if row is None else row[0]


def _due_flows(connection: psycopg.Connection[Any], shards: list[int]) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(_DUE_FLOWS, {"shards": shards, "limit": FLOWS_MAX, "queue": Overlap.QUEUE})
        return cursor.fetchall()


# Who is at its limit comes last, so that no number of such flows keeps another from its run, and in any
# order, so that none of them comes never. Who stands in line already is not looked at before a run ends.
_DUE_FLOWS: Final = """
SELECT f.flow_id, f.shard, f.current_version_id AS version_id, v.definition, f.next_interval_start,
       f.next_interval_end, f.last_interval_start, f.last_interval_end, f.in_line_from, a.active,
       clock_timestamp() AS now
  FROM flow f JOIN flow_version v ON v.id = f.current_version_id, LATERAL (
    SELECT count(*)::int AS active FROM run r
     WHERE r.flow_id = f.flow_id AND r.is_active AND r.filter_code IS NULL
       AND r.run_type = 'scheduled' AND NOT EXISTS (
         SELECT 1 FROM backfill b WHERE b.id = r.backfill_id AND b.is_active)) a, LATERAL (
    SELECT coalesce(to_jsonb(a.active) >= v.definition->'max_active_runs', false) AS is_full) l
 WHERE f.shard = ANY(%(shards)s) AND NOT f.is_paused AND f.removed_at IS NULL AND f.frozen_at IS NULL
   AND f.next_interval_end <= (SELECT clock_timestamp())
   AND NOT (l.is_full AND f.in_line_from IS NOT NULL
            AND coalesce(v.definition->>'overlap', %(queue)s) = %(queue)s)
 ORDER BY l.is_full, CASE WHEN l.is_full THEN random() END, f.next_interval_end, f.flow_id
 LIMIT %(limit)s FOR NO KEY UPDATE OF f SKIP LOCKED
"""


def _create_next(
    connection: psycopg.Connection[Any],
    flow: dict[str, Any],
    token: int,
    skips_max: int,
) -> Created:
    """The flow's next interval has its run, unless it gets none now; or those that get none are gone by."""
    definition = from_dict(flow["definition"])
    flow_id = flow["flow_id"]
    if pause_if_failing(connection, flow_id=flow_id, limit=definition.max_consecutive_failed_runs):
        return Created()
    interval = _interval(connection, flow, definition)
    if flow["active"] >= definition.max_active_runs:
        # But for a skip the cursor stays: it is looked at again when a run of the flow ends.
        match definition.overlap:
            case Overlap.CANCEL_OLDER:
                _cancel_oldest(connection, flow_id)
                return Created()
            case Overlap.SKIP:
                skipped = _due_from(flow, definition, interval, at_most=skips_max)
                _skip(connection, flow, definition, skipped, token)
                _move_on(connection, flow, definition, first=interval, last=skipped[-1])
                return Created(passed={flow_id})
            case _:
                if flow["in_line_from"] is None:
                    stand_in_line(connection, flow_id=flow_id, since=interval.end)
                return Created()
    run_id = _create(connection, flow, definition, interval)
    _move_on(connection, flow, definition, first=interval, last=interval)
    return Created(passed={flow_id}) if run_id is None else Created(run_ids=[run_id])


def _due_from(
    flow: dict[str, Any], definition: FlowDefinition, first: DataInterval, *, at_most: int
) -> list[DataInterval]:
    """That due interval and those behind it that are due too, at most so many."""
    found = [first]
    while len(found) < at_most:
        following = _following(flow, definition, found[-1])
        if following is None or following.end > flow["now"]:
            break
        found.append(following)
    return found


def _following(
    flow: dict[str, Any], definition: FlowDefinition, last: DataInterval
) -> DataInterval | None:
    return timetable.next_interval_of(
        definition, last=last, now=flow["now"], in_line_from=flow["in_line_from"]
    )


def _move_on(
    connection: psycopg.Connection[Any],
    flow: dict[str, Any],
    definition: FlowDefinition,
    *,
    first: DataInterval,
    last: DataInterval,
) -> None:
    """The cursor, which stands on ``first``, stands behind ``last``."""
    following = _following(flow, definition, last)
    move_cursor(
        connection,
        flow_id=flow["flow_id"],
        seen=first,
        last=last,
        following=following,
        is_in_line=following is not None and following.end <= flow["now"],
    )


def _interval(
    connection: psycopg.Connection[Any], flow: dict[str, Any], definition: FlowDefinition
) -> DataInterval:
    """The due interval that gets a run now: of those missed meanwhile, what catch-up leaves."""
    interval = DataInterval(start=flow["next_interval_start"], end=flow["next_interval_end"])
    last = None
    if flow["last_interval_start"] is not None and flow["last_interval_end"] is not None:
        last = DataInterval(start=flow["last_interval_start"], end=flow["last_interval_end"])
    newest = timetable.next_interval_of(
        definition, last=last, now=flow["now"], in_line_from=flow["in_line_from"]
    )
    if newest is None or newest.end <= interval.end or newest.end > flow["now"]:
        return interval
    # Nobody scheduled for a while: the cursor stands on an interval that is left out by now.
    logger.info(
        "missed intervals are left out",
        extra={
            "flow_id": flow["flow_id"],
            "from": interval.start.isoformat(),
            "to": newest.start.isoformat(),
        },
    )
    set_cursor(connection, flow_id=flow["flow_id"], following=newest)
    return newest


def _create(
    connection: psycopg.Connection[Any],
    flow: dict[str, Any],
    definition: FlowDefinition,
    interval: DataInterval,
) -> int | None:
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
    return run_id


def _skip(
    connection: psycopg.Connection[Any],
    flow: dict[str, Any],
    definition: FlowDefinition,
    intervals: list[DataInterval],
    token: int,
) -> None:
    """Each interval has a run that is set aside: it never starts, and says why."""
    create_failed_runs(
        connection,
        flow_id=flow["flow_id"],
        run_keys=[scheduled_run_key(interval.start) for interval in intervals],
        shard=flow["shard"],
        version_id=flow["version_id"],
        intervals=intervals,
        reason=f"Left out: {flow['active']} scheduled runs of its flow were active.",
        aside=Aside(
            code="skipped_overlap",
            detail={
                "rule": "create_runs",
                "active": flow["active"],
                "max_active_runs": definition.max_active_runs,
                "overlap": definition.overlap,
                "shard": flow["shard"],
                "token": token,
            },
        ),
    )


def _cancel_oldest(connection: psycopg.Connection[Any], flow_id: str) -> None:
    """The flow's oldest active scheduled run is asked to end, unless it was before.

    The caller holds the flow; a run that somebody else holds is left to the next look.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT id, run_key, state FROM run WHERE flow_id = %s AND is_active"
            " AND filter_code IS NULL AND run_type = 'scheduled' AND frozen_at IS NULL"
            " AND backfill_id IS NULL"
            " ORDER BY logical_date LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED",
            [flow_id],
        )
        run = cursor.fetchone()
    if run is None:
        return
    reason = "A newer run of its flow is due, and the flow says overlap=cancel_older."
    found = lock_open(connection, run_id=run["id"])
    spared = spared_teardowns(connection, run_id=run["id"])
    ids = [
        one.id
        for one in found
        if one.held_by is None and not one.is_asked_to_stop and one.task_id not in spared
    ]
    if not ids:
        return
    terminate(connection, ti_ids=ids, reason=reason)
    if run["state"] == RunState.QUEUED:
        end_queued_run(connection, run_id=run["id"], reason=reason)
    record_audit(
        connection,
        actor="scheduler",
        action="terminate",
        object_kind="run",
        object_id=str(run["id"]),
        flow_id=flow_id,
        reason=reason,
        before={"run_id": run["run_key"], "state": run["state"]},
    )
    logger.warning(
        "a run is ended for a newer one", extra={"flow_id": flow_id, "run_id": run["run_key"]}
    )
