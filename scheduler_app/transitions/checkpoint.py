"""What a running attempt saves: checkpoints, progress and pushed values, each write with its proof."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb

from scheduler_app import sql

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    import psycopg

Scope = Literal["task", "flow", "name"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """A value for a checkpoint, encoded by ``rules.values``. ``owner`` is the name, of scope name."""

    scope: Scope
    owner: str | None
    key: str
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressNow:
    """How far an attempt has got."""

    done: int
    total: int | None
    note: str


def save(
    connection: psycopg.Connection[Any],
    *,
    ti_id: int,
    attempt_id: UUID,
    nonce: UUID,
    saves: Sequence[Save],
    progress: ProgressNow | None,
    kept: int,
) -> int | None:
    """All of it is stored, in one commit; the id of the run.

    ``None`` means that the attempt is no longer the one whose result would be accepted, and that
    nothing changed. At most one save a checkpoint; its newest ``kept`` saves stay.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            sql.load("save_checkpoints"),
            {
                "ti": ti_id,
                "attempt": attempt_id,
                "nonce": nonce,
                "kept": kept,
                "scope": [one.scope for one in saves],
                "owner": [one.owner for one in saves],
                "key": [one.key for one in saves],
                "value": [Jsonb(one.value) for one in saves],
                "progress": progress is not None,
                "done": progress.done if progress else None,
                "total": progress.total if progress else None,
                "note": progress.note if progress else None,
            },
        )
        row = cursor.fetchone()
        return None if row is None else int(row[0])


def push(
    connection: psycopg.Connection[Any],
    *,
    ti_id: int,
    attempt_id: UUID,
    nonce: UUID,
    fence: int,
    key: str,
    value: Any,
) -> bool:
    """The attempt has handed out the encoded value; false, and nothing changed, as of ``save``."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            sql.load("push_value"),
            {
                "ti": ti_id,
                "attempt": attempt_id,
                "nonce": nonce,
                "fence": fence,
                "key": key,
                "value": Jsonb(value),
            },
        )
        return cursor.fetchone() is not None


def publish(
    connection: psycopg.Connection[Any],
    *,
    ti_id: int,
    attempt_id: UUID,
    nonce: UUID,
    fence: int,
    key: str,
    kind: str,
    title: str,
    body: Any,
) -> bool:
    """The attempt shows the artifact; false, and nothing changed, as of ``save``."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            sql.load("publish_artifact"),
            {
                "ti": ti_id,
                "attempt": attempt_id,
                "nonce": nonce,
                "fence": fence,
                "key": key,
                "kind": kind,
                "title": title,
                "body": Jsonb(body),
            },
        )
        return cursor.fetchone() is not None
