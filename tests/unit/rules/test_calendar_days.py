from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules import calendar_days
from scheduler_app.rules.calendar_days import Month, begin, clock_change
from scheduler_app.rules.definition import FlowDefinition, TaskDefinition
from scheduler_app.rules.schedule import Schedule

BERLIN = "Europe/Berlin"


def _flow(schedule: str = "0 2 * * *", **more: Any) -> FlowDefinition:
    return FlowDefinition(
        flow_id="f",
        tasks=(TaskDefinition(task_id="t"),),
        schedule=schedule,
        timezone=BERLIN,
        **more,
    )


@given(st.integers(2000, 8000), st.integers(1, 12), st.integers(-300, 300))
def test_months_go_on_one_after_the_other(year: int, month: int, by: int) -> None:
    start = Month(year=year, month=month)
    end = start.later(by)
    assert start.later(0) == start
    assert (start <= end) == (by >= 0)
    assert calendar_days.month_of(str(end)) == end
    days = [day for week in start.weeks() for day in week if day]
    assert days[0] == start.first
    assert {day.month for day in days} == {month}
    assert all(len(week) == 7 for week in start.weeks())


def test_what_names_no_month_is_none() -> None:
    for text in ("", "2026", "2026-13", "2026-1", "0001-01", "9999-12", "2026-01-01", "month"):
        assert calendar_days.month_of(text) is None


def test_days_are_local_and_say_where_the_clock_changes() -> None:
    spring, autumn = date(2026, 3, 29), date(2026, 10, 25)
    one = timedelta(days=1)
    assert begin(spring + one, BERLIN) - begin(spring, BERLIN) == timedelta(hours=23)
    assert begin(autumn + one, BERLIN) - begin(autumn, BERLIN) == timedelta(hours=25)
    assert clock_change(spring, BERLIN) == timedelta(hours=1)
    assert clock_change(autumn, BERLIN) == -timedelta(hours=1)
    assert clock_change(spring - one, BERLIN) is None
    assert clock_change(spring, "UTC") is None
    # Beirut skips midnight itself: the day begins at the jump.
    assert begin(date(2022, 3, 27), "Asia/Beirut") == datetime(2022, 3, 26, 22, tzinfo=UTC)


def test_the_days_to_come_have_their_dates_from_where_the_schedule_stands() -> None:
    days = [date(2026, 3, 27) + timedelta(days=n) for n in range(5)]
    since = datetime(2026, 3, 28, 1, tzinfo=UTC)  # 02:00 in Berlin
    found = calendar_days.planned_days(_flow(), days, BERLIN, since=since)
    assert [*found] == days[1:]
    # On the 29th there is no 02:00: it comes at the jump, and is the end of the 28th's interval.
    assert found[days[1]].intervals[0].end == datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert not found[days[1]].has_more
    ending = _flow(end_date="2026-03-29T12:00:00+02:00")
    assert [*calendar_days.planned_days(ending, days, BERLIN, since=since)] == days[1:3]


def test_a_day_with_many_dates_tells_the_first_ones() -> None:
    day = date(2026, 1, 5)
    found = calendar_days.planned_days(
        _flow("* * * * *"), [day], BERLIN, since=datetime(2026, 1, 1, tzinfo=UTC)
    )
    assert len(found[day].intervals) == calendar_days.PLANNED_MAX
    assert found[day].has_more


def test_days_that_the_schedule_passed_over_are_those_it_has_a_date_for() -> None:
    days = [date(2026, 1, 1) + timedelta(days=n) for n in range(10)]
    flow = _flow(
        "working days", timetable=Schedule(crons=("0 2 * * 1-5",), exclude=("2026-01-06",))
    )
    found = calendar_days.left_out_days(
        flow,
        days,
        BERLIN,
        since=datetime(2026, 1, 2, tzinfo=UTC),
        before=datetime(2026, 1, 9, 1, tzinfo=UTC),
    )
    # Not the weekend, not the excluded day, not before the flow was there, not what is to come.
    assert sorted(day.day for day in found) == [2, 5, 7, 8]
