"""One listener a process: hears over Valkey what changed, and tells every socket that follows it."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakKeyDictionary

import redis.asyncio
from django.conf import settings
from django.db import Error as DatabaseError
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from scheduler_app.live.threads import in_thread
from scheduler_app.queries.health import revision

if TYPE_CHECKING:
    from collections.abc import Collection

CHANNEL: Final = "daylight:changed"
COALESCE_S: Final = 0.2  # topics that change within it share one revision
CONNECT_TIMEOUT_S: Final = 2.0
QUIET_CHECK_S: Final = 10.0  # without a message the connection is tried so often
RETRY_S: Final = 0.5
RETRY_S_MAX: Final = 30.0
REVISIONS_MAX: Final = 10_000  # topics whose revision is remembered

logger = logging.getLogger(__name__)


class Follower(Protocol):
    """A socket, as the listener sees it."""

    topics: Collection[str]

    def tell(self, changes: dict[str, int]) -> None:
        """These topics have these revisions; must not block."""

    def tell_mode(self, is_live: bool) -> None:
        """Signals arrive, or pages have to ask on their own."""


class Listener:
    """Listens while somebody follows. Followers belong to the event loop that it runs in."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._followers: set[Follower] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_live = False
        # A topic that is not in here did not change since ``_floor``.
        self._revisions: OrderedDict[str, int] = OrderedDict()
        self._floor = 0

    @property
    def is_live(self) -> bool:
        """Whether signals arrive."""
        return self._is_live

    def attach(self, follower: Follower) -> None:
        """The follower hears of its topics from now on."""
        self._followers.add(follower)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._listen_forever())

    def detach(self, follower: Follower) -> None:
        """The follower hears nothing more; without followers nobody listens."""
        self._followers.discard(follower)
        if not self._followers and self._task is not None:
            self._task.cancel()
            self._task = None
            self._is_live = False

    async def revisions(self, topics: Collection[str]) -> tuple[dict[str, int], bool]:
        """The revision of each topic, and whether signals arrive; if not, it is that of now."""
        if not self._is_live:
            now = await in_thread(revision)
            # Meanwhile signals may have begun, and followers been told so: that must not be unsaid.
            if not self._is_live:
                return dict.fromkeys(topics, now), False
        return {topic: self._revisions.get(topic, self._floor) for topic in topics}, True

    async def _listen_forever(self) -> None:
        pause_s = RETRY_S
        while True:
            try:
                await self._listen()
            except (RedisError, DatabaseError, OSError) as error:
                if self._is_live:
                    pause_s = RETRY_S
                    logger.warning("no signals arrive; pages poll", extra={"error": str(error)})
            self._set_live(False)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))  # noqa: S311 - only spreads retries
            pause_s = min(pause_s * 2, RETRY_S_MAX)

    async def _listen(self) -> None:
        """Tells followers of changes until the connection breaks."""
        client: redis.asyncio.Redis = redis.asyncio.from_url(
            self._url,
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            socket_keepalive=True,
            # A connection that mends itself would hide that messages were missed.
            retry=Retry(NoBackoff(), 0),
        )
        async with client, client.pubsub() as channel:
            await channel.subscribe(CHANNEL)
            await _subscribed(channel)
            _end_if_cancelled()
            # What changed before this moment may have been missed.
            self._revisions.clear()
            self._floor = await in_thread(revision)
            _end_if_cancelled()
            self._set_live(True)
            self._tell({topic: self._floor for each in self._followers for topic in each.topics})
            heard = _Heard(channel)
            while True:
                changed = await heard.changed()
                _end_if_cancelled()
                if changed:
                    self._note(changed, await in_thread(revision))

    def _note(self, changed: set[str], rev: int) -> None:
        for topic in changed:
            self._revisions[topic] = rev
            self._revisions.move_to_end(topic)
        while len(self._revisions) > REVISIONS_MAX:
            # Forgotten topics count as changed when the last of them did.
            _, forgotten = self._revisions.popitem(last=False)
            self._floor = max(self._floor, forgotten)
        self._tell(dict.fromkeys(changed, rev))

    def _tell(self, changes: dict[str, int]) -> None:
        for follower in self._followers:
            mine = {topic: changes[topic] for topic in follower.topics if topic in changes}
            if mine:
                follower.tell(mine)

    def _set_live(self, is_live: bool) -> None:
        if is_live != self._is_live:
            self._is_live = is_live
            for follower in self._followers:
                follower.tell_mode(is_live)


_listeners: WeakKeyDictionary[asyncio.AbstractEventLoop, Listener] = WeakKeyDictionary()


def listener() -> Listener:
    """The listener of the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _listeners:
        _listeners[loop] = Listener(settings.CACHE_URL)
    return _listeners[loop]


async def _subscribed(channel: Any) -> None:
    if await channel.get_message(timeout=CONNECT_TIMEOUT_S) is None:
        raise TimeoutError("no answer to the subscription")


class _Heard:
    """Messages of the channel, taken in batches; a connection that answers nothing is broken."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._is_asked = False  # whether a ping is out that was not answered

    async def changed(self) -> set[str]:
        """The topics that changed within one short while; none after a long quiet one."""
        message = await self._message(QUIET_CHECK_S)
        if message is None:
            if self._is_asked:
                raise TimeoutError("no answer to a ping")
            self._is_asked = True
            await self._channel.ping()
            return set()
        changed = _topics(message)
        loop = asyncio.get_running_loop()
        until = loop.time() + COALESCE_S
        while changed and (left_s := until - loop.time()) > 0:
            changed |= _topics(await self._message(left_s))
        return changed

    async def _message(self, timeout_s: float) -> dict[str, Any] | None:
        message: dict[str, Any] | None = await self._channel.get_message(timeout=timeout_s)
        if message is not None:
            self._is_asked = False
        return message


def _end_if_cancelled() -> None:
    """Ends a task that was cancelled where nobody let it end: ``wait_for`` of Python 3.11 may."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _topics(message: dict[str, Any] | None) -> set[str]:
    if message is None or message.get("type") != "message":
        return set()
    try:
        topics = json.loads(message["data"])["topics"]
        return {topic for topic in topics if isinstance(topic, str)}
    except (ValueError, KeyError, TypeError):
        return set()  # a hint that nobody understands is no hint
