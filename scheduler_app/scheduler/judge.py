"""Pending executor events get their verdict: rows are read, the rule decides, the move follows."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, assert_never

from django.conf import settings
from psycopg.rows import dict_row

from scheduler_app.rules import reconcile, retry
from scheduler_app.rules.definition import from_dict
from scheduler_app.rules.states import AttemptOutcome, AttemptState, TaskState
from scheduler_app.transitions.attempt import ask_for_publication, fail_killed, lose
from scheduler_app.transitions.counters import count
from scheduler_app.transitions.executor_event import (
    Judgement,
    judge_event,
    record_ghost_attempt,
)

if TYPE_CHECKING:
    import psycopg

    from scheduler_app.scheduler.leases import Leases

EVENTS_MAX: Final = 200  # judged in one go

logger = logging.getLogger(__name__)

_FACTS = """
SELECT e.id AS event_id, e.attempt_id, e.kind, e.source, e.source_job_id, e.payload, e.try_number,
       extract(epoch FROM clock_timestamp() - e.received_at)::float8 AS age_s,
       p.id IS NOT NULL AS is_known, p.state AS attempt_state, p.outcome, p.superseded_by,
       p.is_accepted, p.worker_job_id, p.hostname, p.pid, p.nonce, p.try_number AS attempt_try,
       i.id AS ti_id, i.state AS ti_state, i.try_number AS ti_try, i.max_tries, i.budget_start,
       i.next_method, i.held_by IS NOT NULL AS held, i.infra_losses, i.task_id, i.map_index,
       i.attempt_id AS current_attempt_id, r.run_key, r.version_id,
       coalesce(j.ended_at IS NULL AND j.heartbeat_at > clock_timestamp()
                - make_interval(secs => %(dead_after_s)s::float8), false) AS worker_alive
  FROM executor_event e
  LEFT JOIN attempt p ON p.id = e.attempt_id
  LEFT JOIN task_instance i ON i.id = p.ti_id
  LEFT JOIN run r ON r.id = i.run_id
  LEFT JOIN job j ON j.id = p.worker_job_id
 WHERE e.verdict = 'pending'
"""


def judge_pending(
    connection: psycopg.Connection[Any], *, leases: Leases, terms: dict[int, int]
) -> tuple[set[int], bool]:
    """Each event that can be judged now is; the runs that moved, and whether some must wait.

    Each event is judged in a transaction of its own, so a locked row never loses another event.
    Raises ``Fenced``.
    """
    moved: set[int] = set()
    waiting = False
    for seen in _pending(connection, list(terms)):
        # Held by a freeze (replayed at thaw), or too early to tell.
        if seen["held"] or _verdict(seen).verdict == "pending":
            waiting = True
            continue
        with connection.transaction():
            leases.prove(connection, terms)
            is_judged, run_id = _judge(connection, seen)
        waiting |= not is_judged
        if run_id is not None:
            moved.add(run_id)
    return moved, waiting


def _pending(connection: psycopg.Connection[Any], shards: list[int]) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            _FACTS + " AND e.shard = ANY(%(shard)s) ORDER BY e.id LIMIT %(limit)s",
            {
                "shard": shards,
                "limit": EVENTS_MAX,
                "dead_after_s": settings.HEARTBEAT_DEAD_AFTER_S,
            },
        )
        return cursor.fetchall()


def _judge(connection: psycopg.Connection[Any], seen: dict[str, Any]) -> tuple[bool, int | None]:
    """Whether the event has its verdict now, and the run that moved by it.

    The facts are read again with the task instance locked: a report, a loss or a claim that came
    since must not leave a verdict that was true before it.
    """
    row = _locked(connection, seen)
    if row is None:
        return True, None  # judged by another already
    verdict = _verdict(row)
    if row["held"] or verdict.verdict == "pending":
        return False, None
    run_id = _act(connection, row, verdict)
    if run_id is None and verdict.action in _MOVING:
        return False, None  # not yet: its worker beat a moment ago
    judge_event(
        connection,
        event_id=row["event_id"],
        judgement=Judgement(
            verdict=verdict.verdict,
            code=verdict.code,
            reason=verdict.reason,
            detail=verdict.detail,
        ),
    )
    return True, run_id


# A verdict with one of these says that the attempt ended by it.
_MOVING: Final = frozenset({reconcile.Action.FAIL_KILLED, reconcile.Action.MARK_LOST})


def _locked(connection: psycopg.Connection[Any], seen: dict[str, Any]) -> dict[str, Any] | None:
    with connection.cursor(row_factory=dict_row) as cursor:
        if seen["ti_id"] is not None:
            cursor.execute(
                "SELECT id FROM task_instance WHERE id = %s FOR NO KEY UPDATE", [seen["ti_id"]]
            )
        cursor.execute(
            _FACTS + " AND e.id = %(event)s",
            {"event": seen["event_id"], "dead_after_s": settings.HEARTBEAT_DEAD_AFTER_S},
        )
        return cursor.fetchone()


def _verdict(row: dict[str, Any]) -> reconcile.Verdict:
    return reconcile.reconcile(_event(row), _attempt_facts(row), _task_facts(row), _facts(row))


def _event(row: dict[str, Any]) -> reconcile.Event:
    return reconcile.Event(
        kind=row["kind"],
        attempt_id=str(row["attempt_id"]) if row["attempt_id"] else None,
        try_number=row["try_number"],
        claimed={**row["payload"], **_claim(row)},
    )


def _claim(row: dict[str, Any]) -> dict[str, Any]:
    """Who executes the attempt, in the words of the reasons."""
    if row["nonce"] is None:
        return {}
    return {
        "claimed_nonce": str(row["nonce"]),
        "claimed_by": f"{row['hostname']}:{row['pid']}",
    }


def _is_anothers(row: dict[str, Any]) -> bool:
    """Whether the witness saw another process end than the one that claimed the attempt."""
    said = (row["source_job_id"], row["payload"].get("pid"))
    return None not in said and said != (row["worker_job_id"], row["pid"])


def _attempt_facts(row: dict[str, Any]) -> reconcile.AttemptFacts | None:
    if not row["is_known"]:
        return None
    return reconcile.AttemptFacts(
        attempt_id=str(row["attempt_id"]),
        state=AttemptState(row["attempt_state"]),
        outcome=AttemptOutcome(row["outcome"]) if row["outcome"] else None,
        is_current=row["current_attempt_id"] == row["attempt_id"],
        superseded_by=row["superseded_by"],
    )


def _task_facts(row: dict[str, Any]) -> reconcile.TaskFacts | None:
    if row["ti_id"] is None:
        return None
    return reconcile.TaskFacts(
        state=TaskState(row["ti_state"]),
        try_number=row["ti_try"],
        next_method=row["next_method"],
        held=row["held"],
    )


def _facts(row: dict[str, Any]) -> reconcile.Facts:
    return reconcile.Facts(
        grace_over=row["age_s"] >= settings.EXIT_GRACE_S,
        worker_alive=row["worker_alive"],
        infrastructure_losses=row["infra_losses"] or 0,
        infrastructure_budget=settings.INFRASTRUCTURE_BUDGET,
        is_anothers=_is_anothers(row),
    )


def _act(
    connection: psycopg.Connection[Any], row: dict[str, Any], verdict: reconcile.Verdict
) -> int | None:
    """The verdict's consequence is written; the run that moved, if any."""
    action = verdict.action
    if action is reconcile.Action.NONE:
        if verdict.verdict == "ghost" and row["attempt_id"] is not None:
            record_ghost_attempt(
                connection,
                attempt_id=row["attempt_id"],
                code=verdict.code or "ghost_no_record",
                detail=verdict.detail,
                hostname=row["payload"].get("hostname"),
                pid=row["payload"].get("pid"),
            )
        return None
    if action is reconcile.Action.PUBLISH_AGAIN:
        ask_for_publication(connection, attempt_id=row["attempt_id"])
        return None
    if action is reconcile.Action.FAIL_KILLED:
        return _fail_killed(connection, row, verdict)
    if action is reconcile.Action.MARK_LOST:
        lost = lose(
            connection,
            attempt_ids=[row["attempt_id"]],
            dead_after_s=settings.HEARTBEAT_DEAD_AFTER_S,
            budget=settings.INFRASTRUCTURE_BUDGET,
            source="scheduler: judge",
        )
        count(connection, "scheduler_attempts_lost_total", len(lost))
        return lost[0]["run_id"] if lost else None
    assert_never(action)


def _fail_killed(
    connection: psycopg.Connection[Any], row: dict[str, Any], verdict: reconcile.Verdict
) -> int | None:
    state, delay_s = TaskState.FAILED, None
    if retry.may_retry(try_number=row["ti_try"], max_tries=row["max_tries"]):
        state = TaskState.UP_FOR_RETRY
        delay_s = _retry_delay_s(connection, row)
    run_id = fail_killed(
        connection,
        attempt_id=row["attempt_id"],
        state=state,
        is_open=state is TaskState.UP_FOR_RETRY,
        retry_after_s=delay_s,
        reason=verdict.reason,
    )
    if run_id is not None:
        count(connection, "scheduler_tasks_killed_externally_total", 1)
        logger.warning(
            "a task was killed externally",
            extra={"attempt_id": str(row["attempt_id"]), "task_state": row["ti_state"]},
        )
    return run_id


def _retry_delay_s(connection: psycopg.Connection[Any], row: dict[str, Any]) -> float:
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute("SELECT definition FROM flow_version WHERE id = %s", [row["version_id"]])
        found = cursor.fetchone()
    assert found is not None, "a run's version is never deleted"
    task = from_dict(found["definition"]).task(row["task_id"])
    return retry.next_delay_s(
        retry.RetryPolicy(
            retries=task.retries,
            retry_delay_s=task.retry_delay_s,
            backoff=task.backoff,
            max_retry_delay_s=task.max_retry_delay_s,
        ),
        max(1, row["ti_try"] - row["budget_start"]),
        f"{row['run_key']}:{row['task_id']}:{row['map_index']}",
    )
