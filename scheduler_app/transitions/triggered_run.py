"""Which task instance asked for which run: kept, found again, and looked at when the task stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import class_row, tuple_row

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    import psycopg

CHAIN_MAX: Final = 12  # flows named in a refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The newest run that was asked for so in this execution of the task, and where it stands."""

    run_id: int
    try_number: int
    how: str
    run_key: str
    flow_id: str
    state: str
    will_retry: bool  # its policy begins it again


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLink:
    """A run that came of an ask."""

    parent_run_id: int
    ti_id: int
    attempt_id: UUID
    budget_start: int
    try_number: int
    key: str
    run_id: int
    how: str
    depth: int
    waits: bool
    on_stop: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """A run that shall end with its task instance, which has ended, begun anew, or is gone."""

    id: int
    run_id: int
    ti_id: int
    is_active: bool
    will_retry: bool
    task_id: str | None
    parent_flow_id: str | None
    parent_run_key: str | None
    state: str | None  # of the task instance
    is_anew: bool  # it was cleared since


def find_link(
    connection: psycopg.Connection[Any], *, ti_id: int, budget_start: int, key: str
) -> Found | None:
    """What the task asked for under this key since its beginning or last clear; the newest of it.

    Walks ``triggered_run_once``.
    """
    with connection.cursor(row_factory=class_row(Found)) as cursor:
        cursor.execute(
            "SELECT l.run_id, l.try_number, l.how, r.run_key, r.flow_id, r.state,"
            "  r.retry_at IS NOT NULL AS will_retry"
            " FROM triggered_run l JOIN run r ON r.id = l.run_id"
            " WHERE l.ti_id = %s AND l.budget_start = %s AND l.key = %s"
            " ORDER BY l.try_number DESC LIMIT 1",
            [ti_id, budget_start, key],
        )
        return cursor.fetchone()


def keep_link(connection: psycopg.Connection[Any], *, new: NewLink) -> bool:
    """Whether the link is kept now; else one of the same ask was there."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO triggered_run (parent_run_id, ti_id, attempt_id, budget_start, try_number,"
            "  key, run_id, how, depth, waits, on_stop, is_watched, created_at)"
            " VALUES (%(parent_run_id)s, %(ti_id)s, %(attempt_id)s, %(budget_start)s,"
            "  %(try_number)s, %(key)s, %(run_id)s, %(how)s, %(depth)s, %(waits)s, %(on_stop)s::varchar,"
            "  %(on_stop)s::varchar = 'terminate', clock_timestamp())"
            " ON CONFLICT DO NOTHING",
            {name: getattr(new, name) for name in NewLink.__dataclass_fields__},
        )
        return cursor.rowcount == 1


def depth_of(connection: psycopg.Connection[Any], *, run_id: int) -> int:
    """How many runs stand above the run, each having asked for the next; 0 where no task did."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT coalesce(max(depth), 0) FROM triggered_run WHERE run_id = %s", [run_id]
        )
        row = cursor.fetchone()
    return 0 if row is None else int(row[0])


def chain_of(connection: psycopg.Connection[Any], *, run_id: int) -> list[str]:
    """The flows of the run and of the runs above it, the nearest first, at most ``CHAIN_MAX``."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "WITH RECURSIVE up AS ("
            " SELECT r.id, r.flow_id, 1 AS n FROM run r WHERE r.id = %(run)s"
            " UNION ALL"
            " SELECT r.id, r.flow_id, up.n + 1 FROM up"
            "  JOIN LATERAL (SELECT l.parent_run_id FROM triggered_run l WHERE l.run_id = up.id"
            "   ORDER BY l.depth DESC LIMIT 1) l ON true"
            "  JOIN run r ON r.id = l.parent_run_id WHERE up.n < %(max)s)"
            " SELECT flow_id FROM up ORDER BY n",
            {"run": run_id, "max": CHAIN_MAX},
        )
        return [row[0] for row in cursor.fetchall()]


def run_by_key(
    connection: psycopg.Connection[Any], *, flow_id: str, run_key: str
) -> tuple[int, str] | None:
    """Number and state of the run of the flow with this id."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT id, state FROM run WHERE flow_id = %s AND run_key = %s", [flow_id, run_key]
        )
        row = cursor.fetchone()
    return None if row is None else (int(row[0]), str(row[1]))


def stopped_parents(
    connection: psycopg.Connection[Any], *, shards: Sequence[int], limit: int
) -> list[Stopped]:
    """Runs in these shards that may have to end with their task instance, oldest first.

    Walks ``triggered_run_watched``: what is watched is what goes on.
    """
    with connection.cursor(row_factory=class_row(Stopped)) as cursor:
        cursor.execute(
            "SELECT l.id, l.run_id, l.ti_id, r.is_active, r.retry_at IS NOT NULL AS will_retry,"
            "  i.task_id, p.flow_id AS parent_flow_id, p.run_key AS parent_run_key, i.state,"
            "  coalesce(i.budget_start <> l.budget_start, false) AS is_anew"
            " FROM triggered_run l JOIN run r ON r.id = l.run_id"
            " LEFT JOIN task_instance i ON i.id = l.ti_id LEFT JOIN run p ON p.id = l.parent_run_id"
            " WHERE l.is_watched AND r.shard = ANY(%s)"
            "  AND (NOT (r.is_active OR r.retry_at IS NOT NULL) OR i.id IS NULL OR NOT i.is_open"
            "   OR i.budget_start <> l.budget_start)"
            " ORDER BY l.id LIMIT %s",
            [list(shards), limit],
        )
        return cursor.fetchall()


def settle(connection: psycopg.Connection[Any], *, link_ids: Sequence[int]) -> None:
    """These runs do not have to be looked at any more."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE triggered_run SET is_watched = false WHERE id = ANY(%s)", [list(link_ids)]
        )
