"""Hints over Valkey pub/sub."""

from __future__ import annotations

import asyncio
import contextlib
import json
import select
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from scheduler_app.hints.carrier import CONNECT_TIMEOUT_S, QUIET_CHECK_S, HintsAway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

SOCKET_TIMEOUT_S: Final = 0.5


class ValkeySender:
    """All hints of one call in one write. Their number of listeners is not waited for, nor asked for.

    A server that has closed the connection is noticed by the next hint; one that hangs, when nothing
    more can be written. What was said meanwhile is lost, as hints may be.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Any = None  # redis.Connection, whose stubs differ by version
        self._is_answered = (
            True  # where the server, or what stands before it, cannot be told not to
        )

    def send(self, hints: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """See ``Sender.send``."""
        try:
            connection = self._connected()
            said = b"".join([_published(channel, content) for channel, content in hints])
            connection.send_packed_command([said], check_health=False)
            if self._is_answered:
                for _ in hints:
                    connection.read_response()
        except (redis.RedisError, OSError) as error:
            self.close()
            raise HintsAway(str(error)) from error

    def close(self) -> None:
        """See ``Sender.close``."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def _connected(self) -> Any:
        """The connection, on which nothing can be read unless it is over."""
        if self._connection is not None and self._is_over():
            self.close()
        if self._connection is None:
            made: Any = redis.ConnectionPool.from_url(
                self._url,
                socket_timeout=SOCKET_TIMEOUT_S,
                socket_connect_timeout=SOCKET_TIMEOUT_S,
            ).make_connection()
            made.connect()
            self._connection = made
            self._readable = select.poll()
            self._readable.register(made._sock, select.POLLIN)  # noqa: SLF001 - it has no public name
            self._is_answered = not _is_silenced(made)
        return self._connection

    def _is_over(self) -> bool:
        if not self._readable.poll(0):  # an end can be read too; to try costs ten times as much
            return False
        try:
            return bool(self._connection.can_read(timeout=0))
        except (redis.RedisError, OSError):
            return True


def _published(channel: str, content: dict[str, Any]) -> bytes:
    """The hint as the server is told it: a command is an array of texts, each with its length before it."""
    name, text = channel.encode(), json.dumps(content).encode()
    return b"*3\r\n$7\r\nPUBLISH\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
        len(name),
        name,
        len(text),
        text,
    )


def _is_silenced(connection: Any) -> bool:
    """Whether the server answers nothing from now on; told to answer once more, so as to know."""
    silence = connection.pack_command("CLIENT", "REPLY", "OFF")
    speak = connection.pack_command("CLIENT", "REPLY", "ON")
    connection.send_packed_command([*silence, *speak], check_health=False)
    try:
        connection.read_response()
    except redis.ResponseError:
        # It refused both; the second answer is read too.
        with contextlib.suppress(redis.ResponseError):
            connection.read_response()
        return False
    connection.send_packed_command(silence, check_health=False)
    return True


@asynccontextmanager
async def listen(url: str, channel: str) -> AsyncIterator[ValkeyEar]:
    """Subscribed, by the server's own word. Raises ``HintsAway``."""
    client: redis.asyncio.Redis = redis.asyncio.from_url(
        url,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        socket_keepalive=True,
        # A connection that mends itself would hide that hints were missed.
        retry=Retry(NoBackoff(), 0),
    )
    async with client, client.pubsub() as subscription:
        try:
            await subscription.subscribe(channel)
            if await subscription.get_message(timeout=CONNECT_TIMEOUT_S) is None:
                raise HintsAway("no answer to the subscription")
        except (redis.RedisError, OSError) as error:
            raise HintsAway(str(error)) from error
        yield ValkeyEar(subscription)


class ValkeyEar:
    """A connection that answers nothing is broken."""

    def __init__(self, subscription: Any) -> None:
        self._subscription = subscription
        self._is_asked = False  # whether a ping is out that was not answered
        self._check_at = asyncio.get_running_loop().time() + QUIET_CHECK_S

    async def hear(self, timeout_s: float) -> str | None:
        """See ``Ear.hear``."""
        clock = asyncio.get_running_loop()
        deadline = clock.time() + timeout_s
        try:
            while True:
                wait_s = max(0.0, min(deadline, self._check_at) - clock.time())
                message = await self._subscription.get_message(timeout=wait_s)
                now = clock.time()
                if message is not None:
                    self._is_asked = False
                    self._check_at = now + QUIET_CHECK_S
                    if message["type"] == "message":
                        return str(message["data"].decode(errors="replace"))
                elif now >= self._check_at:
                    await self._check(now)
                if now >= deadline:
                    return None
        except (redis.RedisError, OSError) as error:
            raise HintsAway(str(error)) from error

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """See ``Ear.resting``. Where the client library keeps its stream elsewhere, it goes on reading."""
        writer = getattr(self._subscription.connection, "_writer", None)
        if writer is None:
            yield
            return
        writer.transport.pause_reading()
        try:
            yield
        finally:
            writer.transport.resume_reading()

    async def _check(self, now: float) -> None:
        if self._is_asked:
            raise HintsAway("no answer to a ping")
        self._is_asked = True
        self._check_at = now + QUIET_CHECK_S
        await self._subscription.ping()
