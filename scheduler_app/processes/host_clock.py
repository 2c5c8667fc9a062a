"""The wall clock of this machine: read to be told of beside the database's, never to decide by."""

from __future__ import annotations

import time


def wall_clock_s() -> float:
    """Seconds since 1970 as this machine has them, right or wrong."""
    return time.time()
