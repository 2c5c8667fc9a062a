"""How many deliveries may wait in a queue, and how long they last."""

from __future__ import annotations

import pytest

from scheduler_app.scheduler.pace import (
    GROWN_MAX,
    LATELY_S,
    LEAD_S,
    LEARNED_AFTER_S,
    SEEN_FOR_S,
    Pace,
)


class Clock:
    """Stands until it is set."""

    now = 100.0

    def __call__(self) -> float:
        """The moment."""
        return self.now


def test_places_grow_with_the_pace_and_shrink_when_it_slackens() -> None:
    clock = Clock()
    pace = Pace(clock)
    assert pace.places("default") == 0
    for _ in range(40):
        pace.issued(["default"] * 4 + ["other"])
        clock.now += 0.01
    assert pace.places("default") == int(160 * LEAD_S / SEEN_FOR_S)
    assert pace.places("other") == int(40 * LEAD_S / SEEN_FOR_S)
    clock.now += SEEN_FOR_S + 0.1
    assert pace.places("default") == 0


def test_a_queue_that_ran_dry_gets_twice_as_much_until_it_slackens() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.issued(["fast"] * 24 + ["slow"] * 24)
    clock.now += 0.03
    pace.found({"fast": 1, "slow": 22})
    assert (pace.places("fast"), pace.places("slow")) == (48, 12)
    pace.issued(["fast"] * 48)
    clock.now += 0.03
    pace.found({"slow": 22})
    assert pace.places("fast") == GROWN_MAX
    clock.now += SEEN_FOR_S + 0.1
    assert (pace.places("fast"), pace.places("slow")) == (0, 0)


def test_what_was_taken_long_after_it_was_issued_says_nothing_of_the_pace() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.issued(["slow"] * 24)
    clock.now += SEEN_FOR_S + 0.1
    pace.found({})
    assert pace.places("slow") == 0


def test_what_waits_lasts_as_long_as_it_took_to_issue_as_much() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.found({"default": 22})
    pace.issued(["default"] * 100 + ["slow"])
    assert pace.lasts_s({"default": 2}) == 0.0  # nobody knows yet
    clock.now += LEARNED_AFTER_S + 0.01
    assert pace.lasts_s({"default": 2}) == pytest.approx(120 * SEEN_FOR_S / 100)
    # The emptiest of them says when to look again, and one whose workers are free is empty.
    assert pace.lasts_s({"default": 2, "slow": 1}) == 0.0
    assert pace.lasts_s({"default": 125}) == 0.0
    assert pace.lasts_s({"unknown": 5}) == 0.0
    assert pace.lasts_s({}) == 0.0
    pace.found({"default": 12})
    assert pace.lasts_s({"default": 2}) == pytest.approx(10 * SEEN_FOR_S / 100)


def test_a_pace_that_has_just_grown_is_believed_at_once() -> None:
    """Else what waits seems to last for long, and is gone long before the next look."""
    clock = Clock()
    pace = Pace(clock)
    pace.issued(["default"] * 10)
    clock.now += SEEN_FOR_S - 0.05
    pace.issued(["default"] * 80)
    pace.found({"default": 42})
    assert pace.lasts_s({"default": 2}) == pytest.approx(40 * LATELY_S / 80)
    # Where it has slackened, what was seen before still says how fast the workers can be.
    clock.now += LATELY_S + 0.01
    pace.issued(["default"])
    pace.found({"default": 42})
    assert pace.lasts_s({"default": 2}) == pytest.approx(40 * SEEN_FOR_S / 81)
