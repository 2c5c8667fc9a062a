"""Schedules in their long form: what fires, what is refused, and that no interval is lost or doubled."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler_app.rules import schedule as rules
from scheduler_app.rules import schedule_words, timetable
from scheduler_app.rules.errors import InvalidInput
from scheduler_app.rules.schedule import Planner, Schedule
from scheduler_app.rules.timetable import DataInterval


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def fires(schedule: Schedule, after: str, count: int, zone: str = "UTC") -> list[str]:
    found = timetable.next_fire_times(schedule, zone, at(after), count)
    return [time.strftime("%m-%d %H:%M") for time in found]


def test_several_expressions_fire_whenever_one_does_and_once_where_they_meet() -> None:
    both = Schedule(crons=("0 2 * * *", "0 2,14 * * 1-5"))
    assert fires(both, "2026-01-02 12:00", 4) == [
        "01-02 14:00",  # a Friday
        "01-03 02:00",
        "01-04 02:00",
        "01-05 02:00",
    ]


def test_fixed_steps_are_counted_from_the_start_date_by_real_time() -> None:
    steps = Schedule(every_s=6 * 3600.0)
    assert fires(steps, "2026-01-01 00:00", 2) == ["01-01 06:00", "01-01 12:00"]
    found = timetable.next_fire_times(
        steps, "Europe/Paris", at("2026-03-28 23:00"), 3, start_date=at("2026-01-01 01:30")
    )
    # The clock of Paris jumps between the first and the second.
    assert [time.strftime("%d %H:%M") for time in found] == ["29 01:30", "29 07:30", "29 13:30"]
    before = rules.fire_times(steps, "UTC", at("2026-01-01 01:30")).preceding(
        at("2025-12-31 12:00")
    )
    assert before == at("2025-12-31 07:30"), "before the start date too"


def test_listed_dates_fire_in_order_and_then_no_more() -> None:
    dates = Schedule(
        dates=("2026-03-01T02:00:00+01:00", "2026-01-01T00:00:00+00:00"), planner=Planner.TRIGGER
    )
    assert fires(dates, "2025-01-01 00:00", 5) == ["01-01 00:00", "03-01 01:00"]
    assert fires(dates, "2026-03-01 01:00", 5) == []


def test_an_excluded_day_is_one_of_the_zone_and_its_interval_reaches_over_it() -> None:
    holiday = Schedule(crons=("0 1 * * *",), exclude=("2026-12-25", "2026-12-26"))
    assert fires(holiday, "2026-12-23 12:00", 3, "Asia/Tokyo") == [
        "12-23 16:00",  # the 24th in Tokyo
        "12-26 16:00",
        "12-27 16:00",
    ]
    following = timetable.next_interval(
        schedule=holiday,
        timezone="Asia/Tokyo",
        start_date=None,
        end_date=None,
        catchup=True,
        last=DataInterval(start=at("2026-12-22 16:00"), end=at("2026-12-23 16:00")),
        now=at("2026-12-30 00:00"),
    )
    assert following == DataInterval(start=at("2026-12-23 16:00"), end=at("2026-12-26 16:00"))
    assert rules.fire_times(holiday, "Asia/Tokyo").preceding(at("2026-12-26 10:00")) == at(
        "2026-12-23 16:00"
    )


@pytest.mark.parametrize(
    ("repeated", "times"),
    [
        ("first", ["10-25 00:30", "10-26 00:30", "10-27 01:30"]),
        ("second", ["10-25 00:30", "10-26 01:30", "10-27 01:30"]),
        ("both", ["10-25 00:30", "10-26 00:30", "10-26 01:30"]),
    ],
)
def test_a_repeated_time_follows_its_policy(repeated: str, times: list[str]) -> None:
    nightly = Schedule(crons=("30 2 * * *",), repeated_times=repeated)
    assert fires(nightly, "2025-10-24 12:00", 3, "Europe/Zurich") == times


@pytest.mark.parametrize(
    ("skipped", "times"),
    [
        ("at_jump", ["03-29 01:30", "03-30 01:00", "03-31 00:30"]),
        ("skip", ["03-29 01:30", "03-31 00:30", "04-01 00:30"]),
    ],
)
def test_a_skipped_time_follows_its_policy(skipped: str, times: list[str]) -> None:
    nightly = Schedule(crons=("30 2 * * *",), skipped_times=skipped)
    assert fires(nightly, "2025-03-28 12:00", 3, "Europe/Zurich") == times


def test_the_catch_up_window_leaves_out_what_was_due_before_it() -> None:
    def following(last_end: str) -> DataInterval | None:
        end = at(last_end)
        return timetable.next_interval(
            schedule="0 0 * * *",
            timezone="UTC",
            start_date=at("2026-01-01"),
            end_date=None,
            catchup=True,
            catchup_window=timedelta(days=3),
            last=DataInterval(start=end - timedelta(days=1), end=end),
            now=at("2026-06-10 12:00"),
        )

    # Due on the 8th at 0:00 is younger than three days before the 10th at noon.
    assert following("2026-06-01") == DataInterval(start=at("2026-06-07"), end=at("2026-06-08"))
    assert following("2026-06-09") == DataInterval(start=at("2026-06-09"), end=at("2026-06-10"))


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        (Schedule(), "either cron expressions, or every=, or dates="),
        (Schedule(crons=("@daily",), every_s=60.0), "either cron expressions"),
        (Schedule(every_s=0.5), "fires every 0.5 s"),
        (Schedule(crons=("@daily", "61 * * * *")), "wrong at minute"),
        (Schedule(crons=("@daily",), interval_s=60.0), "belong to planner='trigger'"),
        (Schedule(dates=("2026-01-01T00:00:00+00:00",)), "no interval between them"),
        (Schedule(crons=("@daily",) * 51), "51 cron expressions"),
        (
            Schedule(
                dates=("2026-01-01T00:00:00+00:00",), planner="trigger", exclude=("2026-01-01",)
            ),
            "every day of it is excluded",
        ),
    ],
)
def test_what_cannot_be_is_refused(schedule: Schedule, says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as refused:
        rules.check_schedule(schedule, "UTC")
    assert refused.value.extra["remedy"]


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (Schedule(every_s=6 * 3600.0), "every 6 hours"),
        (Schedule(every_s=86_400.0), "every day"),
        (Schedule(every_s=90.0), "every 90 s"),
        (
            Schedule(crons=("0 2 * * *", "@monthly")),
            "every day at 02:00, and on day 1 of every month at 00:00 UTC",
        ),
        (
            Schedule(crons=("*/7 * * * *", "@hourly")),
            "*/7 * * * *, and every hour at minute 0 UTC",
        ),
        (
            Schedule(every_s=3600.0, exclude=("2026-12-25",)),
            "every hour, except 25 December 2026",
        ),
        (
            Schedule(crons=("0 2 * * *",), exclude=("2026-12-25", "2026-12-26")),
            "every day at 02:00 UTC, except 25 December 2026 and 26 December 2026",
        ),
        (
            Schedule(dates=("2026-01-01T00:00:00+00:00",), planner="trigger"),
            "on 1 January 2026",
        ),
    ],
)
def test_a_long_schedule_is_told_in_words(schedule: Schedule, words: str) -> None:
    assert schedule_words.describe(schedule, "UTC") == words
    assert rules.from_dict(rules.to_dict(schedule)) == schedule


schedules = st.one_of(
    st.builds(Schedule, every_s=st.sampled_from([60.0, 5400.0, 86_400.0, 100_000.0])),
    st.builds(
        Schedule,
        crons=st.lists(
            st.sampled_from(["0 2 * * *", "*/40 * * * *", "30 2 * * 1-5", "15 1,2,3 * * *"]),
            min_size=1,
            max_size=3,
            unique=True,
        ).map(tuple),
        exclude=st.sets(st.sampled_from(["2025-03-30", "2025-10-26", "2025-10-27"])).map(
            lambda days: tuple(sorted(days))
        ),
        skipped_times=st.sampled_from(["at_jump", "skip"]),
        repeated_times=st.sampled_from(["first", "second", "both"]),
    ),
)
zones = st.sampled_from(["UTC", "Europe/Zurich", "America/Havana", "Australia/Lord_Howe"])
instants = st.builds(
    lambda change, minutes: at(change) + timedelta(minutes=minutes),
    st.sampled_from(
        ["2025-03-30 01:00", "2025-10-26 01:00", "2025-11-02 05:00", "2025-04-05 15:00"]
    ),
    st.integers(-4000, 4000),
)


@example(
    schedule=Schedule(crons=("*/40 * * * *",)), zone="Europe/Zurich", start=at("2025-03-30 01:00")
)
@given(schedules, zones, instants)
def test_fire_times_strictly_increase_and_are_the_same_backwards(
    schedule: Schedule, zone: str, start: datetime
) -> None:
    found = timetable.next_fire_times(schedule, zone, start, 6)
    assert all(a < b for a, b in pairwise([start, *found]))
    times = rules.fire_times(schedule, zone)
    assert list(islice(times.upcoming(start), 6)) == found
    for a, b in pairwise(found):
        assert times.preceding(b) == a
        assert times.at_or_preceding(a) == a == times.at_or_following(a)


@given(schedules, zones, instants)
def test_with_catch_up_no_interval_is_left_out_or_covered_twice(
    schedule: Schedule, zone: str, start: datetime
) -> None:
    last = None
    for _ in range(5):
        following = timetable.next_interval(
            schedule=schedule,
            timezone=zone,
            start_date=start,
            end_date=None,
            catchup=True,
            last=last,
            now=start + timedelta(days=30),
        )
        assert following is not None
        assert following.start < following.end
        if last is not None:
            assert following.start == last.end
        last = following


@given(schedules, zones, instants, st.booleans())
def test_of_the_trigger_planner_each_fire_time_comes_once(
    schedule: Schedule, zone: str, start: datetime, catchup: bool
) -> None:
    planned = Schedule(
        crons=schedule.crons,
        every_s=schedule.every_s,
        exclude=schedule.exclude,
        planner=Planner.TRIGGER,
        interval_s=3600.0,
    )
    last, seen = None, []
    for hours in range(0, 120, 24):
        following = timetable.next_interval(
            schedule=planned,
            timezone=zone,
            start_date=start,
            end_date=None,
            catchup=catchup,
            last=last,
            now=start + timedelta(hours=hours),
        )
        assert following is not None
        assert following.end - following.start == timedelta(hours=1)
        seen.append(following.end)
        last = following
    assert all(a < b for a, b in pairwise(seen))
