"""What both carriers of hints do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

WAKE: Final = "daylight:wake"  # schedulers: runs to look at, events=1, flows=1
CHANGED: Final = "daylight:changed"  # pages: topics whose content moved
TRIGGER: Final = "daylight:trigger"  # triggerers: triggers were written

CONNECT_TIMEOUT_S: Final = 2.0
QUIET_CHECK_S: Final = 10.0  # without a hint a listener's connection is tried so often


class HintsAway(Exception):
    """The carrier of hints cannot be reached, or answers no more."""


class Sender(Protocol):
    """Sends hints; connects on first use. Calls never overlap."""

    def send(self, hints: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Each hint (channel, content) is with the carrier. Raises ``HintsAway``."""
        ...

    def close(self) -> None:
        """No connection is open; the next hint makes one."""
        ...


class Ear(Protocol):
    """A subscription to one channel."""

    async def hear(self, timeout_s: float) -> str | None:
        """The next hint as JSON text; ``None`` when none came in time.

        Raises ``HintsAway`` when the connection broke: what was said meanwhile is lost.
        """
        ...

    def resting(self) -> AbstractContextManager[None]:
        """Within, what is said waits where the system keeps it: nothing wakes the listener's loop."""
        ...
