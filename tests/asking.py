"""Questions to a stack's database, over a connection that is kept: to make one costs a hundred questions."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
from psycopg.rows import dict_row


class Questions:
    """What one test asks. Only the main thread keeps a connection; it belongs to nobody's budget."""

    def __init__(self) -> None:
        self._address = ""
        self._kept: psycopg.Connection[dict[str, Any]] | None = None

    def rows(
        self, database_url: str, query: str, parameters: tuple[Any, ...]
    ) -> list[dict[str, Any]]:
        """The rows. A database that was away is asked over a new connection."""
        is_main = threading.current_thread() is threading.main_thread()
        if not (is_main and query.startswith("SELECT")):
            with _connect(database_url) as connection:
                return connection.execute(query, parameters).fetchall()
        if self._kept is not None and self._address == database_url:
            try:
                return self._kept.execute(query, parameters).fetchall()
            except psycopg.Error:
                if not self._kept.broken:
                    raise
        self.close()
        self._address, self._kept = database_url, _connect(database_url)
        return self._kept.execute(query, parameters).fetchall()

    def close(self) -> None:
        """No connection is kept."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None


def _connect(database_url: str) -> psycopg.Connection[dict[str, Any]]:
    return psycopg.connect(
        database_url, row_factory=dict_row, autocommit=True, prepare_threshold=None
    )
