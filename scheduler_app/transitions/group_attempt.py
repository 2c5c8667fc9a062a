"""Attempts of transactional groups: begun, ended, and set aside for the next one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.rows import class_row, tuple_row

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import psycopg


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAttemptRow:
    """The current attempt of a group of a run. Times aware UTC."""

    run_id: int
    group_id: str
    number: int
    budget_start: int
    state: str
    retry_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """A group attempt that begins; the one before, if there is one, is not current any more."""

    run_id: int
    group_id: str
    number: int
    budget_start: int
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Set:
    """What the current attempt of a group has come to."""

    run_id: int
    group_id: str
    number: int
    state: str
    reason: str
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A task instance of a group that failed, locked, with what tells whether a person failed it."""

    id: int
    task_id: str
    map_index: int
    state: str
    attempt_id: Any
    held_by: int | None
    stop_reason: str | None
    marked_by: str | None


def current(
    connection: psycopg.Connection[Any], *, run_ids: Sequence[int]
) -> list[GroupAttemptRow]:
    """The current attempt of each group of these runs that has one. Walks ``group_attempt_current``."""
    with connection.cursor(row_factory=class_row(GroupAttemptRow)) as cursor:
        cursor.execute(
            "SELECT run_id, group_id, number, budget_start, state, retry_at FROM group_attempt"
            " WHERE run_id = ANY(%s) AND is_current",
            [list(run_ids)],
        )
        return cursor.fetchall()


def lock_members(
    connection: psycopg.Connection[Any], *, run_id: int, task_ids: Sequence[str]
) -> list[Member]:
    """The task instances of these tasks, locked in id order; the caller holds the run."""
    with connection.cursor(row_factory=class_row(Member)) as cursor:
        cursor.execute(
            "SELECT id, task_id, map_index, state, attempt_id, held_by,"
            "  CASE WHEN stop_requested_at IS NOT NULL THEN stop_reason END AS stop_reason,"
            "  mark->>'actor' AS marked_by"
            " FROM task_instance WHERE run_id = %s AND task_id = ANY(%s)"
            " ORDER BY id FOR NO KEY UPDATE",
            [run_id, list(task_ids)],
        )
        return cursor.fetchall()


def begin(connection: psycopg.Connection[Any], *, attempts: Sequence[Begin]) -> None:
    """Each is its group's current attempt, and running. The caller holds the runs."""
    if not attempts:
        return
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            _BEGIN,
            {
                "run": [one.run_id for one in attempts],
                "group": [one.group_id for one in attempts],
                "number": [one.number for one in attempts],
                "budget_start": [one.budget_start for one in attempts],
                "cause": [one.cause for one in attempts],
            },
        )


def write(connection: psycopg.Connection[Any], *, states: Sequence[Set]) -> None:
    """Each current attempt has come to its state, with the reason. The caller holds the runs."""
    if not states:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            _WRITE,
            {
                "run": [one.run_id for one in states],
                "group": [one.group_id for one in states],
                "number": [one.number for one in states],
                "state": [one.state for one in states],
                "reason": [one.reason for one in states],
                "retry_at": [one.retry_at for one in states],
            },
        )


# The insert counts `old` so that what was current loses its place in the unique index first.
_BEGIN = """
WITH u AS (
  SELECT * FROM unnest(%(run)s::bigint[], %(group)s::text[], %(number)s::int[],
                       %(budget_start)s::int[], %(cause)s::text[])
    AS u(run_id, group_id, number, budget_start, cause)),
old AS (
  UPDATE group_attempt g
     SET is_current = false, ended_at = coalesce(g.ended_at, clock_timestamp()),
         state = CASE WHEN g.state = 'success' THEN g.state ELSE 'failed' END
    FROM u WHERE g.run_id = u.run_id AND g.group_id = u.group_id AND g.is_current
  RETURNING g.id)
INSERT INTO group_attempt (run_id, group_id, number, budget_start, cause, state, reason, is_current,
                           started_at)
SELECT u.run_id, u.group_id, u.number, u.budget_start, u.cause, 'running', '', true,
       clock_timestamp()
  FROM u WHERE (SELECT count(*) FROM old) >= 0
ON CONFLICT DO NOTHING
"""
_WRITE = """
UPDATE group_attempt g
   SET state = u.state, reason = u.reason, retry_at = u.retry_at, ended_at = clock_timestamp()
  FROM unnest(%(run)s::bigint[], %(group)s::text[], %(number)s::int[], %(state)s::text[],
              %(reason)s::text[], %(retry_at)s::timestamptz[])
         AS u(run_id, group_id, number, state, reason, retry_at)
 WHERE g.run_id = u.run_id AND g.group_id = u.group_id AND g.number = u.number AND g.is_current
"""
