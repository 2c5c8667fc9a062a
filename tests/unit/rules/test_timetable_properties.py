"""What holds for every schedule, zone and instant; and fire times compared with a plain model."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules import timetable
from scheduler_app.rules.timetable import DataInterval

MINUTE = timedelta(minutes=1)
ZONES = (
    "UTC",
    "Europe/Zurich",
    "America/New_York",
    "Australia/Lord_Howe",  # shifts by half an hour
    "America/Santiago",  # skips midnight
    "America/Havana",  # shows midnight twice
    "Asia/Kathmandu",
)
MINUTES = ("0", "30", "*/20", "5,50", "*", "0-59")
HOURS = ("0", "2", "*", "*/2", "1,3", "0-23")
DAYS = ("* * *", "* * 1", "1 * *", "*/2 * 0", "15 * 5", "31 1,3,10 *")

schedules = st.builds(
    lambda minute, hour, days: f"{minute} {hour} {days}",
    st.sampled_from(MINUTES),
    st.sampled_from(HOURS),
    st.sampled_from(DAYS),
)
instants = st.datetimes(datetime(2005, 1, 1), datetime(2035, 1, 1)).map(  # noqa: DTZ001 - next line
    lambda naive: naive.replace(tzinfo=UTC)
)
# Around changes of the clock, where the rules differ from plain arithmetic.
changes = st.builds(
    lambda change, minutes: datetime.fromisoformat(change).replace(tzinfo=UTC) + minutes * MINUTE,
    st.sampled_from(
        [
            "2025-03-30 01:00",  # Zurich
            "2025-10-26 01:00",
            "2025-03-09 07:00",  # New York
            "2025-11-02 06:00",
            "2025-10-04 15:30",  # Lord Howe
            "2025-04-05 15:00",
            "2025-09-07 04:00",  # Santiago
            "2025-04-06 03:00",
            "2025-03-09 05:00",  # Havana
            "2025-11-02 05:00",
        ]
    ),
    st.integers(-1600, 1600),
)


@given(schedules, st.sampled_from(ZONES), instants | changes)
def test_fire_times_only_ever_go_forward(schedule: str, zone: str, after: datetime) -> None:
    found = timetable.next_fire_times(schedule, zone, after, 5)
    assert after < found[0]
    assert all(one < other for one, other in pairwise(found))
    assert all(time.tzinfo is UTC and time.second == 0 for time in found)


@given(schedules, st.sampled_from(ZONES), instants | changes, st.integers(1, 2000))
def test_a_later_question_never_has_an_earlier_answer(
    schedule: str, zone: str, after: datetime, minutes: int
) -> None:
    (first,) = timetable.next_fire_times(schedule, zone, after, 1)
    (second,) = timetable.next_fire_times(schedule, zone, after + minutes * MINUTE, 1)
    assert first <= second
    assert second == first or first <= after + minutes * MINUTE


@given(schedules, st.sampled_from(ZONES), changes)
def test_around_a_change_of_the_clock_it_fires_as_a_plain_model_of_debians_rules(
    schedule: str, zone: str, after: datetime
) -> None:
    (found,) = timetable.next_fire_times(schedule, zone, after, 1)
    until = after + timedelta(hours=30)
    expected = _model(schedule, zone, after, until)
    if expected is None:
        assert found > until
    else:
        assert found == expected


def _model(schedule: str, zone: str, after: datetime, until: datetime) -> datetime | None:
    """Minute by minute on the real clock; what the clock skipped is due at the minute it jumped to."""
    cron, place = CronSim(schedule, datetime(2000, 1, 1, tzinfo=UTC)), ZoneInfo(zone)
    minute, hour, *_ = schedule.split()
    is_starred = minute.startswith("*") or hour.startswith("*")

    def matches(wall: datetime) -> bool:
        return (
            wall.minute in cron.minutes
            and wall.hour in cron.hours
            and wall.month in cron.months
            and cron.match_day(wall.date())
        )

    # Start a day earlier, to know which times were shown before.
    instant = (after - timedelta(days=1)).replace(second=0, microsecond=0)
    shown = {instant.astimezone(place).replace(tzinfo=None)}
    latest = max(shown)
    while instant <= until:
        instant += MINUTE
        wall = instant.astimezone(place).replace(tzinfo=None)
        due = matches(wall) and (is_starred or wall not in shown)
        if not is_starred:
            skipped = latest + MINUTE
            while skipped < wall:
                due = due or matches(skipped)
                skipped += MINUTE
        shown.add(wall)
        latest = max(latest, wall)
        if due and instant > after:
            return instant
    return None


@given(
    schedules,
    st.sampled_from(ZONES),
    instants | changes,
    st.integers(0, 5000),
    st.booleans(),
)
def test_intervals_follow_each_other_without_gap_or_overlap(
    schedule: str, zone: str, start: datetime, hours: int, catchup: bool
) -> None:
    now = start + timedelta(hours=hours)
    last = None
    for _ in range(4):
        following = timetable.next_interval(
            schedule=schedule,
            timezone=zone,
            start_date=start,
            end_date=None,
            catchup=catchup,
            last=last,
            now=now,
        )
        assert following is not None
        assert start <= following.start < following.end
        assert [following.end] == timetable.next_fire_times(schedule, zone, following.start, 1)
        if last is not None:
            assert following.start >= last.end
            if catchup:
                assert following.start == last.end
        last = following


@given(schedules, schedules, st.sampled_from(ZONES), instants, st.booleans())
def test_after_a_change_of_the_schedule_it_never_goes_back(
    old: str, new: str, zone: str, now: datetime, catchup: bool
) -> None:
    start, end = timetable.next_fire_times(old, zone, now - timedelta(days=40), 2)
    last = DataInterval(start=start, end=end)
    following = timetable.next_interval(
        schedule=new,
        timezone=zone,
        start_date=None,
        end_date=None,
        catchup=catchup,
        last=last,
        now=now,
    )
    assert following is not None
    assert following.start > last.start
    assert following.end > last.end


@given(schedules, st.sampled_from(ZONES), instants | changes)
def test_without_catch_up_the_first_interval_is_the_latest_complete_one(
    schedule: str, zone: str, now: datetime
) -> None:
    found = timetable.next_interval(
        schedule=schedule,
        timezone=zone,
        start_date=None,
        end_date=None,
        catchup=False,
        last=None,
        now=now,
    )
    assert found is not None
    assert found.end <= now
    (after_it,) = timetable.next_fire_times(schedule, zone, found.end, 1)
    assert after_it > now, "the one after it is not over yet"


@pytest.mark.parametrize("zone", ZONES)
def test_the_model_and_the_rules_agree_on_an_ordinary_day(zone: str) -> None:
    after = datetime(2025, 6, 10, 12, 0, tzinfo=UTC)
    for schedule in ("0 2 * * *", "*/20 * * * *", "30 */2 * * *"):
        (found,) = timetable.next_fire_times(schedule, zone, after, 1)
        assert found == _model(schedule, zone, after, after + timedelta(hours=30))
