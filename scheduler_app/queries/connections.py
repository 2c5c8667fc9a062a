"""Connections: where outside systems are. What opens them never leaves the database from here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Q

from scheduler_app.models import Connection
from scheduler_app.queries import lens

if TYPE_CHECKING:
    from datetime import datetime

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import ConnectionFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionRow:
    """One connection, without what opens it."""

    connection_id: str
    conn_type: str
    host: str
    login: str
    schema: str
    port: int | None
    description: str
    has_password: bool
    extra_keys: list[str]  # what the extras are called
    version: int  # counts the changes
    updated_at: datetime
    updated_by: str


def _rows(scope: Scope) -> QuerySet[Connection]:
    return scope.shared(Connection.objects.annotate(filter_code=lens.NEVER_FILTERED))


NOUN: Final[lens.Noun[Any]] = lens.Noun(
    name="connections",
    model=Connection,
    row=ConnectionRow,
    rows=_rows,
    columns={},
    key="connection_id",
)


def page(asked: ConnectionFilter, scope: Scope) -> lens.Page[ConnectionRow]:
    """One page of connections."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, connection_id: str) -> ConnectionRow:
    """The connection with this id. Raises ``NotFound``."""
    found: ConnectionRow = lens.one(
        NOUN, scope, Q(connection_id=connection_id), f"connection {connection_id}"
    )
    return found
