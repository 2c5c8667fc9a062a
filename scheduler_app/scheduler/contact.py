"""Since when the scheduler has heard from the database without a break: who was away judges no silence.

While the database is away nobody's heartbeat arrives, and how long that was cannot be read from it
afterwards: a server says when it was started, not when its recovery let the first session in, and
of a network that was cut it knows nothing at all. Whoever finds an attempt silent must have listened
for as long as the attempt was silent, so each is given its whole time from the scheduler's return on.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg


class Contact:
    """One scheduler's, from its first connection on.

    ``silence_max_s``: without an answer for longer than this, it counts as having been away, even
    where its connection outlived that (a stalled process, a server that hung).
    """

    def __init__(self, *, silence_max_s: float) -> None:
        self._silence_max_s = silence_max_s
        self._is_broken = True
        self._heard_at = 0.0
        self._since = ""
        self._told: psycopg.Connection[Any] | None = None  # whose session knows ``_since``

    def broke(self) -> None:
        """A connection was lost or could not be made."""
        self._is_broken = True

    def heard(self) -> None:
        """The database has answered just now."""
        self._heard_at = time.monotonic()

    def tell(self, connection: psycopg.Connection[Any]) -> None:
        """The session says by ``in_touch_since()`` since when the contact lasts. Raises ``psycopg.Error``."""
        if self._is_broken or time.monotonic() - self._heard_at > self._silence_max_s:
            row = connection.execute("SELECT clock_timestamp()::text").fetchone()
            assert row is not None
            (self._since,) = row
            self._is_broken, self._told = False, None
        if connection is not self._told:
            connection.execute(
                "SELECT set_config('daylight.in_touch_since', %s, false)", [self._since]
            )
            self._told = connection
        self.heard()
