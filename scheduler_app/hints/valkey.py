"""Hints over Valkey pub/sub."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from scheduler_app.hints.carrier import CONNECT_TIMEOUT_S, QUIET_CHECK_S, HintsAway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

SOCKET_TIMEOUT_S: Final = 0.5


class ValkeySender:
    """All hints of one call in one round trip."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: redis.Redis[Any] | None = None  # type: ignore[type-arg,unused-ignore] # stubs differ by version

    def send(self, hints: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """See ``Sender.send``."""
        try:
            if self._client is None:
                self._client = redis.Redis.from_url(
                    self._url,
                    socket_timeout=SOCKET_TIMEOUT_S,
                    socket_connect_timeout=SOCKET_TIMEOUT_S,
                    single_connection_client=True,  # a pool would take as long as what it is for
                )
            if len(hints) == 1:  # the end of a task, for one
                ((channel, content),) = hints
                self._client.publish(channel, json.dumps(content))
                return
            pipe = self._client.pipeline(transaction=False)
            for channel, content in hints:
                pipe.publish(channel, json.dumps(content))
            pipe.execute()
        except (redis.RedisError, OSError) as error:
            self._client = None
            raise HintsAway(str(error)) from error

    def close(self) -> None:
        """See ``Sender.close``."""
        client, self._client = self._client, None
        if client is not None:
            client.close()


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

    async def _check(self, now: float) -> None:
        if self._is_asked:
            raise HintsAway("no answer to a ping")
        self._is_asked = True
        self._check_at = now + QUIET_CHECK_S
        await self._subscription.ping()
