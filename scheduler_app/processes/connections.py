"""Reading connections, opened, over any connection to the database: for tasks and for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler_app.processes import sealing
from scheduler_app.rules.connections import ConnectionParts
from scheduler_app.transitions import connection as moves
from scheduler_app.transitions.connection import StoredConnection

if TYPE_CHECKING:
    import psycopg


def read(connection: psycopg.Connection[Any], connection_id: str) -> ConnectionParts | None:
    """The connection in clear; none if there is none. Raises ``CannotOpen``."""
    row = moves.read_connection(connection, connection_id=connection_id)
    return None if row is None else opened(row)


def opened(row: StoredConnection) -> ConnectionParts:
    """The row in clear. Raises ``CannotOpen``."""
    return ConnectionParts(
        conn_type=row.conn_type,
        host=row.host,
        login=row.login,
        schema=row.schema,
        port=row.port,
        description=row.description,
        **(open_part(row.connection_id, row.sealed) if row.sealed else {}),
    )


def open_part(connection_id: str, sealed: str) -> dict[str, Any]:
    """What was sealed of it: ``password`` and ``extra``. Raises ``CannotOpen``."""
    found: dict[str, Any] = sealing.open_sealed(_name(connection_id), sealed)
    return found


def closed(connection_id: str, parts: ConnectionParts) -> StoredConnection:
    """The row that holds the connection. Raises ``NoKey``."""
    has_secrets = bool(parts.password or parts.extra)
    sealed = sealing.seal(_name(connection_id), parts.secrets()) if has_secrets else None
    return StoredConnection(
        connection_id=connection_id,
        conn_type=parts.conn_type,
        host=parts.host,
        login=parts.login,
        schema=parts.schema,
        port=parts.port,
        description=parts.description,
        has_password=bool(parts.password),
        extra_keys=tuple(sorted(parts.extra)),
        sealed=sealed.text if sealed else "",
        sealed_with=sealed.key_name if sealed else "",
    )


def _name(connection_id: str) -> str:
    """What a sealed text opens for: no variable can have such a key."""
    return f"/connection/{connection_id}"
