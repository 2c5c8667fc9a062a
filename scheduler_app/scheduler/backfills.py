"""Backfills go on: each gets as many runs as it may have active, in the order of its dates."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import psycopg

from scheduler_app.processes import failpoints
from scheduler_app.rules import clear
from scheduler_app.rules.backfill import DateState, Decision, Existing, decide
from scheduler_app.rules.definition import FlowDefinition, from_dict
from scheduler_app.rules.errors import Fenced
from scheduler_app.rules.run_keys import backfill_run_key
from scheduler_app.rules.states import RunType
from scheduler_app.transitions import backfill as moves
from scheduler_app.transitions import run_retry
from scheduler_app.transitions.run import NewRun, create_run, lock_run

if TYPE_CHECKING:
    from scheduler_app.scheduler.leases import Leases
    from scheduler_app.scheduler.versions import Versions

DATES_MAX: Final = 50  # decided in one transaction

logger = logging.getLogger(__name__)


def advance_backfills(
    connection: psycopg.Connection[Any],
    *,
    leases: Leases,
    terms: dict[int, int],
    versions: Versions,
) -> set[int]:
    """Each active backfill of these shards has as many runs as it may have now; the runs that moved.

    A transaction for each: proof, flow, backfill, runs. One that is broken holds up no other. Raises
    ``Fenced``.
    """
    moved: set[int] = set()
    for row in moves.active_backfills(connection, shards=list(terms)):
        try:
            with connection.transaction():
                leases.prove(connection, terms)
                moved |= _advance(connection, row["id"], versions)
                failpoints.reach("backfill.before_commit")
        except (psycopg.OperationalError, psycopg.InterfaceError):
            raise
        except Fenced:
            raise
        except (
            Exception
        ):  # one that cannot go on, by its rows or its definition, holds up nothing else
            logger.exception("a backfill did not go on", extra={"backfill": row["id"]})
            continue
        failpoints.reach("backfill.after_commit")
    return moved


def _advance(connection: psycopg.Connection[Any], backfill_id: int, versions: Versions) -> set[int]:
    backfill = moves.lock_backfill(connection, backfill_id=backfill_id)
    if backfill is None or not backfill["is_active"]:
        return set()
    if moves.end_backfill(connection, backfill_id=backfill_id):
        logger.info("a backfill ended", extra={"backfill": backfill_id})
        return set()
    if backfill["paused_at"] is not None or backfill["is_flow_frozen"]:
        return set()
    version = versions.get(connection, {backfill["version_id"]}).get(backfill["version_id"])
    if version is None:
        return set()
    moved: set[int] = set()
    room = backfill["max_active_runs"] - moves.count_active_runs(
        connection, backfill_id=backfill_id
    )
    dates = moves.waiting_dates(connection, backfill_id=backfill_id, limit=DATES_MAX)
    for date in dates:
        if room <= 0:
            break
        run_id = _taken(connection, backfill, date, version.definition)
        if run_id is not None:
            moved.add(run_id)
            room -= 1
    return moved


def _taken(
    connection: psycopg.Connection[Any],
    backfill: dict[str, Any],
    date: dict[str, Any],
    definition: FlowDefinition,
) -> int | None:
    """The same for a date whose run cannot be read or made: it is skipped, and says why."""
    try:
        with connection.transaction():
            return _take(connection, backfill, date, definition)
    except (psycopg.OperationalError, psycopg.InterfaceError):
        raise
    except Exception as error:  # whatever it is, the dates after it have their turn
        logger.exception("a date got no run", extra={"backfill": backfill["id"]})
        reason = f"It could not be begun: {type(error).__name__}: {error}"
        found = moves.run_of_date(
            connection,
            flow_id=backfill["flow_id"],
            logical_date=date["logical_date"],
            run_key=backfill_run_key(date["logical_date"]),
        )
        moves.decide_date(
            connection,
            date_id=date["id"],
            decision=Decision(state=DateState.SKIPPED, reason=reason),
            run_id=found,
        )
        return None


def _take(
    connection: psycopg.Connection[Any],
    backfill: dict[str, Any],
    date: dict[str, Any],
    definition: FlowDefinition,
) -> int | None:
    """The run that works for this date now; null if it gets none."""
    key = backfill_run_key(date["logical_date"])
    found = moves.run_of_date(
        connection,
        flow_id=backfill["flow_id"],
        logical_date=date["logical_date"],
        run_key=key,
    )
    run = None if found is None else lock_run(connection, run_id=found)
    existing = None
    if run is not None:
        existing = Existing(
            run_id=run["id"],
            run_key=run["run_key"],
            state=run["state"],
            is_frozen=run["is_frozen"],
        )
    decision = decide(existing, reprocess=backfill["reprocess"])
    run_id = found
    if decision.state is DateState.CREATED:
        run_id = _create(connection, backfill, date, key, definition)
    elif run is not None and decision.state is DateState.RERUN:
        decision = _run_again(connection, backfill, run, decision)
    moves.decide_date(connection, date_id=date["id"], decision=decision, run_id=run_id)
    return None if decision.state is DateState.SKIPPED else run_id


def _create(
    connection: psycopg.Connection[Any],
    backfill: dict[str, Any],
    date: dict[str, Any],
    key: str,
    definition: FlowDefinition,
) -> int | None:
    run_id = create_run(
        connection,
        new=NewRun(
            flow_id=backfill["flow_id"],
            run_key=key,
            shard=backfill["shard"],
            run_type=RunType.BACKFILL,
            version_id=backfill["version_id"],
            logical_date=date["logical_date"],
            data_interval_start=date["data_interval_start"],
            data_interval_end=date["data_interval_end"],
            conf={**definition.params, **backfill["conf"]},
            note=backfill["reason"],
            actor=backfill["actor"],
        ),
        definition=definition,
    )
    if run_id is not None:
        moves.claim_run(connection, run_id=run_id, backfill_id=backfill["id"])
    return run_id


def _run_again(
    connection: psycopg.Connection[Any],
    backfill: dict[str, Any],
    run: dict[str, Any],
    decision: Decision,
) -> Decision:
    """The ended run began another run attempt, of all its tasks, in its own version; or why not."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT definition FROM flow_version WHERE id = %s", [run["version_id"]])
        row: Any = cursor.fetchone()
    definition = from_dict(row["definition"] if isinstance(row, dict) else row[0])
    options = clear.Options(keep_checkpoints=False)
    selection, rows = run_retry.select_for_retry(
        connection, run_id=run["id"], definition=definition, options=options
    )
    if not selection.included:
        return Decision(
            state=DateState.SKIPPED,
            reason=f"Run {run['run_key']} has nothing that can be run again.",
        )
    run_retry.begin_run_attempt(
        connection,
        run=run,
        definition=definition,
        options=options,
        selection=selection,
        rows=rows,
        actor=backfill["actor"],
        reason=f"backfill {backfill['id']}: {backfill['reason']}",
        cause="backfill",
    )
    moves.claim_run(connection, run_id=run["id"], backfill_id=backfill["id"])
    return decision
