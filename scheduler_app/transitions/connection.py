"""Connections: each write locks its row and raises its version."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.rows import dict_row, tuple_row
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    import psycopg


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConnection:
    """A connection as its row has it."""

    connection_id: str
    conn_type: str
    host: str
    login: str
    schema: str
    port: int | None
    description: str
    has_password: bool
    extra_keys: tuple[str, ...]
    sealed: str
    sealed_with: str
    version: int = 0


def read_connection(
    connection: psycopg.Connection[Any], *, connection_id: str, lock: bool = False
) -> StoredConnection | None:
    """The row, locked until the end of the transaction if asked for; none if there is none."""
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT connection_id, conn_type, host, login, schema, port, description, has_password,"
            " extra_keys::text, sealed, sealed_with, version FROM connection WHERE connection_id = %s"
            " FOR NO KEY UPDATE"
            if lock
            else "SELECT connection_id, conn_type, host, login, schema, port, description,"
            " has_password, extra_keys::text, sealed, sealed_with, version FROM connection"
            " WHERE connection_id = %s",
            [connection_id],
        )
        row = cursor.fetchone()
    if row is None:
        return None
    # As text: one of Django's connections does not read JSON, a raw one does.
    return StoredConnection(**{**row, "extra_keys": tuple(json.loads(row["extra_keys"]))})


def create_connection(
    connection: psycopg.Connection[Any], *, new: StoredConnection, actor: str
) -> bool:
    """The connection is there; false, and nothing changed, if somebody else made it first."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO connection (connection_id, conn_type, host, login, schema, port, description,"
            " has_password, extra_keys, sealed, sealed_with, version, updated_at, updated_by)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, 1, clock_timestamp(), %s)"
            " ON CONFLICT (connection_id) DO NOTHING",
            [new.connection_id, *_written(new), actor],
        )
        return cursor.rowcount == 1


def change_connection(
    connection: psycopg.Connection[Any], *, after: StoredConnection, actor: str
) -> None:
    """The locked row is as ``after``, one version on."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE connection SET conn_type = %s, host = %s, login = %s, schema = %s, port = %s,"
            " description = %s, has_password = %s, extra_keys = %s, sealed = %s, sealed_with = %s,"
            " version = version + 1, updated_at = clock_timestamp(), updated_by = %s"
            " WHERE connection_id = %s",
            [*_written(after), actor, after.connection_id],
        )


def delete_connection(connection: psycopg.Connection[Any], *, connection_id: str) -> None:
    """The locked row is gone."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM connection WHERE connection_id = %s", [connection_id])


def reseal_connection(
    connection: psycopg.Connection[Any], *, connection_id: str, sealed: str, sealed_with: str
) -> None:
    """The locked row holds the same under another key: no change, so no version."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE connection SET sealed = %s, sealed_with = %s WHERE connection_id = %s",
            [sealed, sealed_with, connection_id],
        )


def read_sealed(connection: psycopg.Connection[Any]) -> list[tuple[str, str]]:
    """Id and sealed part of every connection that has one."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT connection_id, sealed FROM connection WHERE sealed <> '' ORDER BY connection_id"
        )
        return cursor.fetchall()


def sealed_stamp(connection: psycopg.Connection[Any]) -> tuple[Any, ...]:
    """Differs when a connection with something sealed was added, changed or taken away."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute("SELECT count(*), max(updated_at) FROM connection WHERE sealed <> ''")
        row = cursor.fetchone()
        assert row is not None, "an aggregate has one row"
        return row


def _written(row: StoredConnection) -> list[Any]:
    return [
        *(row.conn_type, row.host, row.login, row.schema, row.port, row.description),
        *(row.has_password, Jsonb(list(row.extra_keys)), row.sealed, row.sealed_with),
    ]
