"""Connections in user code: ``Connection.get("warehouse")`` inside a task or a callback."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from scheduler_app.rules import connections
from scheduler_app.rules.connections import ConnectionParts
from scheduler_app.rules.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class ConnectionsOutOfReach(RuntimeError):
    """There is no stack behind this call: it was not made by a running task or callback."""

    def __init__(self, call: str) -> None:
        super().__init__(call)
        self.call = call

    def __str__(self) -> str:
        """What to do instead."""
        return (
            f"{self.call} works inside a running task or callback alone, not while the file of a flow"
            " is loaded and not in a process of the task's own. Move it into the task; in a test, put"
            ' it under: with Connection.given({"name": Connection(...)}): ...'
        )


class NoSuchConnection(NotFound, KeyError):
    """There is no connection of this id."""

    def __str__(self) -> str:
        """The message, not its repr as of other ``KeyError``."""
        return str(self.args[0])


class ConnectionServices(Protocol):
    """What the worker does for connections while user code runs."""

    def connection(self, connection_id: str) -> ConnectionParts | None:
        """The connection in clear; none if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Where an outside system is, and what opens it, as it is stored at the moment of ``get``.

    Password and extras are sealed at rest. What attempts print is stored with the password masked, and
    extras whose name says that they are secret (token, key, ...).
    """

    conn_type: str
    host: str = ""
    login: str = ""
    password: str = field(default="", repr=False)
    schema: str = ""
    port: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)
    description: str = ""

    @staticmethod
    def get(connection_id: str) -> Connection:
        """The connection. Raises ``NoSuchConnection``, which is a ``KeyError``."""
        if _services is None:
            raise ConnectionsOutOfReach(f"Connection.get({connection_id!r})")
        found = _services.connection(connections.check_id(connection_id))
        if found is None:
            message = f"There is no connection {connection_id!r}. Create it: manage.py connections."
            raise NoSuchConnection(message, field="connection_id")
        return Connection(**{name: getattr(found, name) for name in _FIELDS})

    def uri(self) -> str:
        """In one line, everything quoted: ``postgres://ana:...@db:5432/sales``."""
        return connections.uri(ConnectionParts(**{name: getattr(self, name) for name in _FIELDS}))

    @staticmethod
    @contextmanager
    def given(kept: Mapping[str, Connection]) -> Iterator[None]:
        """For tests, without a stack: inside, there are these connections."""
        with served_by(_Memory(dict(kept))):
            yield


_FIELDS: Final = tuple(ConnectionParts.__dataclass_fields__)
_services: ConnectionServices | None = None  # of the attempt that this process executes


@contextmanager
def served_by(services: ConnectionServices) -> Iterator[None]:
    """``Connection`` works inside, over these services."""
    global _services  # noqa: PLW0603 - a process executes one attempt at a time
    kept, _services = _services, services
    try:
        yield
    finally:
        _services = kept


@dataclass(frozen=True, slots=True)
class _Memory:
    """Connections of a test."""

    kept: Mapping[str, Connection]

    def connection(self, connection_id: str) -> ConnectionParts | None:
        found = self.kept.get(connection_id)
        if found is None:
            return None
        return ConnectionParts(**{name: getattr(found, name) for name in _FIELDS})
