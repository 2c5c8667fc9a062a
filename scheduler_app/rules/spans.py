"""Durations and moments as people type them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

from scheduler_app.rules.errors import InvalidInput

_UNITS_S: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([smhd]?)", re.ASCII)


def duration(text: str) -> timedelta:
    """The duration that is written as "90", "90s", "10m", "2h" or "1d". Raises ``InvalidInput``."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise InvalidInput(f"{text!r} is no duration; write it as 90, 90s, 10m, 2h or 1d.")
    return timedelta(seconds=float(found[1]) * _UNITS_S[found[2]])


def moment_or_duration(text: str) -> datetime | timedelta:
    """The time, or the duration from now, that the text names. Raises ``InvalidInput``."""
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        pass
    try:
        return duration(text)
    except InvalidInput:
        message = f"{text!r} is neither a time nor a duration; write 2026-01-31T06:00:00Z, or 90s, 10m, 2h."
        raise InvalidInput(message) from None
