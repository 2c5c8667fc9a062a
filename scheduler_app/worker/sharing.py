"""A local worker with free children asks the others of its machine for what waits with them.

Whoever is asked forgets what it gives before it answers, so a delivery is never with two workers;
one that is lost on the way is published again like any other.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.executors.local_peers import Gone, Peers, Silent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

INTERVAL_S: Final = 1.0
MOST: Final = 100  # deliveries in one answer

logger = logging.getLogger(__name__)


class Sharing:
    """A thread of its own: two workers that ask each other at once must not wait for each other."""

    def __init__(
        self,
        folder: Path,
        own: Path,
        *,
        queues: Sequence[str],
        room: Callable[[], int],
        on_given: Callable[[list[Any]], None],
    ) -> None:
        self._peers = Peers(folder, without=own)
        self._queues = list(queues)
        self._room = room
        self._on_given = on_given
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work_forever, name="sharing", daemon=True)

    def start(self) -> None:
        """The thread runs."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Nothing more is asked for, and what was given has been passed on."""
        self._stopping.set()
        self._thread.join(timeout_s)
        self._peers.close()

    def _work_forever(self) -> None:
        while not self._stopping.wait(INTERVAL_S):
            try:
                self._ask_all()
            except Exception:  # the thread must outlive any single fault
                logger.exception("nothing was asked of the other workers")

    def _ask_all(self) -> None:
        for peer in self._peers.awake():
            room = min(self._room(), MOST)
            if room <= 0 or self._stopping.is_set():
                return
            try:
                given = peer.ask({"give": room, "queues": self._queues}).get("given")
            except (Gone, Silent):
                continue
            if given:
                logger.info("took over what waited elsewhere", extra={"deliveries": len(given)})
                self._on_given(given)
