"""What is usual for a task, and from when on it takes too long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules import task_stats

LIMITS = task_stats.Limits(factor=3.0, floor_s=60.0, estimate_s=600.0, successes_min=20)


@given(st.lists(st.floats(min_value=0.001, max_value=1e7), min_size=1, max_size=200))
def test_a_percentile_is_at_most_ten_percent_too_high_and_never_too_low(
    durations: list[float],
) -> None:
    counts = task_stats.added({}, durations)
    for share in (0.5, 0.99):
        exact = sorted(durations)[max(0, -(-int(share * 100) * len(durations) // 100) - 1)]
        told = task_stats.percentile(counts, share)
        assert told is not None
        assert exact * 0.999 <= told <= exact * task_stats.STEP * 1.001


def test_without_durations_there_is_no_percentile() -> None:
    assert task_stats.percentile({}, 0.99) is None


def test_old_durations_fade_when_the_task_drifts() -> None:
    counts: dict[str, int] = {}
    for _ in range(30):
        counts = task_stats.added(counts, [10.0] * 50)
    for _ in range(60):
        counts = task_stats.added(counts, [100.0] * 50)
    assert sum(counts.values()) <= task_stats.COUNT_MAX
    median = task_stats.percentile(counts, 0.5)
    assert median is not None
    assert median >= 100


def test_the_threshold_is_the_factor_times_the_p99_of_the_tasks_own_history() -> None:
    allowed = task_stats.threshold(p99_s=100.0, successes=20, factor=2.5, limits=LIMITS)
    assert allowed.seconds == 250.0
    assert allowed.words == (
        "the P99 of its 20 successes is 100 s; 2.5 times that, and at least 60 s, is 250 s"
    )


def test_a_quick_task_is_not_suspect_before_the_floor() -> None:
    allowed = task_stats.threshold(p99_s=0.2, successes=500, factor=3, limits=LIMITS)
    assert allowed.seconds == 60.0


def test_before_there_is_history_an_estimate_stands_in_and_little_history_only_raises_it() -> None:
    unknown = task_stats.threshold(p99_s=None, successes=0, factor=3, limits=LIMITS)
    assert unknown.seconds == 1800.0
    little = task_stats.threshold(p99_s=5.0, successes=19, factor=3, limits=LIMITS)
    assert little.seconds == 1800.0
    long = task_stats.threshold(p99_s=7200.0, successes=2, factor=3, limits=LIMITS)
    assert long.seconds == 21600.0
    assert "2 successes are no history yet" in long.words
