"""Make, change, delete and show connections."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.hints.notices import Notices
from scheduler_app.operations.reasons import check_reason
from scheduler_app.processes import connections
from scheduler_app.rules import connections as rules
from scheduler_app.rules.connections import ConnectionParts
from scheduler_app.rules.errors import Conflict, NotFound
from scheduler_app.transitions import connection as moves
from scheduler_app.transitions.audit import record_audit

if TYPE_CHECKING:
    from scheduler_app.transitions.connection import StoredConnection

TOPICS: Final = ("connections",)

_notices = Notices(settings.CACHE_URL)


def set_connection(
    *,
    connection_id: str,
    actor: str,
    reason: str,
    must_be_new: bool = False,
    must_exist: bool = False,
    expected_version: int | None = None,
    **said: Any,
) -> bool:
    """The connection is as ``said``; what is not said of it stays. Whether it was made.

    ``said`` has fields of ``ConnectionParts``. A password or an extra that is masked stays too, so
    that what was read can be written back. With ``expected_version`` it is changed only if that is
    what is there. Raises ``InvalidInput``, ``NotFound`` and ``Conflict``.
    """
    why = check_reason(reason)
    rules.check_id(connection_id)
    with transaction.atomic():
        connection.ensure_connection()
        raw = connection.connection
        row = moves.read_connection(raw, connection_id=connection_id, lock=True)
        if row is None and must_exist:
            raise _not_there(connection_id)
        if row is not None and must_be_new:
            raise _is_there(connection_id)
        version = 0 if row is None else row.version
        if expected_version is not None and expected_version != version:
            message = f"Connection {connection_id!r} has moved: version {version}, not {expected_version}."
            raise Conflict(message, version=version)
        before = ConnectionParts() if row is None else connections.opened(row)
        if said.get("password") == rules.MASK:
            del said["password"]
        if "extra" in said:
            said["extra"] = rules.kept(said["extra"], before.extra)
        after = rules.check(replace(before, **said))
        if row is not None and after == before:
            return False
        new = connections.closed(connection_id, after)
        if row is not None:
            moves.change_connection(raw, after=new, actor=actor)
        elif not moves.create_connection(raw, new=new, actor=actor):
            raise _is_there(connection_id)
        record_audit(
            raw,
            actor=actor,
            action="connection.set",
            object_kind="connection",
            object_id=connection_id,
            reason=why,
            before=None if row is None else _told(row),
            after={
                **_told(new),
                "has_new_password": after.password != before.password,
                "changed_extras": sorted(
                    name
                    for name in {*before.extra, *after.extra}
                    if before.extra.get(name) != after.extra.get(name)
                ),
            },
        )
        transaction.on_commit(lambda: _notices.changed(TOPICS))
    return row is None


def delete_connection(*, connection_id: str, actor: str, reason: str) -> None:
    """The connection is gone. Raises ``NotFound``."""
    why = check_reason(reason)
    with transaction.atomic():
        connection.ensure_connection()
        raw = connection.connection
        row = moves.read_connection(raw, connection_id=connection_id, lock=True)
        if row is None:
            raise _not_there(connection_id)
        moves.delete_connection(raw, connection_id=connection_id)
        record_audit(
            raw,
            actor=actor,
            action="connection.delete",
            object_kind="connection",
            object_id=connection_id,
            reason=why,
            before=_told(row),
        )
        transaction.on_commit(lambda: _notices.changed(TOPICS))


def reveal_connection(*, connection_id: str, actor: str, reason: str) -> ConnectionParts:
    """The connection in clear; who saw it is audited. Raises ``NotFound`` and ``CannotOpen``."""
    why = check_reason(reason)
    with transaction.atomic():
        connection.ensure_connection()
        raw = connection.connection
        found = connections.read(raw, connection_id)
        if found is None:
            raise _not_there(connection_id)
        record_audit(
            raw,
            actor=actor,
            action="connection.reveal",
            object_kind="connection",
            object_id=connection_id,
            reason=why,
        )
    return found


def _told(row: StoredConnection) -> dict[str, Any]:
    """What the audit says: nothing of what is sealed."""
    return {
        "conn_type": row.conn_type,
        "host": row.host,
        "login": row.login,
        "schema": row.schema,
        "port": row.port,
        "has_password": row.has_password,
        "extra_keys": list(row.extra_keys),
    }


def _not_there(connection_id: str) -> NotFound:
    return NotFound(f"there is no connection {connection_id!r}", field="connection_id")


def _is_there(connection_id: str) -> Conflict:
    return Conflict(f"There is a connection {connection_id!r} already.", field="connection_id")
