"""Which database this is: what a message carries and a claim compares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg


def database_identity(connection: psycopg.Connection[Any]) -> str:
    """System identifier, WAL timeline, database oid and installation id, joined by colons.

    Read once a connection. A promoted replica keeps the system identifier and changes the
    timeline; a restored copy keeps both and is told apart by the installation id only if it was
    given a new one.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT (SELECT system_identifier FROM pg_control_system()),"
            " left(pg_walfile_name(pg_current_wal_lsn()), 8),"
            " (SELECT oid FROM pg_database WHERE datname = current_database()),"
            " (SELECT id FROM installation LIMIT 1)"
        )
        row = cursor.fetchone()
    assert row is not None, "a SELECT without FROM gives one row"
    return ":".join(str(part) for part in tuple(row))
