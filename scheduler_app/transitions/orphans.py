"""Task instances and attempts that have lost each other: found together again, or closed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import class_row, tuple_row

from scheduler_app import sql
from scheduler_app.transitions.counters import count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    import psycopg


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A task instance that was scheduled again."""

    ti_id: int
    run_id: int
    attempt_id: UUID | None  # that it had
    state: str  # before
    next_state: str


def redispatch_orphans(
    connection: psycopg.Connection[Any], *, ti_ids: Sequence[int], source: str
) -> list[Orphan]:
    """Each of these that has no live attempt is scheduled again (cleared ones begin anew).

    Rows that somebody has locked are left: they move by themselves. In a transaction that proved
    its lease.
    """
    locked = _lock(connection, ti_ids)
    if not locked:
        return []
    with connection.cursor(row_factory=class_row(Orphan)) as cursor:
        cursor.execute(sql.load("redispatch_orphans"), {"ti": locked, "source": source})
        found = cursor.fetchall()
    count(connection, "scheduler_orphaned_tasks_cleared_total", len(found))
    count(connection, "scheduler_executor_events_processed_total", len(found))
    return found


def close_strays(
    connection: psycopg.Connection[Any],
    *,
    strays: Mapping[UUID, int | None],
    dead_after_s: float,
    source: str,
) -> dict[UUID, int | None]:
    """Each of these that no task waits for and nobody executes is ended; its run by its id.

    ``strays``: attempt to task instance, null without one. In a transaction that proved its lease.
    """
    locked = _lock(connection, [ti_id for ti_id in strays.values() if ti_id is not None])
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            sql.load("close_strays"),
            {
                "attempt": list(strays),
                "ti": locked,
                "dead_after_s": dead_after_s,
                "source": source,
            },
        )
        found: dict[UUID, int | None] = dict(cursor.fetchall())
    count(connection, "scheduler_executor_events_processed_total", len(found))
    return found


# Whoever has a row locked moves it.
_LOCK: Final = """
SELECT i.id FROM task_instance i WHERE i.id = ANY(%s::bigint[])
 ORDER BY i.id FOR NO KEY UPDATE OF i SKIP LOCKED
"""


def _lock(connection: psycopg.Connection[Any], ti_ids: Sequence[int]) -> list[int]:
    """The task instances of these that nobody else has locked."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(_LOCK, [list(ti_ids)])
        return [row[0] for row in cursor.fetchall()]
