"""Attempts: dispatch, publish, claim, beat, finish, lose, hand back. One statement each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg.rows import class_row, dict_row, tuple_row
from psycopg.types.json import Jsonb

from scheduler_app import sql
from scheduler_app.rules.states import TaskState
from scheduler_app.transitions.callback import (
    NewCallbacks,
    issue_after,
    parameters,
    tie_callbacks_to_claim,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    import psycopg

    from scheduler_app.rules.states import AttemptOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """One decision to execute a task instance."""

    ti_id: int
    attempt_id: UUID
    previous: UUID | None  # the current attempt that was seen; compared
    try_number: int
    resume_index: int
    dispatch_no: int
    run_attempt: int
    token: int  # of the lease that decides
    cause: str | None  # filter code for the predecessor
    on_execute: tuple[str, ...] = ()  # callbacks that its claim must issue
    limit_keys: tuple[str, ...] = ()  # keys that it takes a slot of


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What a delivery carries, beside the database's identity."""

    attempt_id: UUID
    ti_id: int
    run_id: int
    fence: int
    lease_token: int
    queue: str


class Claim(NamedTuple):
    """What a worker needs to execute the attempt that it claimed. Times aware UTC.

    The fields are the columns of ``claim_attempt.sql``, in their order.
    """

    ti_id: int
    run_id: int
    task_id: str
    map_index: int
    try_number: int
    max_tries: int
    budget_start: int
    resume_index: int
    next_method: str | None
    next_kwargs: Any
    elapsed_s: float  # since this try was first claimed
    run_attempt: int
    dispatch_no: int
    flow_id: str
    run_key: str
    run_type: str
    logical_date: datetime | None
    data_interval_start: datetime | None
    data_interval_end: datetime | None
    conf: Any
    bundle_digest: str
    run_created_at: datetime | None = None
    # Of the tasks that were named as near, where it is in that run: their results, unless large, and
    # of their lists the element at its own map index, as near_items.sql says it.
    near_results: Mapping[str, Any] | None = None
    near_items: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """Where a worker expects its next claim to be, and what it will then ask for."""

    run_id: int = 0
    task_ids: tuple[str, ...] = ()  # for their results
    item_ids: tuple[str, ...] = ()  # for the element of their result at its own map index
    # Instead of all that, wherever it is: by task, those whose results it needed before.
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """The answer to a heartbeat, for one attempt."""

    attempt_id: UUID
    is_wanted: bool
    stop_reason: str | None
    state: str


def dispatch(
    connection: psycopg.Connection[Any], *, dispatches: Sequence[Dispatch]
) -> list[Message]:
    """An issued, current attempt exists for each task instance that was still as it was seen.

    The caller proved its lease and holds the runs. The rows are the outbox: publish after commit.
    """
    if not dispatches:
        return []
    ordered = sorted(dispatches, key=lambda d: d.ti_id)
    with connection.cursor(row_factory=class_row(Message)) as cursor:
        cursor.execute(
            sql.load("dispatch_attempts"),
            {
                "ti": [d.ti_id for d in ordered],
                "attempt": [d.attempt_id for d in ordered],
                "previous": [d.previous for d in ordered],
                "try_number": [d.try_number for d in ordered],
                "resume_index": [d.resume_index for d in ordered],
                "dispatch_no": [d.dispatch_no for d in ordered],
                "run_attempt": [d.run_attempt for d in ordered],
                "token": [d.token for d in ordered],
                "cause": [d.cause for d in ordered],
            },
        )
        messages = cursor.fetchall()
    tie_callbacks_to_claim(
        connection,
        names={d.attempt_id: d.on_execute for d in ordered if d.on_execute},
    )
    keyed = [d for d in ordered if d.limit_keys]
    if keyed:
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE attempt a SET limit_keys = u.keys"
                " FROM unnest(%s::uuid[], %s::jsonb[]) AS u(id, keys) WHERE a.id = u.id",
                [[d.attempt_id for d in keyed], [Jsonb(d.limit_keys) for d in keyed]],
            )
    return messages


def note_published(
    connection: psycopg.Connection[Any], *, ages_s: Mapping[UUID, float], is_first: bool = True
) -> None:
    """Each attempt that waits for its claim was published so many seconds ago, and says so.

    ``is_first``: for the first time. One that was given back since then is left to the next sweep.
    """
    if not ages_s:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH l AS (SELECT p.id, u.age_s FROM unnest(%s::uuid[], %s::float8[]) AS u(id, age_s)"
            "  JOIN attempt p ON p.id = u.id WHERE p.published_at IS NULL AND p.state = 'issued'"
            "  AND (p.publish_count = 0 OR NOT %s)"
            "  ORDER BY p.id FOR NO KEY UPDATE OF p SKIP LOCKED)"
            " UPDATE attempt p SET publish_count = greatest(p.publish_count, 1),"
            "  published_at = greatest(p.issued_at, clock_timestamp() - make_interval(secs => l.age_s))"
            "  FROM l WHERE p.id = l.id",
            [list(ages_s), list(ages_s.values()), is_first],
        )


def note_republished(connection: psycopg.Connection[Any], *, attempt_ids: Sequence[UUID]) -> None:
    """Each attempt that is still issued counts one publication more, as of now."""
    if not attempt_ids:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH l AS (SELECT id FROM attempt WHERE id = ANY(%s) AND state = 'issued'"
            "  ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)"
            " UPDATE attempt p SET published_at = clock_timestamp(),"
            "  publish_count = p.publish_count + 1 FROM l WHERE p.id = l.id",
            [list(attempt_ids)],
        )


def ask_for_publication(
    connection: psycopg.Connection[Any], *, attempt_ids: Sequence[UUID]
) -> None:
    """The next sweep publishes each of these attempts again that is still issued."""
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH l AS (SELECT id FROM attempt WHERE id = ANY(%s) AND state = 'issued'"
            "  ORDER BY id FOR NO KEY UPDATE)"
            " UPDATE attempt p SET published_at = NULL, publish_count = greatest(p.publish_count, 1)"
            "  FROM l WHERE p.id = l.id",
            [list(attempt_ids)],
        )


def claim(
    connection: psycopg.Connection[Any],
    *,
    ti_id: int,
    attempt_id: UUID,
    token: int,
    fence: int,
    nonce: UUID,
    worker_job_id: UUID,
    hostname: str,
    pid: int,
    callbacks: NewCallbacks | None = None,
    near: Near | None = None,
) -> Claim | None:
    """The attempt runs under ``nonce``; ``None`` when it was refused, and then nothing changed.

    One whose start calls for ``callbacks`` is refused without them; with them they are issued. Where it
    turns out to be ``near``, the results named there come along.
    """
    statement = sql.with_callbacks("claim_attempt") if callbacks else sql.load("claim_attempt")
    if near is not None:
        statement = sql.bringing(
            statement,
            results=bool(near.task_ids),
            items=bool(near.item_ids),
            by_task=bool(near.needs),
        )
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            statement,
            {
                **(parameters(attempt_id, callbacks) if callbacks else {}),
                "with_callbacks": bool(callbacks),
                "ti": ti_id,
                "attempt": attempt_id,
                "token": token,
                "fence": fence,
                "nonce": nonce,
                "worker": worker_job_id,
                "hostname": hostname,
                "pid": pid,
                **(_named(near) if near is not None else {}),
            },
        )
        row = cursor.fetchone()
        return None if row is None else Claim(*row)


def _named(near: Near) -> dict[str, Any]:
    if near.needs:
        return {"near_needs": Jsonb(near.needs)}
    named: dict[str, Any] = {"near_run": near.run_id}
    if near.task_ids:
        named["near_tasks"] = list(near.task_ids)
    if near.item_ids:
        named["near_items"] = list(near.item_ids)
    return named


def finish(
    connection: psycopg.Connection[Any],
    *,
    ti_id: int,
    attempt_id: UUID,
    nonce: UUID,
    state: TaskState,
    is_open: bool,
    outcome: AttemptOutcome,
    retry_after_s: float | None = None,
    retry_why: dict[str, Any] | None = None,
    max_tries: int | None = None,
    reason: str | None = None,
    result: Any = None,
    error: dict[str, Any] | None = None,
    callbacks: NewCallbacks | None = None,
) -> int | None:
    """The attempt ended with its own report; the id of its run. ``None``: nothing changed.

    ``None`` means that it was reported already (same nonce, ended) or is no longer current.
    ``retry_why`` says why another try follows or none does; ``max_tries`` grows to what is given.
    The ``callbacks`` that the end calls for are issued with it.
    """
    statement = sql.with_callbacks("finish_attempt") if callbacks else sql.load("finish_attempt")
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            statement,
            {
                **(parameters(attempt_id, callbacks) if callbacks else {}),
                "ti": ti_id,
                "attempt": attempt_id,
                "nonce": nonce,
                "state": state,
                "is_open": is_open,
                "retry_after_s": retry_after_s,
                "retry_why": None if retry_why is None else Jsonb(retry_why),
                "max_tries": max_tries,
                "outcome": outcome,
                "reason": reason,
                "result": None if result is None else Jsonb(result),
                "error": None if error is None else Jsonb(error),
            },
        )
        row = cursor.fetchone()
        return None if row is None else int(row[0])


def beat(
    connection: psycopg.Connection[Any], *, attempt_ids: Sequence[UUID], worker_job_id: UUID
) -> list[Beat]:
    """The heartbeat of each attempt that is still wanted is now; one answer per known attempt."""
    with connection.cursor(row_factory=class_row(Beat)) as cursor:
        cursor.execute(
            sql.load("beat_attempts"), {"attempt": list(attempt_ids), "worker": worker_job_id}
        )
        return cursor.fetchall()


def lose(
    connection: psycopg.Connection[Any],
    *,
    attempt_ids: Sequence[UUID],
    dead_after_s: float,
    budget: int,
    source: str,
    callbacks: Mapping[UUID, NewCallbacks] | None = None,
) -> list[dict[str, Any]]:
    """Each attempt that is still silent is lost; its task is scheduled again or, past budget, failed.

    One dict per lost attempt: ti_id, attempt_id, run_id, state, infra_losses, is_asked_to_stop. Of
    ``callbacks``, by attempt, those that are about the state which its task came to by the loss are
    issued. Part of the caller's transaction.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            sql.load("lose_attempts"),
            {
                "attempt": list(attempt_ids),
                "dead_after_s": dead_after_s,
                "budget": budget,
                "source": source,
            },
        )
        lost = cursor.fetchall()
    wanted = callbacks or {}
    moved = {row["attempt_id"]: row["state"] for row in lost if not row["is_asked_to_stop"]}
    issue_after(
        connection,
        moved={of: new for of, new in wanted.items() if moved.get(of) == new.state},
    )
    return lost


def hand_back(
    connection: psycopg.Connection[Any], *, attempt_id: UUID, worker_job_id: UUID, reason: str
) -> int | None:
    """The attempt is lost by its worker's own word, its task scheduled again; the run's id."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            sql.load("hand_back_attempt"),
            {"attempt": attempt_id, "worker": worker_job_id, "reason": reason},
        )
        row = cursor.fetchone()
        return None if row is None else int(row[0])


def fail_killed(
    connection: psycopg.Connection[Any],
    *,
    attempt_id: UUID,
    state: TaskState,
    is_open: bool,
    retry_after_s: float | None,
    reason: str,
    retry_why: dict[str, Any] | None = None,
    max_tries: int | None = None,
    from_state: TaskState = TaskState.RUNNING,
    callbacks: NewCallbacks | None = None,
) -> int | None:
    """The attempt is terminated (it ended without a report); the run's id if its task moved.

    It moves if the attempt is still its current one and it is still in ``from_state``. The
    ``callbacks`` that this calls for are issued. Part of the caller's transaction.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            sql.load("fail_killed_attempt"),
            {
                "attempt": attempt_id,
                "from_state": from_state,
                "state": state,
                "is_open": is_open,
                "retry_after_s": retry_after_s,
                "retry_why": None if retry_why is None else Jsonb(retry_why),
                "max_tries": max_tries,
                "reason": reason,
            },
        )
        row = cursor.fetchone()
    if row is None:
        return None
    if callbacks and not row[1]:  # of what a person asked for, none is due
        issue_after(connection, moved={attempt_id: callbacks})
    return int(row[0])


def begin_anew(connection: psycopg.Connection[Any], *, attempt_id: UUID, reason: str) -> int | None:
    """The cleared task of the attempt, which has stopped, begins anew; the run's id if it moved."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(sql.load("begin_anew"), {"attempt": attempt_id, "reason": reason})
        row = cursor.fetchone()
        return None if row is None else int(row[0])


def close(connection: psycopg.Connection[Any], *, attempt_id: UUID, reason: str) -> int | None:
    """The attempt of a task that waits for it no longer is terminated; the run's id if it was live."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "UPDATE attempt SET state = 'ended', is_live = false, outcome = 'terminated',"
            " outcome_reason = %s, ended_at = clock_timestamp()"
            " WHERE id = %s AND is_live RETURNING run_id",
            [reason, attempt_id],
        )
        row = cursor.fetchone()
        return None if row is None else int(row[0])
