"""Callbacks: issued with the transition that they are about; claimed, finished and repeated.

A callback is an attempt of kind ``callback``. It has no task instance to compare with, so its own
row is what every move compares and sets.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import class_row, dict_row, tuple_row
from psycopg.types.json import Jsonb

from scheduler_app import sql
from scheduler_app.rules.callbacks import CALLS_MAX, CallbackOn
from scheduler_app.transitions.ids import uuid7

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    import psycopg

    from scheduler_app.rules.callbacks import Call
    from scheduler_app.rules.states import AttemptOutcome

NO_TI: Final = 0  # in a delivery, in place of a task instance: it is of a callback


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCallbacks:
    """The callables that one transition calls for, each with the id of its attempt."""

    calls: tuple[Call, ...] = ()
    state: str  # that the task instance or run moved to
    reason: str | None = None
    ids: tuple[UUID, ...] = field(default=())

    @classmethod
    def of(cls, calls: Sequence[Call], *, state: str, reason: str | None = None) -> NewCallbacks:
        """New ids for these calls."""
        return cls(
            calls=tuple(calls), state=state, reason=reason, ids=tuple(uuid7() for _ in calls)
        )

    def __bool__(self) -> bool:
        return bool(self.calls)

    def rows(self, of: UUID | None) -> list[Jsonb]:
        """What the rows keep, one a call; ``of`` is the attempt that they are about."""
        about = {"state": self.state, "reason": self.reason, "of": None if of is None else str(of)}
        return [Jsonb({**asdict(call), **about}) for call in self.calls]


def parameters(of: UUID, new: NewCallbacks) -> dict[str, Any]:
    """What ``sql.with_callbacks`` adds to the parameters of a statement that moves the attempt."""
    return {
        "callback_id": list(new.ids),
        "callback_of": [of] * len(new.ids),
        "callback": new.rows(of),
    }


def issue_after(connection: psycopg.Connection[Any], *, moved: Mapping[UUID, NewCallbacks]) -> None:
    """Each callable that the attempts' moves call for has an issued attempt.

    In the transaction of the moves; publish after the commit.
    """
    if not any(moved.values()):
        return
    with connection.cursor() as cursor:
        cursor.execute(
            sql.load("issue_callbacks"),
            {
                "callback_id": [own for new in moved.values() for own in new.ids],
                "callback_of": [of for of, new in moved.items() for _ in new.ids],
                "callback": [row for of, new in moved.items() for row in new.rows(of)],
            },
        )


def issue_for_task_instances(
    connection: psycopg.Connection[Any], *, moved: Mapping[int, tuple[int, NewCallbacks]]
) -> None:
    """Each callable that these task instances' marks call for has an issued attempt.

    By task instance: the token of the lease that decided, and the calls. In the transaction of the
    marks, after them: the time of the end tells one mark of a task instance from the next.
    """
    if not moved:
        return
    rows = [
        (own, ti_id, token, row)
        for ti_id, (token, new) in moved.items()
        for own, row in zip(new.ids, new.rows(None), strict=True)
    ]
    with connection.cursor() as cursor:
        cursor.execute(
            sql.load("issue_mark_callbacks"),
            {
                "callback_id": [own for own, _, _, _ in rows],
                "ti": [ti_id for _, ti_id, _, _ in rows],
                "token": [token for _, _, token, _ in rows],
                "callback": [row for _, _, _, row in rows],
            },
        )


def issue_for_run(
    connection: psycopg.Connection[Any], *, run_id: int, token: int, queue: str, new: NewCallbacks
) -> None:
    """Each callable that the run's end calls for has an issued attempt, without a task instance.

    In the transaction of the end, after it. ``token``: of the lease that decided.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            sql.load("issue_run_callbacks"),
            {
                "run": run_id,
                "token": token,
                "queue": queue,
                "callback_id": list(new.ids),
                "callback": new.rows(None),
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCallbacks:
    """What one move of a group attempt calls for. ``token``: of the lease that decided."""

    run_id: int
    group_id: str
    number: int  # of the group attempt
    token: int
    queue: str
    new: NewCallbacks


def issue_for_groups(
    connection: psycopg.Connection[Any], *, moved: Sequence[GroupCallbacks]
) -> None:
    """Each callable that these moves of group attempts call for has an issued attempt.

    In the transaction of the moves, after them. They have no task instance; what they keep names
    the group.
    """
    rows = [
        (own, one, Jsonb({**row.obj, "group": one.group_id}))
        for one in moved
        for own, row in zip(one.new.ids, one.new.rows(None), strict=True)
    ]
    if not rows:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            sql.load("issue_group_callbacks"),
            {
                "callback_id": [own for own, _, _ in rows],
                "run": [one.run_id for _, one, _ in rows],
                "group": [one.group_id for _, one, _ in rows],
                "number": [one.number for _, one, _ in rows],
                "token": [one.token for _, one, _ in rows],
                "queue": [one.queue for _, one, _ in rows],
                "callback": [row for _, _, row in rows],
            },
        )


def tie_callbacks_to_claim(
    connection: psycopg.Connection[Any], *, names: Mapping[UUID, Sequence[str]]
) -> None:
    """These attempts, just issued, can be claimed only by who issues their callbacks with it.

    A write of its own, so that others are issued as if there were no callbacks.
    """
    if not names:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE attempt p SET callback = u.callback"
            " FROM unnest(%s::uuid[], %s::jsonb[]) AS u(id, callback) WHERE p.id = u.id",
            [
                list(names),
                [Jsonb({CallbackOn.EXECUTE.value: list(own)}) for own in names.values()],
            ],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackClaim:
    """What a worker needs to call a callback. Times aware UTC.

    What is about the task instance is null for a callback of a run; what is about the attempt that
    moved is null where none did (a skip).
    """

    ti_id: int | None
    run_id: int
    task_id: str | None
    map_index: int | None
    try_number: int | None
    resume_index: int | None
    dispatch_no: int
    run_attempt: int
    queue: str
    callback: dict[str, Any]
    callback_key: str
    max_tries: int | None
    pool: str | None
    priority: int | None
    subject_id: UUID | None
    outcome: str | None
    outcome_reason: str | None
    error: dict[str, Any] | None
    hostname: str | None
    pid: int | None
    started_at: datetime | None
    ended_at: datetime | None
    flow_id: str
    run_key: str
    run_type: str
    run_state: str
    logical_date: datetime | None
    data_interval_start: datetime | None
    data_interval_end: datetime | None
    conf: Any
    note: str
    run_queued_at: datetime | None
    run_started_at: datetime | None
    run_ended_at: datetime | None
    bundle_digest: str


def claim_callback(
    connection: psycopg.Connection[Any],
    *,
    attempt_id: UUID,
    token: int,
    fence: int,
    nonce: UUID,
    worker_job_id: UUID,
    hostname: str,
    pid: int,
) -> CallbackClaim | None:
    """The callback runs under ``nonce``; ``None`` when it was refused, and then nothing changed."""
    with connection.cursor(row_factory=class_row(CallbackClaim)) as cursor:
        cursor.execute(
            sql.load("claim_callback"),
            {
                "attempt": attempt_id,
                "token": token,
                "fence": fence,
                "nonce": nonce,
                "worker": worker_job_id,
                "hostname": hostname,
                "pid": pid,
            },
        )
        return cursor.fetchone()


def finish_callback(
    connection: psycopg.Connection[Any],
    *,
    attempt_id: UUID,
    nonce: UUID,
    outcome: AttemptOutcome,
    reason: str | None,
    error: dict[str, Any] | None,
) -> int | None:
    """The callback ended with its own report; the id of its run. ``None``: nothing changed."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "UPDATE attempt SET state = 'ended', is_live = false, is_accepted = true, outcome = %s,"
            " outcome_reason = %s, error = %s, ended_at = clock_timestamp()"
            " WHERE id = %s AND nonce = %s AND kind = 'callback' AND state = 'running'"
            " RETURNING run_id",
            [outcome, reason, None if error is None else Jsonb(error), attempt_id, nonce],
        )
        row = cursor.fetchone()
        return None if row is None else int(row[0])


def end_killed_callback(
    connection: psycopg.Connection[Any],
    *,
    attempt_id: UUID,
    worker_job_id: UUID,
    pid: int,
    reason: str,
) -> int | None:
    """The callback that its worker killed is terminated, and not called again; its run's id."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "UPDATE attempt SET state = 'ended', is_live = false, outcome = 'terminated',"
            " outcome_reason = %s, ended_at = clock_timestamp()"
            " WHERE id = %s AND worker_job_id = %s AND pid = %s AND kind = 'callback'"
            " AND state = 'running' RETURNING run_id",
            [reason, attempt_id, worker_job_id, pid],
        )
        row = cursor.fetchone()
        return None if row is None else int(row[0])


def repeat_callbacks(
    connection: psycopg.Connection[Any],
    *,
    attempt_ids: Sequence[UUID],
    outcome: AttemptOutcome,
    reason: str,
    dead_after_s: float | None = None,
    source: str | None = None,
) -> list[dict[str, Any]]:
    """Each of these callbacks that still runs is ended, and issued again if it may be.

    ``dead_after_s``: only those that are still silent. One dict per callback that ended:
    attempt_id, ti_id, run_id, task_id, dispatch_no, callback, next_id (null: it was the last call).
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            sql.load("repeat_callbacks"),
            {
                "attempt": list(attempt_ids),
                "next_id": [uuid7() for _ in attempt_ids],
                "outcome": outcome,
                "reason": reason,
                "dead_after_s": dead_after_s,
                "calls_max": CALLS_MAX,
                "source": source,
            },
        )
        return cursor.fetchall()
