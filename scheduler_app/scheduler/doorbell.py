"""The doorbell: hints from other processes, gathered until the loop asks."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from dataclasses import dataclass, field
from typing import Final

from scheduler_app.hints.carrier import WAKE, HintsAway
from scheduler_app.hints.listening import listen

RETRY_S: Final = 1.0
HEAR_TIMEOUT_S: Final = 30.0

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
        with self._lock:
            self._wake.runs |= runs or set()
            if not by_itself:
                self._wake.acted_on |= runs or set()
            self._wake.events |= events
            self._wake.flows |= flows
            self._wake.leases |= leases
            self._wake.callbacks |= callbacks
            self._wake.room |= room
        self._rang.set()

    def wait(self, timeout_s: float) -> Wake:
        """What rang; empty after ``timeout_s`` of silence."""
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
                    self._take(hint)

    def _take(self, text: str) -> None:
        try:
            hint = json.loads(text)
            runs = {int(run) for run in hint.get("runs", ())}
        except (ValueError, TypeError, AttributeError):
            logger.warning("a hint was not understood", extra={"hint": repr(text[:200])})
            return
        self.ring(
            runs=runs,
            events=bool(hint.get("events")),
            flows=bool(hint.get("flows")),
            leases=bool(hint.get("leases")),
            callbacks=bool(hint.get("callbacks")),
            by_itself=bool(hint.get("by_itself")),
            room=bool(hint.get("room")),
        )
