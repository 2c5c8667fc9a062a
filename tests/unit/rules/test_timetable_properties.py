"""What holds for every schedule, zone and instant; and fire times compared with a plain model."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules import timetable
from scheduler_app.rules.cron import RepeatedTimes, SkippedTimes
from scheduler_app.rules.definition import FlowDefinition
from scheduler_app.rules.schedule import Planner, Schedule, fire_times
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


@given(
    schedules,
    st.sampled_from(ZONES),
    instants | changes,
    st.sampled_from(Planner),
    st.none() | st.integers(-20_000, 20_000),
    st.none() | st.integers(-20_000, 20_000),
)
def test_what_is_foretold_is_what_gets_a_run(
    schedule: str,
    zone: str,
    now: datetime,
    planner: Planner,
    starts_in: int | None,
    ends_in: int | None,
) -> None:
    start = None if starts_in is None else now + starts_in * MINUTE
    end = None if ends_in is None else now + ends_in * MINUTE
    spec = Schedule(crons=(schedule,), planner=planner)
    told = timetable.coming_due(spec, zone, now, 4, start_date=start, end_date=end)
    assert all(one < other for one, other in pairwise([now, *told]))
    made: list[datetime] = []
    last: DataInterval | None = None
    clock = now
    for _ in range(6):
        following = timetable.next_interval(
            schedule=spec,
            timezone=zone,
            start_date=start,
            end_date=end,
            catchup=False,
            last=last,
            now=clock,
        )
        if following is None:
            break
        last, clock = following, max(clock, following.end)
        if following.end > now:  # the first may be one that has just passed
            made.append(following.end)
    assert told == made[:4]


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


POLICIES = st.tuples(st.sampled_from(list(SkippedTimes)), st.sampled_from(list(RepeatedTimes)))
long_schedules = st.one_of(
    st.builds(
        lambda crons, policy, planner: Schedule(
            crons=tuple(crons), skipped_times=policy[0], repeated_times=policy[1], planner=planner
        ),
        st.lists(schedules, min_size=1, max_size=3),
        POLICIES,
        st.sampled_from(list(Planner)),
    ),
    st.builds(
        lambda minutes, planner: Schedule(every_s=60.0 * minutes, planner=planner),
        st.sampled_from([7, 60, 1440, 10_080]),
        st.sampled_from(list(Planner)),
    ),
)


@given(long_schedules, st.sampled_from(ZONES), instants | changes)
def test_every_policy_and_kind_of_schedule_goes_forward_and_back_alike(
    schedule: Schedule, zone: str, after: datetime
) -> None:
    found = timetable.next_fire_times(schedule, zone, after, 6)
    assert all(one < other for one, other in pairwise([after, *found]))
    times = fire_times(schedule, zone)
    assert [times.preceding(other) for other in found[1:]] == found[:-1]
    assert all(times.at_or_following(one) == times.at_or_preceding(one) == one for one in found)


def _definition(schedule: Schedule, zone: str, start: datetime, **options: Any) -> FlowDefinition:
    return FlowDefinition(
        flow_id="f",
        tasks=(),
        schedule=schedule.text,
        timetable=schedule,
        timezone=zone,
        start_date=start.isoformat(),
        **options,
    )


@given(
    long_schedules,
    st.sampled_from(ZONES),
    instants | changes,
    st.booleans(),
    st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 3)), min_size=1, max_size=12),
)
def test_no_interval_has_two_runs_and_with_catch_up_none_is_left_out(
    schedule: Schedule, zone: str, start: datetime, catchup: bool, looks: list[tuple[int, int]]
) -> None:
    """Whenever a scheduler looks, however long none did, and however many runs it may make then."""
    definition = _definition(schedule, zone, start, catchup=catchup)
    now, last = start, None
    made: list[DataInterval] = []
    for minutes, at_most in looks:
        now += minutes * MINUTE
        for _ in range(at_most):
            following = timetable.next_interval_of(definition, last=last, now=now)
            if following is None or following.end > now:
                break
            made.append(following)
            last = following
    assert len({one.start for one in made}) == len({one.end for one in made}) == len(made)
    assert all(one.end <= other.end for one, other in pairwise(made))
    if schedule.planner == Planner.DATA_INTERVAL:
        assert all(one.end <= other.start for one, other in pairwise(made)), "none overlap"
    if catchup and made:
        due = timetable.intervals_between(
            definition, first=start, last=made[-1].start, at_most=len(made) + 1
        )
        assert made == due, "all of them, and each once"


@given(
    long_schedules,
    st.sampled_from(ZONES),
    instants | changes,
    st.lists(st.one_of(st.none(), st.integers(1, 20_000)), min_size=2, max_size=6),
)
def test_a_window_that_changes_brings_no_interval_back(
    schedule: Schedule, zone: str, start: datetime, windows: list[int | None]
) -> None:
    """Of a catch-up, in minutes or without an end, from one version of the flow to the next."""
    now, last = start + timedelta(days=30), None
    made: list[DataInterval] = []
    for window in windows:
        definition = _definition(
            schedule,
            zone,
            start,
            catchup=True,
            catchup_window_s=None if window is None else 60.0 * window,
        )
        for _ in range(3):
            following = timetable.next_interval_of(definition, last=last, now=now)
            if following is None or following.end > now:
                break
            made.append(following)
            last = following
        now += timedelta(hours=7)
    assert all(one.end < other.end for one, other in pairwise(made))
    if schedule.planner == Planner.DATA_INTERVAL:
        assert all(one.end <= other.start for one, other in pairwise(made))


@given(
    long_schedules,
    st.sampled_from(ZONES),
    instants | changes,
    st.integers(0, 1500),
    st.integers(0, 1500),
)
def test_a_range_of_dates_in_two_parts_is_the_range_as_a_whole(
    schedule: Schedule, zone: str, first: datetime, one: int, other: int
) -> None:
    """A backfill in two goes covers what it would in one, each date once."""
    definition = _definition(schedule, zone, first)
    middle = first + one * MINUTE
    last = middle + other * MINUTE
    whole = timetable.intervals_between(definition, first=first, last=last, at_most=10_000)
    parts = [
        *timetable.intervals_between(definition, first=first, last=middle, at_most=10_000),
        *timetable.intervals_between(
            definition, first=middle + timedelta.resolution, last=last, at_most=10_000
        ),
    ]
    assert parts == whole
    assert all(timetable.interval_from(definition, found.start) == found for found in whole[:5])


@given(
    long_schedules,
    st.sampled_from(ZONES),
    instants | changes,
    st.one_of(st.none(), st.integers(1, 20_000)),
    st.integers(1, 20_000),
    st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 3)), min_size=1, max_size=12),
)
def test_of_those_that_stand_in_line_none_is_left_out_and_none_comes_twice(
    schedule: Schedule,
    zone: str,
    start: datetime,
    window: int | None,
    before: int,
    looks: list[tuple[int, int]],
) -> None:
    """Whatever catch-up says, and however rarely there is room for one more run."""
    definition = _definition(
        schedule,
        zone,
        start,
        catchup=window is not None,
        catchup_window_s=None if window is None else 60.0 * window,
    )
    now = start + before * MINUTE
    first = timetable.next_interval_of(definition, last=None, now=now)
    if first is None:
        return
    now = max(now, first.end)  # when the limit is met
    made: list[DataInterval] = []
    for minutes, room in looks:
        now += minutes * MINUTE
        for _ in range(room):
            last = made[-1] if made else None
            following = timetable.next_interval_of(
                definition, last=last, now=now, in_line_from=first.end
            )
            if following is None or following.end > now:
                break
            made.append(following)
    if not made:
        return
    due = timetable.intervals_between(
        definition, first=made[0].start, last=made[-1].start, at_most=len(made) + 1
    )
    assert made == due, "all from the first on, and each once"
    assert made[0].start <= first.start, "the one that met the limit is among them"
