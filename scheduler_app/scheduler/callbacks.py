"""Callbacks on the scheduler's side: what a loss calls for, publishing, and what was lost on the way.

The rows are written with the transitions that they are about; a callback outlives its run, so what
is here walks the live attempts of a shard and asks for no active run.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final, LiteralString

from django.conf import settings
from psycopg.rows import dict_row, tuple_row

from scheduler_app.rules import callbacks
from scheduler_app.rules.definition import from_dict
from scheduler_app.rules.errors import DefinitionError
from scheduler_app.rules.states import AttemptOutcome, TaskState
from scheduler_app.transitions.attempt import Message
from scheduler_app.transitions.callback import NO_TI, NewCallbacks, repeat_callbacks
from scheduler_app.transitions.incident import raise_incident, resolve_old_incidents

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    import psycopg

PLACES_MIN: Final = 16  # callbacks that may wait in one queue, however few workers there are
BATCH_MAX: Final = 500
LOST_TOLD_FOR_S: Final = 86_400.0  # then the incident of a lost callback is over by itself

logger = logging.getLogger(__name__)

# Live callbacks of these shards that no freeze holds; each question adds what it asks for.
# Columns as ``sweep`` has them for tasks. Walks attempt_live.
_LIVE: Final = """
SELECT p.id AS attempt_id, 0 AS ti_id, p.run_id, p.fence, p.lease_token, p.queue, p.publish_count,
       p.published_at IS NOT NULL AS is_out, p.worker_job_id, true AS is_callback,
       false AS overtaken,
       s.seen AS seen_at,
       s.seen < clock_timestamp() - make_interval(secs => %(dead_s)s::float8) AS is_stale,
       s.seen < clock_timestamp() - make_interval(secs => 3 * %(dead_s)s::float8) AS is_long_silent
  FROM attempt p
  LEFT JOIN task_instance i ON i.id = p.ti_id
  LEFT JOIN run r ON r.id = p.run_id
  LEFT JOIN flow f ON f.flow_id = r.flow_id,
  LATERAL (SELECT greatest(p.started_at, p.heartbeat_at, in_touch_since()) AS seen) s
 WHERE p.shard = ANY(%(shard)s) AND p.is_live AND p.kind = 'callback'
   AND i.held_by IS NULL AND r.frozen_at IS NULL AND f.frozen_at IS NULL
"""


def after_loss(
    connection: psycopg.Connection[Any], attempt_ids: Sequence[UUID]
) -> dict[UUID, NewCallbacks]:
    """What each of these attempts calls for should its loss be the one that fails its task.

    A definition that cannot be read calls for nothing, and does not keep its task from being lost.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT p.id, p.task_id, v.id AS version, v.definition FROM attempt p"
            " JOIN run r ON r.id = p.run_id JOIN flow_version v ON v.id = r.version_id"
            " WHERE p.id = ANY(%s)",
            [list(attempt_ids)],
        )
        rows = cursor.fetchall()
    names: dict[tuple[int, str], dict[str, tuple[str, ...]]] = {}
    for version, raw in {row["version"]: row["definition"] for row in rows}.items():
        with contextlib.suppress(DefinitionError):
            names |= {(version, task.task_id): task.callbacks for task in from_dict(raw).tasks}
    return {
        row["id"]: NewCallbacks.of(
            callbacks.due(names.get((row["version"], row["task_id"]), {}), TaskState.FAILED),
            state=TaskState.FAILED,
        )
        for row in rows
    }


def unpublished(
    connection: psycopg.Connection[Any], *, terms: dict[int, int], queue_slots: dict[str, int]
) -> list[Message]:
    """Messages of issued callbacks that are not with the carrier, as far as their queues have room.

    The rest waits for those that are there: a storm of callbacks must not bury the tasks.
    """
    rows = _live(
        connection,
        terms,
        " AND p.state = 'issued' ORDER BY p.published_at IS NULL, p.id LIMIT %(limit)s",
    )
    room: dict[str, int] = {}
    messages = []
    for row in rows:
        queue = row["queue"]
        left = room.setdefault(queue, max(PLACES_MIN, 2 * queue_slots.get(queue, 0)))
        room[queue] = left - 1
        if not row["is_out"] and left > 0:
            messages.append(_message(row))
    return messages


def any_live(connection: psycopg.Connection[Any], terms: dict[int, int]) -> bool:
    """Whether some callback of these shards has not ended."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT 1 FROM attempt WHERE shard = ANY(%s) AND is_live"
            " AND kind = 'callback')",
            [list(terms)],
        )
        row = cursor.fetchone()
    return row is not None and bool(row[0])


def unclaimed(connection: psycopg.Connection[Any], terms: dict[int, int]) -> list[dict[str, Any]]:
    """Callbacks whose message may be lost, in the shape of ``sweep``'s own question for tasks."""
    return _live(
        connection,
        terms,
        " AND p.state = 'issued'"
        " AND p.published_at < clock_timestamp() - make_interval(secs => %(timeout_s)s::float8)"
        " ORDER BY p.published_at LIMIT %(limit)s",
    )


def running(connection: psycopg.Connection[Any], terms: dict[int, int]) -> list[dict[str, Any]]:
    """Running callbacks, in the shape of ``sweep``'s own question for tasks."""
    return _live(
        connection,
        terms,
        # Of one whose end was witnessed the verdict on that event decides.
        " AND p.state = 'running' AND NOT EXISTS (SELECT 1 FROM executor_event e"
        "  WHERE e.attempt_id = p.id AND e.verdict = 'pending')"
        " ORDER BY p.started_at LIMIT %(limit)s",
    )


def _live(
    connection: psycopg.Connection[Any], terms: dict[int, int], more: LiteralString
) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            _LIVE + more,
            {
                "shard": list(terms),
                "dead_s": settings.HEARTBEAT_DEAD_AFTER_S,
                "timeout_s": settings.QUEUED_TIMEOUT_S,
                "limit": BATCH_MAX,
            },
        )
        return cursor.fetchall()


def repeat_silent(
    connection: psycopg.Connection[Any], attempt_ids: Sequence[UUID], *, dead_after_s: float
) -> None:
    """Each of these callbacks that is still silent is lost, and called again if it may be."""
    _tell_last(
        connection,
        repeat_callbacks(
            connection,
            attempt_ids=attempt_ids,
            outcome=AttemptOutcome.LOST,
            reason=f"No heartbeat for more than {dead_after_s:g} s from its worker: it is lost.",
            dead_after_s=dead_after_s,
            source="scheduler: heartbeat sweep",
        ),
    )


def repeat_witnessed(
    connection: psycopg.Connection[Any], attempt_id: UUID, *, reason: str, worker_alive: bool
) -> int | None:
    """The callback whose process is gone is ended, and called again if it may be; its run's id."""
    ended = repeat_callbacks(
        connection,
        attempt_ids=[attempt_id],
        outcome=AttemptOutcome.TERMINATED if worker_alive else AttemptOutcome.LOST,
        reason=reason,
    )
    _tell_last(connection, ended)
    return ended[0]["run_id"] if ended else None


def forget_lost(connection: psycopg.Connection[Any]) -> None:
    """Incidents of lost callbacks that have been shown long enough are resolved."""
    resolve_old_incidents(connection, kind="callback_lost", older_than_s=LOST_TOLD_FOR_S)


def _tell_last(connection: psycopg.Connection[Any], ended: Iterable[dict[str, Any]]) -> None:
    for row in ended:
        logger.warning(
            "a callback was lost",
            extra={"attempt_id": str(row["attempt_id"]), "is_last": row["next_id"] is None},
        )
        if row["next_id"] is not None:
            continue
        said = row["callback"]
        raise_incident(
            connection,
            kind="callback_lost",
            subject=str(row["attempt_id"]),
            message=(
                f"Callback {said['name']} ({said['on']} of {row['task_id'] or 'the run'}, run"
                f" {row['run_id']}) lost its process or worker {row['dispatch_no']} times and is"
                " not called again. Look at its log, and do by hand what it should have done."
            ),
        )


def _message(row: dict[str, Any]) -> Message:
    return Message(
        attempt_id=row["attempt_id"],
        ti_id=NO_TI,
        run_id=row["run_id"],
        fence=row["fence"],
        lease_token=row["lease_token"],
        queue=row["queue"],
    )
