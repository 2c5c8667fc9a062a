"""Hints sent after a commit: wake the scheduler, tell the pages. Losing one delays and loses nothing.

A dead carrier costs one short attempt per back-off period, never a write.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.hints.carrier import CHANGED, TRIGGER, WAKE, HintsAway
from scheduler_app.hints.postgres import PostgresSender
from scheduler_app.hints.valkey import ValkeySender

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import psycopg

    from scheduler_app.hints.carrier import Sender

BACKOFF_S: Final = 2.0  # after a failure nothing is tried for so long

logger = logging.getLogger(__name__)


class Notices:
    """Sends hints; one per process (or thread), connects on first use, never raises.

    ``url`` is a Valkey's, or empty: then the database carries them, over a connection of our own or
    over one that ``lend`` gives for the moment.
    """

    def __init__(
        self,
        url: str,
        *,
        lend: Callable[[Callable[[psycopg.Connection[Any]], None]], None] | None = None,
    ) -> None:
        self._sender: Sender = ValkeySender(url) if url else PostgresSender(lend)
        self._quiet_until = 0.0
        self._lock = threading.Lock()

    def wake(self, runs: Iterable[int] = (), **more: object) -> None:
        """Some scheduler will look at these runs soon.

        ``more``: events=1, flows=1, leases=1, callbacks=1, room=1, by_itself=1 (see ``both``).
        """
        self._send(WAKE, {"runs": list(runs), **more})

    def changed(self, topics: Iterable[str]) -> None:
        """Pages that show one of ``topics`` (``runs``, ``run:12``, ``ti:7``, ...) will refresh."""
        self._send(CHANGED, {"topics": sorted(set(topics))})

    def both(
        self,
        *,
        runs: Iterable[int],
        topics: Iterable[str],
        callbacks: bool = False,
        by_itself: bool = False,
    ) -> None:
        """``wake`` and ``changed`` in one round trip; ``callbacks``: some wait to be published.

        ``by_itself``: nothing has moved but what schedulers had let go.
        """
        more = {"callbacks": 1} if callbacks else {}
        more |= {"by_itself": 1} if by_itself else {}
        self._send_many([(WAKE, {"runs": list(runs), **more}), *_changed(topics)])

    def deferred(
        self, *, runs: Iterable[int], topics: Iterable[str], by_itself: bool = False
    ) -> None:
        """``both``, and triggerers look for triggers that are due or that nobody watches."""
        more = {"by_itself": 1} if by_itself else {}
        wake = (WAKE, {"runs": list(runs), **more})
        self._send_many([(TRIGGER, {}), wake, *_changed(topics)])

    def triggers(self) -> None:
        """Triggerers look for triggers that are due or that nobody watches."""
        self._send(TRIGGER, {})

    def close(self) -> None:
        """No connection is open; the next hint makes one."""
        with self._lock:
            self._sender.close()

    def _send(self, channel: str, message: dict[str, object]) -> None:
        self._send_many(((channel, message),))

    def _send_many(self, messages: Iterable[tuple[str, dict[str, object]]]) -> None:
        with self._lock:
            if time.monotonic() < self._quiet_until:
                return
            try:
                self._sender.send(list(messages))
            except HintsAway as error:
                self._quiet_until = time.monotonic() + BACKOFF_S
                logger.warning("hints are not sent", extra={"error": str(error)})


def _changed(topics: Iterable[str]) -> list[tuple[str, dict[str, object]]]:
    named = sorted(set(topics))
    return [(CHANGED, {"topics": named})] if named else []
