"""Hints that triggers were written: heard by the loop, never relied on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from scheduler_app.hints.carrier import TRIGGER, HintsAway
from scheduler_app.hints.listening import listen

RETRY_S: Final = 1.0
HEAR_TIMEOUT_S: Final = 30.0

logger = logging.getLogger(__name__)


class Doorbell:
    """Rings every bell that hangs on it when a hint arrives."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._bells: list[asyncio.Event] = []
        self.is_heard = False  # whether hints would be heard now

    def bell(self) -> asyncio.Event:
        """One more bell; its owner clears it before it looks."""
        made = asyncio.Event()
        self._bells.append(made)
        return made

    def ring(self) -> None:
        """Every bell rings."""
        for bell in self._bells:
            bell.set()

    async def listen(self) -> None:
        """Rings until cancelled; reconnects for ever."""
        is_told = False
        while True:
            try:
                async with listen(self._url, TRIGGER) as ear:
                    self.is_heard, is_told = True, False
                    self.ring()  # hints sent while nobody listened are lost
                    while True:
                        if await ear.hear(HEAR_TIMEOUT_S) is not None:
                            self.ring()
            except (HintsAway, OSError) as error:
                if not is_told:
                    logger.warning("hints are not heard; polling", extra={"error": str(error)})
                self.is_heard, is_told = False, True
                await asyncio.sleep(RETRY_S)


async def heard(bell: asyncio.Event, timeout_s: float) -> None:
    """The bell rang, or so much time passed; it is silent again."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await bell.wait()
    bell.clear()
