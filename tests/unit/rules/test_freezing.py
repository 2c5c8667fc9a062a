"""Who goes on after a thaw, by the room there is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from scheduler_app.rules.freezing import Place, Queued, who_goes_on

NOW = datetime(2026, 11, 30, tzinfo=UTC)
POOL: Place = ("pool", "p")
RUN: Place = ("run", 1)


def queued(ti_id: int, *, since_s: int = 0, priority: int = 1, **needs: int) -> Queued:
    return Queued(
        ti_id=ti_id,
        priority=priority,
        since=NOW + timedelta(seconds=since_s),
        needs={(kind, "p" if kind == "pool" else 1): need for kind, need in needs.items()},
    )


def test_they_go_by_priority_then_by_how_long_they_were_queued() -> None:
    three = [
        queued(1, since_s=5, pool=1),
        queued(2, since_s=0, pool=1),
        queued(3, since_s=9, priority=2, pool=1),
    ]
    assert who_goes_on(three, {POOL: 9}) == [3, 2, 1]
    assert who_goes_on(three, {POOL: 2}) == [3, 2]


def test_every_place_has_to_have_room() -> None:
    one = queued(1, pool=2, run=1)
    assert who_goes_on([one], {POOL: 2, RUN: 1}) == [1]
    assert who_goes_on([one], {POOL: 1, RUN: 1}) == []
    assert who_goes_on([one], {POOL: 2, RUN: 0}) == []


def test_nobody_overtakes_where_room_is_short_for_who_comes_first() -> None:
    large, small = queued(1, pool=4), queued(2, pool=1)
    assert who_goes_on([large, small], {POOL: 3}) == []
    elsewhere = queued(3, run=1)
    assert who_goes_on([large, elsewhere], {POOL: 3, RUN: 1}) == [3]


def test_who_has_no_room_takes_none() -> None:
    blocked, next_one = queued(1, pool=1, run=1), queued(2, run=1)
    # It waits for its pool; the place in its run is free for another.
    assert who_goes_on([blocked, next_one], {POOL: 0, RUN: 1}) == [2]


@pytest.mark.parametrize("slots", [1, 100])
def test_a_place_that_is_gone_holds_up_nobody(slots: int) -> None:
    assert who_goes_on([queued(1, pool=slots)], {}) == [1]
