"""The scale of a timeline: quiet times short, moments in order, everything inside the picture."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.timelines import BREAK_WIDTH, EDGE, LABEL_WIDTH, WIDTH, Axis, Scale

END = WIDTH - EDGE
T0 = datetime(2026, 1, 31, 2, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def test_a_quiet_time_is_short_and_says_how_long_it_was() -> None:
    scale = Scale([at(0), at(10), at(7210), at(7220)], Axis.COMPRESSED)
    (quiet,) = scale.breaks
    assert (quiet.width, quiet.text) == (BREAK_WIDTH, "2 h 0 m")
    busy = scale.place(at(10)) - scale.place(at(0))
    assert busy == pytest.approx(scale.place(at(7220)) - scale.place(at(7210)), abs=0.2)
    assert busy > 300
    assert Scale([at(0), at(10), at(7210), at(7220)], Axis.REAL).breaks == ()


def test_each_step_is_as_long_as_any_other_where_order_is_what_counts() -> None:
    scale = Scale([at(0), at(0.001), at(5000)], Axis.ORDINAL)
    middle = (LABEL_WIDTH + END) / 2
    assert scale.place(at(0.001)) == pytest.approx(middle, abs=0.2)


def test_where_all_is_quiet_nothing_is_shortened() -> None:
    assert Scale([at(0), at(100)], Axis.COMPRESSED).breaks == ()
    assert Scale([at(0)], Axis.COMPRESSED).place(at(0)) == LABEL_WIDTH


@given(
    st.lists(st.floats(0, 10**6), min_size=1, max_size=60),
    st.sampled_from(list(Axis)),
)
def test_places_keep_the_order_of_moments_and_lead_back_to_them(
    seconds: list[float], axis: Axis
) -> None:
    moments = sorted({at(one) for one in seconds})
    scale = Scale(moments, axis)
    places = [scale.place(one) for one in moments]
    assert places == sorted(places)
    assert places[0] >= LABEL_WIDTH
    assert places[-1] <= END + 0.1
    for before, after in ((at(-9), places[0]), (at(10**7), END)):
        assert scale.place(before) == pytest.approx(after, abs=0.1)
    for one in moments:
        there = scale.place(scale.at(scale.place(one)))
        assert there == pytest.approx(scale.place(one), abs=0.2)
