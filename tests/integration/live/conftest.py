"""A browser's end of the live feed."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
import redis
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client

from scheduler_app.live import routing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WAIT_S = 5.0
SETTLED_S = 0.15


class Socket:
    """Opens the feed and speaks its JSON."""

    def __init__(
        self, session: str = "", origin: str = "http://testserver", path: str = "/ws/live"
    ) -> None:
        headers = [(b"host", b"testserver"), (b"origin", origin.encode("latin-1"))]
        if session:
            headers.append((b"cookie", f"{settings.SESSION_COOKIE_NAME}={session}".encode()))
        self.end = ApplicationCommunicator(
            routing.application,
            {
                "type": "websocket",
                "path": path,
                "scheme": "ws",
                "query_string": b"",
                "headers": headers,
                "subprotocols": [],
            },
        )

    async def open(self) -> str:
        """What came back: ``websocket.accept`` or ``websocket.close``."""
        await self.end.send_input({"type": "websocket.connect"})
        answer: str = (await self.end.receive_output(WAIT_S))["type"]
        return answer

    async def say(self, message: Any) -> None:
        text = message if isinstance(message, str) else json.dumps(message)
        await self.end.send_input({"type": "websocket.receive", "text": text})

    async def hear(self, timeout_s: float = WAIT_S) -> Any:
        """The next message; the code if the socket closed."""
        answer = await self.end.receive_output(timeout_s)
        return json.loads(answer["text"]) if "text" in answer else answer["code"]

    async def hear_until(self, key: str) -> Any:
        """The next message that has this key."""
        while True:
            message = await self.hear()
            if isinstance(message, dict) and key in message:
                return message

    async def follow(self, *topics: str) -> dict[str, int]:
        """Follows these topics while signals arrive; their revisions."""
        await self.say({"sub": [*topics]})
        for _ in range(100):
            answer = await self.hear_until("hb")
            if answer["mode"] == "live":
                revisions: dict[str, int] = answer["hb"]
                await self._let_pass_what_comes_with_it()
                return revisions
            await asyncio.sleep(0.02)
            await self.say({"sub": [*topics]})
        raise AssertionError("no signals arrive")

    async def _let_pass_what_comes_with_it(self) -> None:
        """When signals have just begun, followers hear so, and each topic's revision once more."""
        clock = asyncio.get_running_loop()
        until = clock.time() + SETTLED_S
        while clock.time() < until and not await self.end.receive_nothing(timeout=0.05):
            await self.hear()

    async def close(self) -> None:
        await self.end.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.end.wait(WAIT_S)


def publish(*topics: str) -> None:
    """What a process sends after a commit."""
    client = redis.Redis.from_url(settings.CACHE_URL)
    client.publish("daylight:changed", json.dumps({"topics": topics}))
    client.close()


@pytest.fixture
async def session(transactional_db: None) -> AsyncIterator[str]:
    """The session of somebody who is logged in."""
    del transactional_db

    def log_in() -> str:
        client = Client()
        client.force_login(User.objects.create_user(username="ana"))
        return client.cookies[settings.SESSION_COOKIE_NAME].value

    yield await sync_to_async(log_in)()
    await sync_to_async(connections.close_all)()
