"""The doorbell: hints from other processes, gathered until the loop asks.

To be woken for each hint costs the listening thread ten times what reading it does. So it listens
while the loop waits; what is said while the loop is busy is read in one go when it waits again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from scheduler_app.hints.carrier import WAKE, HintsAway
from scheduler_app.hints.listening import listen

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler_app.hints.carrier import Ear

RETRY_S: Final = 1.0
HEAR_TIMEOUT_S: Final = 30.0
DEAF_MAX_S: Final = 1.0  # however busy the loop is: a carrier keeps hints only for so long
NUMBER_MAX: Final = 2**63 - 1  # no run has a higher number, and no statement takes one
TAKEN_MAX: Final = 1000  # hints that are read in one go

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Wake:
    """What was rung for since the last look."""

    runs: set[int] = field(default_factory=set)
    acted_on: set[int] = field(default_factory=set)  # of those: not only what was let go has moved
    events: bool = False
    flows: bool = False
    leases: bool = False  # one was given up, or somebody came who has none
    callbacks: bool = False
    room: bool = False  # a pool or a limit has more slots


class Doorbell:
    """Listens in a thread; ``wait`` returns as soon as something rang."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._rang = threading.Event()
        self._lock = threading.Lock()
        self._wake = Wake()
        self.connected = False
        self._stopping = False
        self._awaited: Callable[[], object] | None = None  # tells the listener that the loop waits
        self._thread = threading.Thread(target=self._listen_forever, name="doorbell", daemon=True)

    def start(self) -> None:
        """The listening thread runs; it reconnects for ever."""
        self._thread.start()

    def ring(
        self,
        *,
        runs: set[int] | None = None,
        events: bool = False,
        flows: bool = False,
        leases: bool = False,
        callbacks: bool = False,
        by_itself: bool = False,
        room: bool = False,
    ) -> None:
        """As if a hint had arrived; also used by this process's own threads."""
        self._gather(
            Wake(
                runs=runs or set(),
                acted_on=set() if by_itself else runs or set(),
                events=events,
                flows=flows,
                leases=leases,
                callbacks=callbacks,
                room=room,
            )
        )

    def wait(self, timeout_s: float) -> Wake:
        """What rang; empty after ``timeout_s`` of silence."""
        with self._lock:
            if self._awaited is not None and not self._rang.is_set():
                awaited, self._awaited = self._awaited, None
                with contextlib.suppress(RuntimeError):  # the listener's own loop is over
                    awaited()
        self._rang.wait(timeout_s)
        with self._lock:
            self._rang.clear()
            wake, self._wake = self._wake, Wake()
        return wake

    def stop(self) -> None:
        """A waiting loop wakes; the thread ends with the process."""
        self._stopping = True
        self._rang.set()

    def _listen_forever(self) -> None:
        asyncio.run(self._keep_listening())

    async def _keep_listening(self) -> None:
        while not self._stopping:
            try:
                await self._listen()
            except (HintsAway, OSError) as error:
                if self.connected:
                    logger.warning("hints are not heard; polling", extra={"error": str(error)})
                self.connected = False
                await asyncio.sleep(RETRY_S)

    async def _listen(self) -> None:
        async with listen(self._url, WAKE) as ear:
            self.connected = True
            # Hints sent while nobody listened are lost: look at everything once.
            self.ring(events=True, flows=True, callbacks=True)
            while not self._stopping:
                hint = await ear.hear(HEAR_TIMEOUT_S)
                if hint is not None:
                    await self._wake_with(hint, ear)

    async def _wake_with(self, hint: str, ear: Ear) -> None:
        """The loop was woken, has all that came with the hint, and waits again, or is busy for long."""
        listener, is_awaited = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            self._awaited = lambda: listener.call_soon_threadsafe(is_awaited.set)
        self._take(hint)
        for _ in range(TAKEN_MAX):
            if (one_more := await ear.hear(0.0)) is None:
                break
            self._take(one_more)
        in_any_case = listener.call_later(DEAF_MAX_S, is_awaited.set)
        with ear.resting():
            await is_awaited.wait()
        in_any_case.cancel()

    def _take(self, text: str) -> None:
        try:
            hint = json.loads(text)
            runs = {number for run in hint.get("runs", ()) if abs(number := int(run)) <= NUMBER_MAX}
        except (ValueError, TypeError, AttributeError):
            logger.warning("a hint was not understood", extra={"hint": repr(text[:200])})
            return
        self._gather(
            Wake(
                runs=runs,
                acted_on=set() if hint.get("by_itself") else runs,
                events=bool(hint.get("events")),
                flows=bool(hint.get("flows")),
                leases=bool(hint.get("leases")),
                callbacks=bool(hint.get("callbacks")),
                room=bool(hint.get("room")),
            )
        )

    def _gather(self, more: Wake) -> None:
        with self._lock:
            wake = self._wake
            wake.runs |= more.runs
            wake.acted_on |= more.acted_on
            wake.events |= more.events
            wake.flows |= more.flows
            wake.leases |= more.leases
            wake.callbacks |= more.callbacks
            wake.room |= more.room
            self._rang.set()
