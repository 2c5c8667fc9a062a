"""How long a task usually takes, from counts by logarithm of duration; and when it takes too long.

A bucket spans 10 %, so a percentile is at most so much too high, whatever the durations are. When
the counts grow old they are halved, so the picture follows a task whose duration drifts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

STEP: Final = 1.1  # of the upper ends of neighbouring buckets
LEAST_S: Final = 0.001  # durations below count as this
COUNT_MAX: Final = 1000  # then every count is halved

Buckets = Mapping[str, int]  # bucket number, as JSON keeps it -> how many durations


def bucket_of(seconds: float) -> int:
    """The number of the bucket that this duration falls into."""
    return math.ceil(math.log(max(seconds, LEAST_S) / LEAST_S, STEP) - 1e-9)


def upper_end(bucket: int) -> float:
    """The longest duration of the bucket, in seconds."""
    return float(LEAST_S * STEP**bucket)


def added(buckets: Buckets, seconds: list[float]) -> dict[str, int]:
    """The counts with these durations among them."""
    counts = dict(buckets)
    for each in seconds:
        name = str(bucket_of(each))
        counts[name] = counts.get(name, 0) + 1
    if sum(counts.values()) > COUNT_MAX:
        counts = {name: half for name, number in counts.items() if (half := number // 2)}
    return counts


def percentile(buckets: Buckets, share: float) -> float | None:
    """The duration that this share of the counted ones does not exceed; null without any."""
    total = sum(buckets.values())
    if not total:
        return None
    wanted = math.ceil(share * total)
    reached = 0
    for bucket in sorted(int(name) for name in buckets):
        reached += buckets[str(bucket)]
        if reached >= wanted:
            return upper_end(bucket)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a task takes too long, where its own history does not say more. Durations in seconds."""

    factor: float  # times the P99
    floor_s: float  # never before
    estimate_s: float  # in place of the P99, before there is history
    successes_min: int  # that make a history


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """From when on a record counts as suspect, and why, in words."""

    seconds: float
    words: str


def threshold(
    *,
    p99_s: float | None,
    successes: int,
    factor: float,
    limits: Limits,
    own_s: float | None = None,
) -> Threshold:
    """When a record of the task is suspect: the factor times its P99, at least the floor.

    ``own_s``: the task says when, and its history does not count.
    """
    if own_s is not None:
        words = f"the task says suspect_after={own_s:g} s; nothing is suspect before {limits.floor_s:g} s"
        return Threshold(seconds=max(limits.floor_s, own_s), words=words)
    has_history = p99_s is not None and successes >= limits.successes_min
    if p99_s is not None and has_history:
        base_s = p99_s
        words = f"the P99 of its {successes} successes is {base_s:.3g} s"
    else:
        # What little is known may only raise the estimate.
        base_s = max(limits.estimate_s, p99_s or 0.0)
        words = (
            f"{successes} successes are no history yet ({limits.successes_min} are), and the"
            f" estimate is {base_s:.3g} s"
        )
    seconds = max(limits.floor_s, factor * base_s)
    words += f"; {factor:g} times that, and at least {limits.floor_s:g} s, is {seconds:.3g} s"
    return Threshold(seconds=seconds, words=words)
