"""Task instances: what their upstream decides, and what they wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.rows import class_row, tuple_row
from psycopg.types.json import Jsonb

from scheduler_app import sql
from scheduler_app.rules import stopping
from scheduler_app.rules.roles import Role
from scheduler_app.transitions.run import revise_runs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    import psycopg

    from scheduler_app.rules.states import TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenInstance:
    """An unfinished task instance, locked."""

    id: int
    task_id: str
    map_index: int
    state: str
    held_by: int | None  # number of the freeze
    attempt_id: UUID | None
    is_asked_to_stop: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitNote:
    """What a ready task instance waits for."""

    ti_id: int
    code: str
    detail: str
    about: str = ""  # the key, or the task instance, that the code is about
    sign: str = ""  # what of the detail lasts; told anew when that changes


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


def lock_open(
    connection: psycopg.Connection[Any], *, run_id: int, ti_ids: Sequence[int] | None = None
) -> list[OpenInstance]:
    """The unfinished task instances of the run, or these of it, locked in id order.

    The caller holds the run. Walks ``task_instance_open``.
    """
    with connection.cursor(row_factory=class_row(OpenInstance)) as cursor:
        cursor.execute(
            "SELECT i.id, i.task_id, i.map_index, i.state, i.held_by, i.attempt_id,"
            "  i.stop_requested_at IS NOT NULL AS is_asked_to_stop FROM task_instance i"
            " WHERE i.run_id = %(run)s AND i.is_open"
            "  AND (%(ti)s::bigint[] IS NULL OR i.id = ANY(%(ti)s::bigint[]))"
            " ORDER BY i.id FOR NO KEY UPDATE",
            {"run": run_id, "ti": None if ti_ids is None else list(ti_ids)},
        )
        return cursor.fetchall()


def spared_teardowns(connection: psycopg.Connection[Any], *, run_id: int) -> frozenset[str]:
    """The tasks that are left alone where the whole run is asked to end: see ``stopping.spared``.

    The caller holds the run and locked its unfinished task instances.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT t->>'task_id', t->>'role', ARRAY(SELECT jsonb_array_elements_text(t->'upstream'))"
            " FROM run r"
            " JOIN flow_version v ON v.id = r.version_id,"
            ' jsonb_path_query(v.definition, \'$.tasks[*] ? (@.role == "setup"'
            '  || @.role == "teardown")\') t WHERE r.id = %s',
            [run_id],
        )
        found = cursor.fetchall()
        setups = {task_id for task_id, role, _ in found if role == Role.SETUP}
        own = {
            task_id: setups.intersection(upstream)
            for task_id, role, upstream in found
            if role == Role.TEARDOWN
        }
        if not own:
            return frozenset()
        cursor.execute(
            "SELECT task_id, array_agg(DISTINCT state) FROM task_instance"
            " WHERE run_id = %s AND task_id = ANY(%s) GROUP BY 1",
            [run_id, [*own, *setups]],
        )
        return stopping.spared(own, dict(cursor.fetchall()))


def terminate(
    connection: psycopg.Connection[Any], *, ti_ids: Sequence[int], reason: str
) -> dict[int, bool]:
    """Each is asked to end: whether it is open still, since its attempt runs; else it is failed.

    The caller holds the run and locked the task instances in an earlier statement.
    """
    if not ti_ids:
        return {}
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            sql.load("terminate_task_instances"), {"ti": sorted(ti_ids), "reason": reason}
        )
        asked: dict[int, bool] = dict(cursor.fetchall())
    revise_runs(connection, ti_ids=list(asked))
    return asked


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
                "about": [note.about or None for note in ordered],
                "sign": [note.sign or None for note in ordered],
            },
        )


def set_next_retry(
    connection: psycopg.Connection[Any],
    *,
    ti: OpenInstance,
    at: datetime | None,
    after_s: float,
    edited: Mapping[str, str],
) -> datetime | None:
    """When the waiting task instance begins again, at that time or so long from now.

    ``None`` if it is no longer as it was seen, and then nothing changed. The caller holds the run.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            sql.load("set_next_retry"),
            {
                "ti": ti.id,
                "seen_attempt": ti.attempt_id,
                "seen_state": ti.state,
                "at": at,
                "after_s": after_s,
                "edited": Jsonb(dict(edited)),
            },
        )
        row = cursor.fetchone()
        return None if row is None else row[0]
