"""When may a failed attempt be followed by another try?"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime

GLOBAL_CAP_S: Final = 86_400.0  # no automatic retry waits longer than a day
EXPONENT_MAX: Final = 1_000_000  # any delay that grows at all has met its cap long before


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """What a task says about its retries. Durations in seconds, not negative."""

    retries: int
    retry_delay_s: float
    backoff: float  # multiplier from try to try; 0 or 1 = fixed delay; True, as of old, = 2
    max_retry_delay_s: float | None  # 0 means: retry at once
    global_cap_s: float = GLOBAL_CAP_S


def may_retry(*, try_number: int, max_tries: int, retries: int | None = None) -> bool:
    """Whether a try that failed may be followed by another. ``max_tries`` counts retries.

    With two retries the first and second try may be followed, the third is final; a clear raises
    the bound by a whole budget. ``retries`` is what the definition says now, where that is known:
    a definition without retries ends them, whatever budget is left.
    """
    return try_number <= max_tries and retries != 0


def next_delay_s(policy: RetryPolicy, position: int, jitter_key: str) -> float:
    """Seconds from the end of the failed try to the earliest start of the next.

    ``position`` counts from 1 inside the current budget of retries. A fixed delay is taken as it
    is. A growing one is rounded up to whole seconds, at least one, and stretched by less than
    twice, by a hash of the key and position: tasks that failed together do not come back together,
    and every process computes the same instant. Both caps are obeyed in every case, last.

    Source: retry delay of apache-airflow-core 3.3.2 (``next_retry_datetime``), with its gaps
    closed: caps hold without backoff too, zero is a cap, and the key tells mapped siblings apart.
    """
    cap_s = policy.global_cap_s
    if policy.max_retry_delay_s is not None:
        cap_s = min(cap_s, policy.max_retry_delay_s)
    multiplier = 2.0 if policy.backoff is True else float(policy.backoff)
    if multiplier <= 0 or multiplier == 1:
        return min(policy.retry_delay_s, cap_s)
    grown_s = _grown_s(policy.retry_delay_s, multiplier, position)
    base_s = max(1, math.ceil(min(grown_s, cap_s)))
    return min(float(base_s + _jitter(jitter_key, position) % base_s), cap_s)


def is_due(next_retry_at: datetime | None, now: datetime) -> bool:
    """Whether the waiting time of a task instance is over; without one, it is."""
    return next_retry_at is None or next_retry_at <= now


def _grown_s(delay_s: float, multiplier: float, position: int) -> float:
    exponent = min(max(position, 1) - 1, EXPONENT_MAX)
    try:
        return delay_s * multiplier**exponent if delay_s else 0.0
    except OverflowError:
        return math.inf


def _jitter(key: str, position: int) -> int:
    digest = hashlib.sha256(f"{key}\n{position}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


def told_tries(try_number: int, max_tries: int, budget_start: int) -> str:
    """Which try of how many it is, as "2 of 3"; after a clear "5 (2 of 3 since its clear)"."""
    position = try_number - budget_start
    whole = max(max_tries - budget_start + 1, position)
    if not budget_start:
        return f"{position} of {whole}"
    return f"{try_number} ({position} of {whole} since its clear)"
