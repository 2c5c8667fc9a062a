"""A clock that a test sets: the product's statements read it where they ask for the time.

``clock_timestamp()`` and ``pg_postmaster_start_time()`` are looked up along the search path; a
connection that has ``simulated`` before ``pg_catalog`` finds these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scheduler_app.processes import database

if TYPE_CHECKING:
    import psycopg

EPOCH: Final = "2026-01-01 00:00:00+00"

_MAKE: Final = f"""
CREATE SCHEMA IF NOT EXISTS simulated;
DROP TABLE IF EXISTS simulated.clock CASCADE;
CREATE TABLE simulated.clock AS
  SELECT timestamptz '{EPOCH}' AS now, timestamptz '{EPOCH}' AS server_started_at;
CREATE OR REPLACE FUNCTION simulated.clock_timestamp() RETURNS timestamptz
  LANGUAGE sql VOLATILE AS 'SELECT now FROM simulated.clock';
CREATE OR REPLACE FUNCTION simulated.pg_postmaster_start_time() RETURNS timestamptz
  LANGUAGE sql VOLATILE AS 'SELECT server_started_at FROM simulated.clock';
"""


class Clock:
    """Connections whose time stands still until told otherwise."""

    def __init__(self) -> None:
        self._connections: list[psycopg.Connection[Any]] = []
        self.connection = self.connect()
        self.connection.execute(_MAKE)

    def connect(self) -> psycopg.Connection[Any]:
        """A connection of a scheduler, by this clock."""
        made = database.connect("scheduler")
        # A transaction that stalls does so by this clock; the test decides when it is ended.
        made.execute("SET idle_in_transaction_session_timeout = 0")
        made.execute("SET search_path = simulated, pg_catalog, public")
        self._connections.append(made)
        return made

    def reset(self) -> None:
        """The clock is at its beginning."""
        self.connection.execute(
            f"UPDATE simulated.clock SET now = '{EPOCH}', server_started_at = '{EPOCH}'"
        )

    def advance(self, seconds: float) -> None:
        """So much time passes."""
        self.connection.execute(
            "UPDATE simulated.clock SET now = now + make_interval(secs => %s::float8)", [seconds]
        )

    def restart(self) -> None:
        """The server says that it was started now."""
        self.connection.execute("UPDATE simulated.clock SET server_started_at = now")

    def close(self) -> None:
        """No connection is left, and no clock."""
        for connection in self._connections[1:]:
            connection.close()
        self.connection.execute("DROP SCHEMA simulated CASCADE")
        self.connection.close()
