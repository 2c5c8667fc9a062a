"""Hints sent after a commit: wake the scheduler, tell the pages. Losing one delays and loses nothing.

Both travel over Valkey pub/sub. A dead Valkey costs one short attempt per back-off period, never a
write.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import redis

if TYPE_CHECKING:
    from collections.abc import Iterable

WAKE_CHANNEL: Final = "daylight:wake"
CHANGED_CHANNEL: Final = "daylight:changed"
TRIGGER_CHANNEL: Final = "daylight:trigger"
SOCKET_TIMEOUT_S: Final = 0.5
BACKOFF_S: Final = 2.0  # after a failure nothing is tried for so long

logger = logging.getLogger(__name__)


class Notices:
    """Sends hints; one per process (or thread), connects on first use, never raises."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: redis.Redis[Any] | None = None  # type: ignore[type-arg,unused-ignore] # stubs differ by version
        self._quiet_until = 0.0
        self._lock = threading.Lock()

    def wake(self, runs: Iterable[int] = (), **more: object) -> None:
        """Some scheduler will look at these runs soon. ``more``: events=1, flows=1."""
        self._send(WAKE_CHANNEL, {"runs": list(runs), **more})

    def changed(self, topics: Iterable[str]) -> None:
        """Pages that show one of ``topics`` (``runs``, ``run:12``, ``ti:7``, ...) will refresh."""
        self._send(CHANGED_CHANNEL, {"topics": sorted(set(topics))})

    def both(self, *, runs: Iterable[int], topics: Iterable[str]) -> None:
        """``wake`` and ``changed`` in one round trip."""
        self._send_many(
            (
                (WAKE_CHANNEL, {"runs": list(runs)}),
                (CHANGED_CHANNEL, {"topics": sorted(set(topics))}),
            )
        )

    def deferred(self, *, runs: Iterable[int], topics: Iterable[str]) -> None:
        """``both``, and triggerers look for triggers that are due or that nobody watches."""
        self._send_many(
            (
                (TRIGGER_CHANNEL, {}),
                (WAKE_CHANNEL, {"runs": list(runs)}),
                (CHANGED_CHANNEL, {"topics": sorted(set(topics))}),
            )
        )

    def triggers(self) -> None:
        """Triggerers look for triggers that are due or that nobody watches."""
        self._send(TRIGGER_CHANNEL, {})

    def _send(self, channel: str, message: dict[str, object]) -> None:
        self._send_many(((channel, message),))

    def _send_many(self, messages: Iterable[tuple[str, dict[str, object]]]) -> None:
        with self._lock:
            if time.monotonic() < self._quiet_until:
                return
            try:
                if self._client is None:
                    self._client = redis.Redis.from_url(
                        self._url,
                        socket_timeout=SOCKET_TIMEOUT_S,
                        socket_connect_timeout=SOCKET_TIMEOUT_S,
                    )
                pipe = self._client.pipeline(transaction=False)
                for channel, message in messages:
                    pipe.publish(channel, json.dumps(message))
                pipe.execute()
            except (redis.RedisError, OSError) as error:
                self._quiet_until = time.monotonic() + BACKOFF_S
                self._client = None
                logger.warning("hints are not sent", extra={"error": str(error)})
