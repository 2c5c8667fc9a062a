"""The socket of one open page."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from channels.generic.websocket import AsyncWebsocketConsumer
from django.contrib.auth import get_user
from django.db import Error as DatabaseError

from scheduler_app.live.listener import Listener, listener
from scheduler_app.live.threads import in_thread
from scheduler_app.queries import topics
from scheduler_app.queries.scope import Scope, visible_flows
from scheduler_app.rules import errors

if TYPE_CHECKING:
    from django.contrib.sessions.backends.base import SessionBase

TOPICS_MAX: Final = 100  # of one socket
MESSAGE_LENGTH_MAX: Final = 16 * 1024  # characters
MESSAGES_MAX: Final = 20  # within RATE_WINDOW_S
RATE_WINDOW_S: Final = 10.0
HEARTBEAT_S: Final = 20.0
POLLING_HEARTBEAT_S: Final = 10.0  # while no signals arrive, so that pages ask as often
LOGIN_CHECK_S: Final = 60.0
SOCKETS_MAX: Final = 1000  # of one process

POLICY_VIOLATION: Final = 1008
TOO_BIG: Final = 1009
TRY_LATER: Final = 1013
LOGGED_OUT: Final = 4401

logger = logging.getLogger(__name__)


class LiveConsumer(AsyncWebsocketConsumer):  # type: ignore[misc] # Channels has no types
    """Follows the topics that the page names; says which of them have a newer revision."""

    open_sockets = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.topics: frozenset[str] = frozenset()
        self._listener: Listener | None = None
        self._pending: dict[str, int] = {}
        self._mode = ""
        self._woken = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._received: deque[float] = deque(maxlen=MESSAGES_MAX)

    async def connect(self) -> None:
        """Open for somebody who is logged in; refused with 403 otherwise."""
        if not (await self._scope()).sees_anything:
            await self.close()
            return
        if LiveConsumer.open_sockets >= SOCKETS_MAX:
            await self.close(code=TRY_LATER)
            return
        await self.accept()
        LiveConsumer.open_sockets += 1
        self._listener = listener()
        self._listener.attach(self)
        self._tasks = [asyncio.create_task(work()) for work in (self._send_changes, self._beat)]

    async def disconnect(self, code: int) -> None:
        """Nothing of it is left."""
        del code
        if self._listener is None:
            return
        LiveConsumer.open_sockets -= 1
        self._listener.detach(self)
        self._listener = None
        for task in self._tasks:
            task.cancel()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """``{"sub": [topics]}`` replaces what is followed; the answer has each topic's revision."""
        now = time.monotonic()
        if len(self._received) == MESSAGES_MAX and now - self._received[0] < RATE_WINDOW_S:
            await self._refuse(f"At most {MESSAGES_MAX} messages in {RATE_WINDOW_S:g} s.")
            return
        self._received.append(now)
        if text_data is None or len(text_data) > MESSAGE_LENGTH_MAX:
            await self._refuse(
                f"Send JSON text of at most {MESSAGE_LENGTH_MAX} characters.", TOO_BIG
            )
            return
        try:
            asked = _asked(text_data)
        except errors.InvalidInput as error:
            await self._say(error=str(error))
            return
        scope = await self._scope()
        self.topics = await in_thread(topics.visible, scope, asked)
        hidden = sorted(asked - self.topics)
        if hidden:
            await self._say(error=f"You may not follow {', '.join(hidden)[:200]}.")
        await self._say_revisions()

    def tell(self, changes: dict[str, int]) -> None:
        """These topics changed; they are sent when the socket takes them, the newest only."""
        self._pending.update(changes)
        self._woken.set()

    def tell_mode(self, is_live: bool) -> None:
        """Whether signals arrive is said, too."""
        self._mode = _mode(is_live)
        self._woken.set()

    async def _send_changes(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            mode, self._mode = self._mode, ""
            if mode:
                await self._say(mode=mode)
            changes, self._pending = self._pending, {}
            for topic, rev in changes.items():
                if topic in self.topics:
                    await self._say(t=topic, rev=rev, k=[])

    async def _beat(self) -> None:
        checked_at = time.monotonic()
        while True:
            assert self._listener is not None, "it goes when the socket goes"
            await asyncio.sleep(HEARTBEAT_S if self._listener.is_live else POLLING_HEARTBEAT_S)
            try:
                if time.monotonic() - checked_at >= LOGIN_CHECK_S:
                    checked_at = time.monotonic()
                    scope = await self._scope(fresh=True)
                    if not scope.sees_anything:
                        await self.close(code=LOGGED_OUT)
                        return
                    self.topics = await in_thread(topics.visible, scope, self.topics)
                await self._say_revisions()
            except DatabaseError as error:
                logger.warning("a heartbeat of a page is late", extra={"error": str(error)})

    async def _say_revisions(self) -> None:
        assert self._listener is not None, "it goes when the socket goes"
        revisions, is_live = await self._listener.revisions(self.topics)
        await self._say(hb=revisions, mode=_mode(is_live))

    async def _say(self, **message: object) -> None:
        await self.send(text_data=json.dumps(message, separators=(",", ":")))

    async def _refuse(self, why: str, code: int = POLICY_VIOLATION) -> None:
        await self._say(error=why)
        await self.close(code=code)

    async def _scope(self, *, fresh: bool = False) -> Scope:
        """What the reader may see; ``fresh`` reads session and user again."""
        if fresh:
            return await in_thread(_scope_now, self.scope["session"])
        return visible_flows(self.scope.get("user"))


class NoFeed(AsyncWebsocketConsumer):  # type: ignore[misc] # Channels has no types
    """Answers every other address: there is no feed."""

    async def connect(self) -> None:
        """Refused with 403."""
        await self.close()


def _asked(text: str) -> frozenset[str]:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        message = None
    wanted = message.get("sub") if isinstance(message, dict) else None
    if not isinstance(wanted, list):
        raise errors.InvalidInput('Send {"sub": ["run:12", "home"]}.')
    if len(wanted) > TOPICS_MAX:
        raise errors.InvalidInput(f"{len(wanted)} topics; at most {TOPICS_MAX} are allowed.")
    return frozenset(map(topics.check, wanted))


def _mode(is_live: bool) -> str:
    return "live" if is_live else "polling"


class _Request:
    """What ``get_user`` reads of a request."""

    def __init__(self, session: SessionBase) -> None:
        self.session = session


def _scope_now(session: SessionBase) -> Scope:
    store = session.__class__(session.session_key)  # its type is that of a lazy stand-in
    return visible_flows(get_user(_Request(store)))  # type: ignore[arg-type] # reads .session alone
