"""Hints over PostgreSQL's NOTIFY, where there is no Valkey.

A commit with a notice takes a lock on the whole database for a moment, so no deciding transaction
ever has one: each is a statement of its own, whose commit does not wait for the disk. LISTEN does
nothing, and says nothing, behind a pooler that changes connections; so a listener hears itself
first, and again whenever it has been quiet for long.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql

from scheduler_app.hints.carrier import CONNECT_TIMEOUT_S, QUIET_CHECK_S, HintsAway
from scheduler_app.processes import database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

PAYLOAD_BYTES_MAX: Final = 7900  # PostgreSQL refuses 8000
PING: Final = ""  # to oneself

_SAY: Final = (
    "SELECT set_config('synchronous_commit', 'off', true), pg_notify(h.channel, h.content)"
    " FROM unnest(%s::text[], %s::text[]) AS h (channel, content)"
)


class PostgresSender:
    """All hints of one call in one statement."""

    def __init__(
        self, lend: Callable[[Callable[[psycopg.Connection[Any]], None]], None] | None = None
    ) -> None:
        """``lend`` runs something on a connection that the process has anyway, between its own uses."""
        self._lend = lend
        self._connection: psycopg.Connection[Any] | None = None

    def send(self, hints: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """See ``Sender.send``."""
        said = [(channel, text) for channel, content in hints for text in pieces(content)]

        def say(connection: psycopg.Connection[Any]) -> None:
            connection.execute(_SAY, [[channel for channel, _ in said], [text for _, text in said]])

        try:
            if self._lend is not None:
                self._lend(say)
            else:
                say(self._connected())
        except psycopg.Error as error:
            self.close()
            raise HintsAway(str(error).strip()) from error

    def close(self) -> None:
        """See ``Sender.close``."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = database.connect("hints")
        return self._connection


def pieces(content: dict[str, Any]) -> Iterator[str]:
    """The content as JSON texts that PostgreSQL takes, its list divided where that is too long.

    What is too long without a list goes unsaid: whoever listens looks by himself later.
    """
    text = json.dumps(content)
    if len(text) <= PAYLOAD_BYTES_MAX:  # ASCII
        yield text
        return
    for key, values in content.items():
        if isinstance(values, list) and len(values) > 1:
            middle = len(values) // 2
            yield from pieces({**content, key: values[:middle]})
            yield from pieces({**content, key: values[middle:]})
            return


@asynccontextmanager
async def listen(channel: str) -> AsyncIterator[PostgresEar]:
    """Subscribed, and a hint to itself was heard. Raises ``HintsAway``."""
    try:
        connection = await database.connect_async("hints", name="listener")
    except psycopg.Error as error:
        raise HintsAway(str(error).strip()) from error
    try:
        ear = PostgresEar(connection, channel)
        await ear.subscribe()
        yield ear
    finally:
        await connection.close()


class PostgresEar:
    """One connection that does nothing else."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], channel: str) -> None:
        self._connection = connection
        self._channel = channel
        self._heard: deque[str] = deque()
        self._is_asked = True  # whether a ping is out that was not heard
        self._check_at = 0.0

    async def subscribe(self) -> None:
        """Hints are heard from now on. Raises ``HintsAway``."""
        try:
            await self._connection.execute(
                sql.SQL("LISTEN {}").format(sql.Identifier(self._channel))
            )
            await self._ping()
            await self._wait(CONNECT_TIMEOUT_S)
        except psycopg.Error as error:
            raise HintsAway(str(error).strip()) from error
        if self._is_asked:
            raise HintsAway(
                "no NOTIFY arrives: a pooler that changes connections is in between; name a Valkey"
                " in CACHE_URL"
            )

    async def hear(self, timeout_s: float) -> str | None:
        """See ``Ear.hear``."""
        clock = asyncio.get_running_loop()
        deadline = clock.time() + timeout_s
        try:
            while not self._heard:
                await self._wait(max(0.0, min(deadline, self._check_at) - clock.time()))
                now = clock.time()
                if not self._heard and now >= self._check_at:
                    if self._is_asked:
                        raise HintsAway("the database's own NOTIFY arrives no more")
                    await self._ping()
                if now >= deadline:
                    break
        except psycopg.Error as error:
            raise HintsAway(str(error).strip()) from error
        return self._heard.popleft() if self._heard else None

    def resting(self) -> AbstractContextManager[None]:
        """See ``Ear.resting``: the connection is watched only while somebody hears."""
        return nullcontext()

    async def _wait(self, timeout_s: float) -> None:
        """What has been said is heard; at least one hint, or nothing in so long."""
        async for notice in self._connection.notifies(timeout=timeout_s, stop_after=1):
            self._is_asked = False
            self._check_at = asyncio.get_running_loop().time() + QUIET_CHECK_S
            if notice.payload != PING:
                self._heard.append(notice.payload)

    async def _ping(self) -> None:
        self._is_asked = True
        self._check_at = asyncio.get_running_loop().time() + QUIET_CHECK_S
        await self._connection.execute(_SAY, [[self._channel], [PING]])
