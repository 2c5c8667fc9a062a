"""Pending executor events get their verdict: rows are read, the rule decides, the move follows."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final, assert_never

import psycopg
from django.conf import settings
from psycopg.rows import dict_row

from scheduler_app.processes import failpoints
from scheduler_app.rules import callbacks, reconcile, retry
from scheduler_app.rules.definition import TaskDefinition, from_dict
from scheduler_app.rules.errors import DefinitionError, Fenced
from scheduler_app.rules.states import AttemptKind, AttemptOutcome, AttemptState, TaskState
from scheduler_app.scheduler.callbacks import after_loss, repeat_witnessed
from scheduler_app.transitions.attempt import (
    ask_for_publication,
    begin_anew,
    close,
    fail_killed,
    lose,
)
from scheduler_app.transitions.callback import NewCallbacks
from scheduler_app.transitions.counters import count
from scheduler_app.transitions.executor_event import (
    Judgement,
    judge_event,
    record_ghost_attempt,
)
from scheduler_app.transitions.incident import raise_incident, resolve_incident

if TYPE_CHECKING:
    from uuid import UUID

    from scheduler_app.scheduler.leases import Leases

EVENTS_MAX: Final = 200  # read in one go
JUDGING_S_MAX: Final = 2.0  # of one turn of the loop; the next turn goes on
NOT_JUDGED: Final = "executor_event_not_judged"  # kind of incident

logger = logging.getLogger(__name__)

# An event names its attempt (p) or, without an id, a try of its task instance (i), whose current
# attempt (c) is then compared. What only the latter needs is not looked for otherwise.
_FACTS = """
SELECT e.id AS event_id, e.shard, e.attempt_id, e.kind, e.source, e.source_job_id, e.payload, e.try_number,
       extract(epoch FROM clock_timestamp() - e.received_at)::float8 AS age_s,
       p.id IS NOT NULL AS is_known, p.kind AS attempt_kind, p.filter_code, p.state AS attempt_state, p.outcome, p.superseded_by,
       p.is_accepted, p.worker_job_id, p.hostname, p.pid, p.nonce, p.try_number AS attempt_try,
       i.id AS ti_id, i.state AS ti_state, i.try_number AS ti_try, i.max_tries, i.budget_start,
       i.next_method, i.held_by IS NOT NULL
         OR (p.kind = 'callback' AND (r.frozen_at IS NOT NULL OR f.frozen_at IS NOT NULL)) AS held,
       i.infra_losses, i.task_id, i.map_index,
       i.attempt_id AS current_attempt_id, r.flow_id, r.run_key, r.version_id,
       coalesce(j.ended_at IS NULL AND j.heartbeat_at > clock_timestamp()
                - make_interval(secs => %(dead_after_s)s::float8), false) AS worker_alive,
       c.state AS current_state, c.outcome AS current_outcome, c.resume_index AS current_resume_index,
       c.issued_at > e.received_at AS is_issued_since,
       CASE WHEN c.id IS NOT NULL AND e.source_job_id IS NOT NULL THEN
         (SELECT l.holder FROM lease_event l WHERE l.shard = c.shard AND l.token = c.lease_token
            AND l.kind = 'acquired' ORDER BY l.at DESC LIMIT 1) END AS queued_by,
       CASE WHEN c.id IS NOT NULL THEN
         (SELECT d.id FROM attempt d WHERE d.ti_id = i.id AND d.try_number = e.try_number
            AND d.outcome = 'deferred' ORDER BY d.fence DESC LIMIT 1) END AS deferred_attempt_id,
       e.attempt_id IS NULL AND EXISTS (
         SELECT 1 FROM executor_event h WHERE h.ti_id = e.ti_id AND h.try_number = e.try_number
            AND h.attempt_id IS NULL AND h.id > e.id AND h.source = e.source
            AND h.kind IN ('executor_queued', 'executor_running')) AS is_taken_on_since
  FROM executor_event e
  LEFT JOIN attempt p ON p.id = e.attempt_id
  LEFT JOIN task_instance i ON i.id = CASE WHEN e.attempt_id IS NULL THEN e.ti_id ELSE p.ti_id END
  LEFT JOIN attempt c ON c.id = i.attempt_id AND e.attempt_id IS NULL
  LEFT JOIN run r ON r.id = coalesce(i.run_id, p.run_id)
  LEFT JOIN flow f ON f.flow_id = r.flow_id
  LEFT JOIN job j ON j.id = p.worker_job_id
 WHERE e.verdict = 'pending'
"""


def judge_pending(
    connection: psycopg.Connection[Any], *, leases: Leases, terms: dict[int, int]
) -> tuple[set[int], bool]:
    """Each event that can be judged now is; the runs that moved, and whether some must wait.

    Each event is judged on its own, in a transaction of its own: one whose row is locked, or that
    cannot be judged, keeps no other from its verdict, and is looked at again. Raises ``Fenced``.
    """
    moved: set[int] = set()
    waiting = False
    last = 0
    until = time.monotonic() + JUDGING_S_MAX
    while rows := _pending(connection, list(terms), after=last):
        for seen in rows:
            last = seen["event_id"]
            try:
                is_judged, run_id = _judge_one(connection, seen, leases=leases, terms=terms)
            except Fenced:
                raise
            except Exception as error:  # of one event: the others have a right to their verdicts
                if connection.closed:
                    raise
                _report(connection, seen, error)
                is_judged, run_id = False, None
            waiting |= not is_judged
            if run_id is not None:
                moved.add(run_id)
        if time.monotonic() > until:
            return moved, True
    return moved, waiting


def _pending(
    connection: psycopg.Connection[Any], shards: list[int], *, after: int
) -> list[dict[str, Any]]:
    """The next events in the order of their coming; those of frozen tasks stay where they are."""
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            _FACTS + " AND e.shard = ANY(%(shard)s) AND e.id > %(after)s AND i.held_by IS NULL"
            " ORDER BY e.id LIMIT %(limit)s",
            {
                "shard": shards,
                "after": after,
                "limit": EVENTS_MAX,
                "dead_after_s": settings.HEARTBEAT_DEAD_AFTER_S,
            },
        )
        return cursor.fetchall()


def _judge_one(
    connection: psycopg.Connection[Any],
    seen: dict[str, Any],
    *,
    leases: Leases,
    terms: dict[int, int],
) -> tuple[bool, int | None]:
    """Whether the event has its verdict now, and the run that moved by it."""
    if _verdict(seen).verdict == "pending":
        return False, None  # too early to tell
    with connection.transaction():
        leases.prove(connection, terms)
        judged = _judge(connection, seen, terms)
        failpoints.reach("judge.before_commit")
    failpoints.reach("judge.after_commit")
    return judged


def _report(connection: psycopg.Connection[Any], seen: dict[str, Any], error: Exception) -> None:
    """Somebody is told of an event that could not be judged; it stays pending."""
    fields = {"event_id": seen["event_id"], "error": str(error).strip()}
    if isinstance(error, psycopg.errors.LockNotAvailable | psycopg.errors.DeadlockDetected):
        logger.info("an event waits for a locked row", extra=fields)
        return
    logger.error("an event could not be judged", exc_info=error, extra=fields)
    raise_incident(
        connection,
        kind=NOT_JUDGED,
        subject=str(seen["event_id"]),
        message=f"Executor event {seen['event_id']} cannot be judged and stays pending: {error}",
    )


def _judge(
    connection: psycopg.Connection[Any], seen: dict[str, Any], terms: dict[int, int]
) -> tuple[bool, int | None]:
    """Whether the event has its verdict now, and the run that moved by it.

    The facts are read again with the task instance locked: a report, a loss or a claim that came
    since must not leave a verdict that was true before it.
    """
    if not _lock(connection, seen):
        return False, None  # somebody moves it just now
    row = _facts_now(connection, seen)
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
            # Under which lease it was decided.
            detail={**verdict.detail, "shard": row["shard"], "token": terms.get(row["shard"])},
        ),
    )
    resolve_incident(connection, kind=NOT_JUDGED, subject=str(row["event_id"]))
    return True, run_id


# A verdict with one of these says that the attempt ended by it.
_MOVING: Final = frozenset(
    {
        reconcile.Action.FAIL_KILLED,
        reconcile.Action.MARK_LOST,
        reconcile.Action.BEGIN_ANEW,
        reconcile.Action.CLOSE,
        reconcile.Action.REPEAT_CALLBACK,
    }
)


def _lock(connection: psycopg.Connection[Any], seen: dict[str, Any]) -> bool:
    """Whether the task instance, if there is one, is locked; one that somebody holds is left."""
    if seen["ti_id"] is None:
        return True
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM task_instance WHERE id = %s FOR NO KEY UPDATE SKIP LOCKED",
            [seen["ti_id"]],
        )
        return cursor.fetchone() is not None


def _facts_now(connection: psycopg.Connection[Any], seen: dict[str, Any]) -> dict[str, Any] | None:
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            _FACTS + " AND e.id = %(event)s",
            {"event": seen["event_id"], "dead_after_s": settings.HEARTBEAT_DEAD_AFTER_S},
        )
        return cursor.fetchone()


def _verdict(row: dict[str, Any]) -> reconcile.Verdict:
    if row["attempt_id"] is None:
        return reconcile.judge_by_try(_event(row), _task_facts(row), _try_facts(row))
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
        is_current=(
            row["filter_code"] is None
            if row["attempt_kind"] == AttemptKind.CALLBACK
            else row["current_attempt_id"] == row["attempt_id"]
        ),
        superseded_by=row["superseded_by"],
        kind=AttemptKind(row["attempt_kind"]),
        held=row["held"],
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


def _try_facts(row: dict[str, Any]) -> reconcile.TryFacts:
    current, outcome = row["current_attempt_id"], row["current_outcome"]
    deferred = row["deferred_attempt_id"]
    return reconcile.TryFacts(
        grace_over=row["age_s"] >= settings.EXIT_GRACE_S,
        queued_by=_queued_by(row),
        executor_holds=row["is_taken_on_since"] or bool(row["payload"].get("still_held")),
        is_resumed=(row["current_resume_index"] or 0) > 0,
        current_attempt_id=str(current) if current else None,
        attempt_state=AttemptState(row["current_state"]) if row["current_state"] else None,
        outcome=AttemptOutcome(outcome) if outcome else None,
        deferred_attempt_id=str(deferred) if deferred else None,
    )


def _queued_by(row: dict[str, Any]) -> reconcile.QueuedBy:
    """Who handed out the current attempt: the lease that issued it tells the scheduler."""
    if row["current_state"] is None or row["current_outcome"] == AttemptOutcome.LOST:
        return reconcile.QueuedBy.NOBODY  # never handed out, or taken back
    is_of_another = row["source_job_id"] is not None and row["queued_by"] != row["source_job_id"]
    if is_of_another or row["is_issued_since"]:
        return reconcile.QueuedBy.ANOTHER
    return reconcile.QueuedBy.SOURCE


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
        ask_for_publication(connection, attempt_ids=[row["attempt_id"]])
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
            callbacks=after_loss(connection, [row["attempt_id"]]),
        )
        count(connection, "scheduler_attempts_lost_total", len(lost))
        return lost[0]["run_id"] if lost else None
    if action is reconcile.Action.BEGIN_ANEW:
        return begin_anew(connection, attempt_id=_about(row), reason=verdict.reason)
    if action is reconcile.Action.CLOSE:
        return close(connection, attempt_id=_about(row), reason=verdict.reason)
    if action is reconcile.Action.REPEAT_CALLBACK:
        return repeat_witnessed(
            connection, row["attempt_id"], reason=verdict.reason, worker_alive=row["worker_alive"]
        )
    assert_never(action)


def _about(row: dict[str, Any]) -> UUID:
    """The attempt that a consequence is written to; by try, the current one."""
    attempt_id: UUID = row["attempt_id"] or row["current_attempt_id"]
    return attempt_id


def _fail_killed(
    connection: psycopg.Connection[Any], row: dict[str, Any], verdict: reconcile.Verdict
) -> int | None:
    task = _task(connection, row)
    state, follows = _after_kill(task, row)
    run_id = fail_killed(
        connection,
        attempt_id=_about(row),
        from_state=TaskState(row["ti_state"]),
        state=state,
        is_open=state is TaskState.UP_FOR_RETRY,
        retry_after_s=follows.delay_s,
        retry_why=follows.why,
        max_tries=follows.max_tries,
        reason=verdict.reason,
        callbacks=_called_for(task, state, row),
    )
    if run_id is not None:
        count(connection, "scheduler_tasks_killed_externally_total", 1)
        logger.error(
            "the executor says that a task has ended, and nothing has reported its end:"
            " it was killed externally",
            extra={
                "executor_state": verdict.detail["event"],
                "task_state": row["ti_state"],
                "next_task_state": state.value,
                "flow_id": row["flow_id"],
                "run_id": row["run_key"],
                "task_id": row["task_id"],
                "map_index": row["map_index"],
                "try_number": row["ti_try"],
                "attempt_id": str(_about(row)),
                "source": row["source"],
            },
        )
    return run_id


def _called_for(
    task: TaskDefinition | None, state: TaskState, row: dict[str, Any]
) -> NewCallbacks | None:
    """What the kill calls for; nothing where a clear had asked the task to stop."""
    if task is None or row["ti_state"] == TaskState.RESTARTING:
        return None
    return NewCallbacks.of(callbacks.due(task.callbacks, state), state=state)


def _task(connection: psycopg.Connection[Any], row: dict[str, Any]) -> TaskDefinition | None:
    """The task's definition; null where it cannot be read."""
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute("SELECT definition FROM flow_version WHERE id = %s", [row["version_id"]])
        found = cursor.fetchone()
    try:
        return from_dict(found["definition"] if found else {}).task(row["task_id"])
    except (DefinitionError, KeyError):
        return None


def _after_kill(
    task: TaskDefinition | None, row: dict[str, Any]
) -> tuple[TaskState, retry.RetryDecision]:
    """The state that follows a kill, and when another try does or why none.

    A task that was cleared while it ran has another try in any case. One whose definition cannot be
    read has none: nobody can say that it allows it.
    """
    if task is None:
        return TaskState.FAILED, retry.RetryDecision(retries=False)
    follows = retry.decide(
        task,
        retry.Failure(),
        try_number=row["ti_try"],
        max_tries=row["max_tries"],
        budget_start=row["budget_start"],
        jitter_key=f"{row['run_key']}:{row['task_id']}:{row['map_index']}",
        is_asked=row["ti_state"] == TaskState.RESTARTING,
    )
    return TaskState.UP_FOR_RETRY if follows.retries else TaskState.FAILED, follows
