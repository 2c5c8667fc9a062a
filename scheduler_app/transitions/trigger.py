"""Deferral and resume: a task instance waits for a trigger, and the first that fires it wakes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from psycopg.rows import class_row, tuple_row
from psycopg.types.json import Jsonb

from scheduler_app import sql
from scheduler_app.transitions.counters import count

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    import psycopg

DETAIL_CHARACTERS_MAX: Final = 1000  # about so many

Kind = Literal["time", "event", "watched"]
# moved: scheduled; kept: its task instance is frozen; over: that waits no longer, so the trigger is
# cancelled; late: somebody else was first; again: it was locked, nothing is known yet.
What = Literal["moved", "kept", "over", "late", "again"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """What an attempt hands its task instance over to. JSON values, as ``rules.values`` encodes."""

    next_method: str
    next_kwargs: Any
    kind: Kind
    classpath: str
    kwargs: dict[str, Any]
    detail: str  # the trigger in words
    event_key: str | None = None  # of kind event
    due_at: datetime | str | None = None  # of kind time, with its offset; or
    due_after_s: float | None = None  # from the commit on, by the database's clock
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fire:
    """What a trigger came to. ``payload`` is ``{"event": ...}`` or ``{"error": {...}}``, encoded."""

    trigger_id: int
    state: str  # fired, failed or timed_out
    payload: dict[str, Any] | None  # null: what it fired with while its task instance was frozen
    event_id: int | None = None  # the external event that it takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """What a fire did."""

    trigger_id: int
    ti_id: int
    run_id: int
    state: str | None  # of the trigger now, where this fire moved it
    what: What


@dataclass(slots=True, kw_only=True)
class Round:
    """What one look at the due triggers came to."""

    fired: list[Fired] = field(default_factory=list)
    is_full: bool = False  # there may be more: look again at once
    next_in_s: float | None = None  # until something else is due; null: nothing is


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedTrigger:
    """What a triggerer needs to watch the trigger that it claimed."""

    trigger_id: int
    ti_id: int
    run_id: int
    classpath: str
    kwargs: Any
    block_count: int
    flow_id: str
    run_key: str
    task_id: str
    bundle_digest: str


def defer(
    connection: psycopg.Connection[Any],
    *,
    ti_id: int,
    attempt_id: UUID,
    nonce: UUID,
    wait: Wait,
) -> int | None:
    """The attempt ended as deferred and its task instance waits; the run's id.

    ``None`` means that it was reported already (same nonce, ended) or is no longer current; then
    nothing changed.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            sql.load("defer_attempt"),
            {
                "ti": ti_id,
                "attempt": attempt_id,
                "nonce": nonce,
                "next_method": wait.next_method,
                "next_kwargs": Jsonb({"kwargs": wait.next_kwargs}),
                "kind": wait.kind,
                "classpath": wait.classpath,
                "kwargs": Jsonb(wait.kwargs),
                "event_key": wait.event_key,
                "due_at": wait.due_at,
                "due_after_s": wait.due_after_s,
                "timeout_s": wait.timeout_s,
                "detail": wait.detail,
            },
        )
        row = cursor.fetchone()
        return None if row is None else int(row[0])


def fire(connection: psycopg.Connection[Any], *, fires: Sequence[Fire]) -> list[Fired]:
    """Each trigger fired, unless somebody else was first; what came of each. One transaction."""
    if not fires:
        return []
    ordered = sorted(fires, key=lambda one: one.trigger_id)
    with connection.transaction():
        with connection.cursor(row_factory=class_row(Fired)) as cursor:
            cursor.execute(
                sql.load("fire_triggers"),
                {
                    "trigger": [one.trigger_id for one in ordered],
                    "state": [one.state for one in ordered],
                    "payload": [
                        None if one.payload is None else Jsonb(one.payload) for one in ordered
                    ],
                    "event": [one.event_id for one in ordered],
                },
            )
            fired = cursor.fetchall()
        ended = [one.state for one in fired if one.what == "moved"]
        failed = sum(1 for state in ended if state == "failed")
        count(connection, "triggers_failed_total", failed)
        count(connection, "triggers_succeeded_total", len(ended) - failed)
    return fired


def fire_due(connection: psycopg.Connection[Any], *, limit: int) -> Round:
    """What is due has fired: timers, time limits, external events that came early, thawed tasks."""
    with connection.cursor(row_factory=class_row(Fire)) as cursor:
        cursor.execute(sql.load("due_triggers"), {"limit": limit})
        due = cursor.fetchall()
    done = Round(is_full=len(due) == limit)
    _let_sleep(connection, [one.trigger_id for one in due if one.state is None])
    done.fired = fire(connection, fires=[one for one in due if one.state is not None])
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT extract(epoch FROM wake_at - clock_timestamp())::float8 FROM trigger"
            " WHERE is_waiting AND wake_at > (SELECT clock_timestamp()) ORDER BY wake_at LIMIT 1"
        )
        row = cursor.fetchone()
        done.next_in_s = None if row is None else max(0.0, float(row[0]))
    return done


def _let_sleep(connection: psycopg.Connection[Any], trigger_ids: list[int]) -> None:
    """Triggers for which no external event came early are told of the next one when it comes.

    An event that this look did not see yet sees the trigger: it locks the task instance, as the
    deferral did, and looks for waiting triggers afterwards.
    """
    if not trigger_ids:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH l AS (SELECT id FROM trigger WHERE id = ANY(%s) AND state = 'waiting'"
            "  AND is_waiting AND kind = 'event' ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)"
            " UPDATE trigger g SET wake_at = g.timeout_at FROM l WHERE g.id = l.id",
            [trigger_ids],
        )


def claim_triggers(
    connection: psycopg.Connection[Any], *, job_id: UUID, limit: int, dead_after_s: float
) -> list[ClaimedTrigger]:
    """Triggers that nobody alive watched are watched by this triggerer."""
    with connection.cursor(row_factory=class_row(ClaimedTrigger)) as cursor:
        cursor.execute(
            sql.load("claim_triggers"),
            {"job": job_id, "limit": limit, "dead_after_s": dead_after_s},
        )
        return cursor.fetchall()


def watched_by(connection: psycopg.Connection[Any], *, job_id: UUID) -> frozenset[int]:
    """The triggers that are still this triggerer's to watch. Walks ``trigger_watched``."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT id FROM trigger WHERE triggerer_job_id = %s AND is_waiting"
            " AND kind = 'watched' AND state = 'waiting'",
            [job_id],
        )
        return frozenset(row[0] for row in cursor.fetchall())


def release_triggers(
    connection: psycopg.Connection[Any],
    *,
    job_id: UUID,
    trigger_ids: Sequence[int] | None = None,
) -> int:
    """Nobody watches what this triggerer watched, or these of it; how many. Free to be claimed."""
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH l AS (SELECT id FROM trigger WHERE triggerer_job_id = %(job)s AND is_waiting"
            "  AND kind = 'watched' AND (%(some)s::bigint[] IS NULL OR id = ANY(%(some)s::bigint[]))"
            "  FOR NO KEY UPDATE SKIP LOCKED)"
            " UPDATE trigger g SET triggerer_job_id = NULL FROM l WHERE g.id = l.id",
            {"job": job_id, "some": None if trigger_ids is None else list(trigger_ids)},
        )
        return cursor.rowcount


def note_blocked(connection: psycopg.Connection[Any], *, trigger_id: int) -> int:
    """The trigger counts one block of a triggerer's loop more; how many it has now."""
    with connection.transaction():
        with connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(
                "UPDATE trigger SET block_count = block_count + 1 WHERE id = %s"
                " RETURNING block_count",
                [trigger_id],
            )
            row = cursor.fetchone()
        count(connection, "triggers_blocked_main_thread_total", 1)
    return 0 if row is None else int(row[0])


def record_external_event(
    connection: psycopg.Connection[Any], *, ti_id: int, key: str, payload: Any, actor: str
) -> tuple[int, int | None]:
    """The event is kept; its id, and the trigger that waits for it, if one does.

    Part of the caller's transaction, which holds the task instance's row by now, so that a deferral
    either is committed, and its trigger seen here, or comes later and finds the event.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute("SELECT id FROM task_instance WHERE id = %s FOR NO KEY UPDATE", [ti_id])
        cursor.execute(
            "INSERT INTO external_event (ti_id, key, payload, actor, received_at)"
            " VALUES (%s, %s, %s, %s, clock_timestamp()) RETURNING id",
            [ti_id, key, Jsonb(payload), actor],
        )
        event = cursor.fetchone()
        assert event is not None
        cursor.execute(
            "SELECT g.id FROM trigger g JOIN task_instance i ON i.id = g.ti_id"
            "  AND i.try_number = g.try_number AND i.resume_index = g.resume_index"
            " WHERE g.ti_id = %s AND g.kind = 'event' AND g.event_key = %s AND g.is_waiting"
            "  AND g.state = 'waiting'",
            [ti_id, key],
        )
        trigger = cursor.fetchone()
    return int(event[0]), None if trigger is None else int(trigger[0])
