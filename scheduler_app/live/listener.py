"""One listener a process: hears what changed, and tells every socket that follows it."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakKeyDictionary

from django.conf import settings
from django.db import Error as DatabaseError

from scheduler_app.hints.carrier import CHANGED, HintsAway
from scheduler_app.hints.listening import listen
from scheduler_app.live.threads import in_thread
from scheduler_app.queries.health import revision

if TYPE_CHECKING:
    from collections.abc import Collection

    from scheduler_app.hints.carrier import Ear

COALESCE_S: Final = 0.2  # topics that change within it share one revision
HEAR_TIMEOUT_S: Final = 30.0
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
            except (HintsAway, DatabaseError, OSError) as error:
                if self._is_live:
                    pause_s = RETRY_S
                    logger.warning("no signals arrive; pages poll", extra={"error": str(error)})
            self._set_live(False)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))  # noqa: S311 - only spreads retries
            pause_s = min(pause_s * 2, RETRY_S_MAX)

    async def _listen(self) -> None:
        """Tells followers of changes until the connection breaks."""
        async with listen(self._url, CHANGED) as ear:
            _end_if_cancelled()
            # What changed before this moment may have been missed.
            self._revisions.clear()
            self._floor = await in_thread(revision)
            _end_if_cancelled()
            self._set_live(True)
            self._tell({topic: self._floor for each in self._followers for topic in each.topics})
            while True:
                changed = await _changed(ear)
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


async def _changed(ear: Ear) -> set[str]:
    """The topics that changed within one short while; none after a long quiet one."""
    changed = _topics(await ear.hear(HEAR_TIMEOUT_S))
    clock = asyncio.get_running_loop()
    until = clock.time() + COALESCE_S
    while changed and (left_s := until - clock.time()) > 0:
        changed |= _topics(await ear.hear(left_s))
    return changed


def _end_if_cancelled() -> None:
    """Ends a task that was cancelled where nobody let it end: ``wait_for`` of Python 3.11 may."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _topics(hint: str | None) -> set[str]:
    try:
        topics = json.loads(hint or "{}").get("topics", ())
        return {topic for topic in topics if isinstance(topic, str)}
    except (ValueError, TypeError, AttributeError):
        return set()  # a hint that nobody understands is no hint
