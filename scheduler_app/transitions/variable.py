"""Variables: each write locks its row, raises its version and is told in the history."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import dict_row, tuple_row
from psycopg.types.json import Jsonb

from scheduler_app.rules.variables import MASK

if TYPE_CHECKING:
    from uuid import UUID

    import psycopg

# Changes by user code that are kept of each variable; those by people are all kept.
CHANGES_KEPT: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """Who writes, and why. ``attempt_id`` and ``call_id`` are of user code."""

    actor: str
    reason: str = ""
    flow_id: str | None = None
    attempt_id: UUID | None = None
    call_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVariable:
    """A variable as its row has it: the encoded value in clear, or sealed."""

    key: str
    value: Any
    sealed: str | None
    sealed_with: str
    is_secret: bool
    description: str
    version: int = 0


def read_variable(
    connection: psycopg.Connection[Any], *, key: str, lock: bool = False
) -> StoredVariable | None:
    """The row, locked until the end of the transaction if asked for; none if there is none."""
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT key, value::text, sealed, sealed_with, is_secret, description, version FROM variable"
            " WHERE key = %s FOR NO KEY UPDATE"
            if lock
            else "SELECT key, value::text, sealed, sealed_with, is_secret, description, version"
            " FROM variable WHERE key = %s",
            [key],
        )
        row = cursor.fetchone()
        if row is None:
            return None
        # As text: one of Django's connections does not read JSON, a raw one does.
        return StoredVariable(**{**row, "value": json.loads(row["value"] or "null")})


def read_secrets(connection: psycopg.Connection[Any]) -> list[tuple[str, str]]:
    """Key and sealed value of every secret."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT key, sealed FROM variable WHERE is_secret AND sealed IS NOT NULL ORDER BY key"
        )
        return cursor.fetchall()


def secrets_stamp(connection: psycopg.Connection[Any]) -> tuple[Any, ...]:
    """Differs when a secret was added, changed or taken away."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute("SELECT count(*), max(updated_at) FROM variable WHERE is_secret")
        row = cursor.fetchone()
        assert row is not None, "an aggregate has one row"
        return row


def is_running(
    connection: psycopg.Connection[Any], *, ti_id: int, attempt_id: UUID, nonce: UUID
) -> bool:
    """Whether the attempt is its task instance's current one, of this delivery.

    It stays so until the end of the transaction.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT 1 FROM task_instance WHERE id = %s AND attempt_id = %s AND claim_nonce = %s"
            " AND state = 'running' FOR SHARE",
            [ti_id, attempt_id, nonce],
        )
        return cursor.fetchone() is not None


def was_called(connection: psycopg.Connection[Any], *, call_id: UUID) -> bool:
    """Whether the call of user code has changed the variable already."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute("SELECT 1 FROM variable_change WHERE call_id = %s", [call_id])
        return cursor.fetchone() is not None


def create_variable(
    connection: psycopg.Connection[Any], *, new: StoredVariable, by: Author
) -> bool:
    """The variable is there; false, and nothing changed, if somebody else made it first."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO variable (key, value, sealed, sealed_with, is_secret, description, version,"
            " updated_at, updated_by) VALUES (%s, %s, %s, %s, %s, %s, 1, clock_timestamp(), %s)"
            " ON CONFLICT (key) DO NOTHING",
            [*_written(new), by.actor],
        )
        if cursor.rowcount == 0:
            return False
    _tell(connection, before=None, after=new, version=1, by=by)
    return True


def change_variable(
    connection: psycopg.Connection[Any],
    *,
    before: StoredVariable,
    after: StoredVariable,
    by: Author,
) -> int:
    """The locked row ``before`` is as ``after``; its new version.

    Where it has become a secret, its history is masked too.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "UPDATE variable SET key = %s, value = %s, sealed = %s, sealed_with = %s, is_secret = %s,"
            " description = %s, version = version + 1, updated_at = clock_timestamp(),"
            " updated_by = %s WHERE key = %s RETURNING version",
            [*_written(after), by.actor, before.key],
        )
        row = cursor.fetchone()
        assert row is not None, "the row is locked"
        version: int = row[0]
        if after.is_secret and not before.is_secret:
            cursor.execute(
                "UPDATE variable_change SET before = CASE WHEN before IS NOT NULL THEN %(mask)s END,"
                " after = CASE WHEN after IS NOT NULL THEN %(mask)s END WHERE key = %(key)s",
                {"mask": Jsonb(MASK), "key": before.key},
            )
    _tell(connection, before=before, after=after, version=version, by=by)
    return version


def delete_variable(
    connection: psycopg.Connection[Any], *, before: StoredVariable, by: Author
) -> None:
    """The locked row is gone; its history stays."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM variable WHERE key = %s", [before.key])
    _tell(connection, before=before, after=None, version=before.version + 1, by=by)


def reseal_variable(
    connection: psycopg.Connection[Any], *, key: str, sealed: str, sealed_with: str
) -> None:
    """The locked row holds the same value under another key: no change, so no version and no history."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE variable SET value = NULL, sealed = %s, sealed_with = %s WHERE key = %s",
            [sealed, sealed_with, key],
        )


def _written(row: StoredVariable) -> list[Any]:
    value = None if row.sealed is not None else Jsonb(row.value)
    return [row.key, value, row.sealed, row.sealed_with, row.is_secret, row.description]


def _tell(
    connection: psycopg.Connection[Any],
    *,
    before: StoredVariable | None,
    after: StoredVariable | None,
    version: int,
    by: Author,
) -> None:
    row = after or before
    assert row is not None, "a change has a side"
    hide = any(side is not None and side.is_secret for side in (before, after))
    action = "created" if before is None else "deleted" if after is None else "changed"
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO variable_change (key, version, at, actor, action, reason, before, after,"
            " was_secret, is_secret, flow_id, attempt_id, call_id)"
            " VALUES (%s, %s, clock_timestamp(), %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            [
                *(row.key, version, by.actor, action, by.reason),
                *(_shown(side, hide=hide) for side in (before, after)),
                *(None if side is None else side.is_secret for side in (before, after)),
                *(by.flow_id, by.attempt_id, by.call_id),
            ],
        )
        if by.attempt_id is not None:
            cursor.execute(
                "DELETE FROM variable_change WHERE key = %(key)s AND attempt_id IS NOT NULL AND id <="
                " (SELECT id FROM variable_change WHERE key = %(key)s AND attempt_id IS NOT NULL"
                " ORDER BY id DESC OFFSET %(kept)s LIMIT 1)",
                {"key": row.key, "kept": CHANGES_KEPT},
            )


def _shown(side: StoredVariable | None, *, hide: bool) -> Jsonb | None:
    if side is None:
        return None
    return Jsonb(MASK if hide else side.value)
