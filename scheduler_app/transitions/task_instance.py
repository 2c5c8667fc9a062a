"""Task instances: what their upstream decides, and what they wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.rows import tuple_row

from scheduler_app import sql

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import psycopg

    from scheduler_app.rules.states import TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitNote:
    """What a ready task instance waits for."""

    ti_id: int
    code: str
    detail: str


def mark_task_instances(
    connection: psycopg.Connection[Any], *, marks: Mapping[int, TaskState]
) -> frozenset[int]:
    """The ids that took their terminal state; no attempt had been issued for them."""
    if not marks:
        return frozenset()
    ids = sorted(marks)
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            sql.load("mark_task_instances"),
            {"ti": ids, "state": [str(marks[ti_id]) for ti_id in ids]},
        )
        return frozenset(row[0] for row in cursor.fetchall())


def note_waits(connection: psycopg.Connection[Any], *, notes: Sequence[WaitNote]) -> None:
    """Each ready task instance is scheduled and says what it waits for, since when."""
    if not notes:
        return
    ordered = sorted(notes, key=lambda note: note.ti_id)
    with connection.cursor() as cursor:
        cursor.execute(
            sql.load("note_waits"),
            {
                "ti": [note.ti_id for note in ordered],
                "code": [note.code for note in ordered],
                "detail": [note.detail for note in ordered],
            },
        )
