"""Whether a worker that could take deliveries does take those that wait for it."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

LOOKS: Final = 3  # in a row that nothing was taken: a healthy worker takes within milliseconds

logger = logging.getLogger(__name__)


class Appetite:
    """Looks, over a connection of its own, whether deliveries wait while children are free.

    A connection to a broker may be dead without anybody being told: the event loop turns, beats are
    sent, and nothing is ever consumed. Such a worker does not get on, whatever its loop says.
    """

    def __init__(
        self,
        *,
        waiting: Callable[[], int | None],
        has_room: Callable[[], bool],
        taken: Callable[[], int],
        every_s: float,
    ) -> None:
        self._waiting = waiting
        self._has_room = has_room
        self._taken = taken
        self._every_s = every_s
        self._taken_before = -1
        self._in_vain = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._look_forever, name="appetite", daemon=True)

    @property
    def is_deaf(self) -> bool:
        """Deliveries wait, children are free, and nothing was taken for several looks."""
        return self._in_vain >= LOOKS

    def start(self) -> None:
        """The thread looks."""
        self._thread.start()

    def stop(self) -> None:
        """No more looks."""
        self._stopping.set()

    def look(self) -> None:
        """One look. ``waiting`` may take a while, and say null when it cannot tell."""
        was_deaf = self.is_deaf
        taken = self._taken()
        waits = (self._waiting() or 0) if self._has_room() else 0
        # Asked last: what was taken meanwhile counts, too.
        is_in_vain = waits > 0 and self._has_room() and self._taken() == self._taken_before
        self._taken_before = taken
        self._in_vain = self._in_vain + 1 if is_in_vain else 0
        if self.is_deaf and not was_deaf:
            logger.error(
                "deliveries wait for this worker and it takes none: restart it",
                extra={"waiting": waits},
            )
        elif was_deaf and not self.is_deaf:
            logger.warning("the worker takes deliveries again")

    def _look_forever(self) -> None:
        while not self._stopping.wait(self._every_s):
            try:
                self.look()
            except Exception:  # a look must not end the looking
                logger.exception("a look at what waits failed")
