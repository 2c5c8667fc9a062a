"""The triggerer's way to the database: one connection in one thread, asked by the loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from scheduler_app.processes import database

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Link:
    """Questions are answered one after the other; the loop goes on meanwhile."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="database")
        self._connection: psycopg.Connection[Any] | None = None

    async def ask(self, question: Callable[[psycopg.Connection[Any]], T]) -> T:
        """What ``question`` returns. Raises ``psycopg.Error``; the next one connects anew if it must."""
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, self._answer, question
        )

    def close(self) -> None:
        """Questions that were asked are answered; then the connection is closed."""
        self._thread.submit(self._drop)
        self._thread.shutdown(wait=True)

    def _answer(self, question: Callable[[psycopg.Connection[Any]], T]) -> T:
        if self._connection is None or self._connection.closed:
            self._connection = database.connect("triggerer")
        try:
            return question(self._connection)
        except psycopg.Error:
            self._drop()
            raise

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
