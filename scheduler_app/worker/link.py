"""Connections to the database: made when needed, kept, and waited for when it is away."""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg

from scheduler_app.processes import database
from scheduler_app.transitions.identity import database_identity

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_PAUSE_S: Final = 0.1
PAUSE_MAX_S: Final = 5.0

# These are answers about the values, not about the database; asking again changes nothing.
ANSWERS: Final = (psycopg.DataError, psycopg.IntegrityError)

logger = logging.getLogger(__name__)
T = TypeVar("T")


class KeptConnection:
    """A connection of one thread, made when it is asked for and kept until it is dropped."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._connection: psycopg.Connection[Any] | None = None

    def get(self) -> psycopg.Connection[Any]:
        """An open connection. Raises ``psycopg.OperationalError``."""
        if self._connection is None or self._connection.closed:
            self._connection = database.connect("worker", name=self._name)
        return self._connection

    def drop(self) -> None:
        """The connection is closed, in whatever state it was."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class GaveUp(Exception):
    """The database was away until the caller no longer wanted to wait."""


class Link:
    """One connection, with the identity of the database behind it."""

    def __init__(self, *, on_wait: Callable[[bool], None]) -> None:
        self._kept = KeptConnection("child")
        self._known: psycopg.Connection[Any] | None = None  # whose identity was read
        self._identity = ""
        self._on_wait = on_wait  # told when waiting for the database begins and ends

    def once(self, ask: Callable[[psycopg.Connection[Any]], T]) -> T:
        """What ``ask`` returns. Raises ``psycopg.Error``; the next call connects anew if it must."""
        try:
            return ask(self._connected())
        except ANSWERS:
            raise
        except psycopg.Error:
            self.close()
            raise

    def ask(self, ask: Callable[[psycopg.Connection[Any]], T], *, give_up: Callable[[], bool]) -> T:
        """What ``ask`` returns, however long the database is away. ``ask`` must bear repetition.

        Raises ``GaveUp`` once ``give_up()`` says so, and the errors in ``ANSWERS``.
        """
        pause_s = FIRST_PAUSE_S
        waited = False
        try:
            while True:
                try:
                    return self.once(ask)
                except ANSWERS:
                    raise
                except psycopg.Error as error:
                    logger.warning("the database is away", extra={"error": str(error).strip()})
                if not waited:
                    waited = True
                    self._on_wait(True)
                if give_up():
                    raise GaveUp
                time.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads the load
                pause_s = min(pause_s * 2, PAUSE_MAX_S)
        finally:
            if waited:
                self._on_wait(False)

    def identity(self) -> str:
        """The database's identity, read once a connection. Raises ``psycopg.Error``."""
        self._connected()
        return self._identity

    def close(self) -> None:
        """The connection is gone; the next question makes a new one."""
        self._known = None
        self._kept.drop()

    def _connected(self) -> psycopg.Connection[Any]:
        connection = self._kept.get()
        if connection is not self._known:
            self._identity = database_identity(connection)
            self._known = connection
        return connection
