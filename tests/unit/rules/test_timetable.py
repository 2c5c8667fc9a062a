from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from scheduler_app.rules import schedule as schedule_rules
from scheduler_app.rules import schedule_words, timetable
from scheduler_app.rules.cron import PRESETS
from scheduler_app.rules.definition import FlowDefinition
from scheduler_app.rules.errors import InvalidInput
from scheduler_app.rules.timetable import DataInterval


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def fires(schedule: str, zone: str, after: str, count: int) -> list[str]:
    found = timetable.next_fire_times(schedule, zone, at(after), count)
    return [time.strftime("%Y-%m-%d %H:%M") for time in found]


def following(
    schedule: str | None,
    *,
    now: str,
    last: tuple[str, str] | None = None,
    start: str | None = None,
    end: str | None = None,
    catchup: bool = False,
    zone: str = "UTC",
) -> tuple[datetime, datetime] | None:
    found = timetable.next_interval(
        schedule=schedule,
        timezone=zone,
        start_date=at(start) if start else None,
        end_date=at(end) if end else None,
        catchup=catchup,
        last=DataInterval(start=at(last[0]), end=at(last[1])) if last else None,
        now=at(now),
    )
    return (found.start, found.end) if found else None


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_preset_is_taken_in_any_case_of_letters(preset: str) -> None:
    schedule_rules.check_schedule(preset, "UTC")
    schedule_rules.check_schedule(f" {preset.upper()} ", "UTC")


def test_no_schedule_at_all_is_fine() -> None:
    schedule_rules.check_schedule(None, "Europe/Paris")


@pytest.mark.parametrize(
    ("schedule", "says", "remedy"),
    [
        ("0 0 2 * * *", "has 6 fields, not five", "minute, hour, day of month"),
        ("@fortnightly", "no preset '@fortnightly'", "@hourly, @daily"),
        ("0 22-4 * * *", "wrong at hour: '22-4'", "write 22-23,0-4"),
        ("0 1-5,22-4 * * *", "wrong at hour: '1-5,22-4'", "write 22-23,0-4"),
        ("0 0 * * 5-1", "wrong at day of week: '5-1'", "write 5-6,0-1"),
        ("61 * * * *", "wrong at minute: '61'", "0-59"),
        ("0 0 32 * *", "wrong at day of month: '32'", "1-31"),
        ("0 0 * 13 *", "wrong at month: '13'", "JAN-DEC"),
        ("0 0 31 4,6 *", "a day that never comes", "the named months have"),
        ("0 0 */30 2 MON#5", "a day that never comes", "the named months have"),
        ("", "has 0 fields", "every day at 02:00"),
    ],
)
def test_a_bad_schedule_is_refused_with_what_is_wrong_and_what_to_write(
    schedule: str, says: str, remedy: str
) -> None:
    with pytest.raises(InvalidInput) as raised:
        schedule_rules.check_schedule(schedule, "UTC")
    assert says in str(raised.value)
    assert remedy in str(raised.value.extra["remedy"])


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "Europe", "../etc/passwd", "a\x00b"])
def test_a_zone_that_does_not_exist_is_refused(zone: str) -> None:
    with pytest.raises(InvalidInput, match="no time zone") as raised:
        schedule_rules.check_schedule("@daily", zone)
    assert "Europe/Paris" in str(raised.value.extra["remedy"])


def test_a_rare_day_is_found_however_far_away() -> None:
    assert fires("0 0 * 2 MON#5", "UTC", "2025-01-01", 2) == [
        "2044-02-29 00:00",
        "2072-02-29 00:00",
    ]


def test_at_the_end_of_the_calendar_nothing_fires_and_it_is_said() -> None:
    last_night = datetime(9999, 12, 31, 12, tzinfo=UTC)
    with pytest.raises(InvalidInput, match="does not fire within 50 years after 9999"):
        timetable.next_fire_times("0 0 * * *", "UTC", last_night, 1)
    with pytest.raises(InvalidInput, match="does not fire within 50 years before 0001"):
        following("0 12 31 12 *", now="0001-01-02")


def test_asked_between_the_two_showings_of_an_hour_it_never_answers_with_the_past() -> None:
    # 02:10 for the second time; 02:30 fired at its first showing.
    assert fires("30 2 * * *", "Europe/Zurich", "2025-10-26 01:10", 1) == ["2025-10-27 01:30"]


def test_a_starred_schedule_does_not_fire_in_a_midnight_hour_that_is_skipped() -> None:
    assert fires("*/30 0 * * *", "Africa/Cairo", "2025-04-24 12:00", 2) == [
        "2025-04-25 21:00",
        "2025-04-25 21:30",
    ]


def test_a_starred_hour_keeps_to_the_full_hour_over_a_shift_of_half_an_hour() -> None:
    # 02:00 goes back to 01:30 on 6 April, at 15:00 UTC: 02:00 is shown at 15:30.
    assert fires("0 */2 * * *", "Australia/Lord_Howe", "2025-04-05 12:30", 3) == [
        "2025-04-05 13:00",
        "2025-04-05 15:30",
        "2025-04-05 17:30",
    ]


def test_times_that_are_skipped_fire_once_together_at_the_jump() -> None:
    assert fires("0,15,30 2 * * *", "Europe/Zurich", "2025-03-29 12:00", 2) == [
        "2025-03-30 01:00",
        "2025-03-31 00:00",
    ]


def test_without_a_schedule_there_is_no_next_interval() -> None:
    assert following(None, now="2025-06-10") is None


def test_the_next_interval_starts_where_the_last_ended_and_need_not_be_due() -> None:
    assert following("0 0 * * *", now="2025-06-10 12:00", last=("2025-06-09", "2025-06-10")) == (
        at("2025-06-10"),
        at("2025-06-11"),
    )


def test_an_interval_that_ends_now_is_complete() -> None:
    assert following("0 0 * * *", now="2025-06-10") == (at("2025-06-09"), at("2025-06-10"))


def test_catch_up_goes_through_every_interval_and_no_catch_up_skips_all_but_the_latest() -> None:
    last = ("2025-06-01", "2025-06-02")
    assert following("0 0 * * *", now="2025-06-10", last=last, catchup=True) == (
        at("2025-06-02"),
        at("2025-06-03"),
    )
    assert following("0 0 * * *", now="2025-06-10", last=last) == (
        at("2025-06-09"),
        at("2025-06-10"),
    )


def test_a_start_in_the_future_is_waited_for() -> None:
    assert following("0 0 * * *", now="2025-06-10", start="2025-07-01 00:00") == (
        at("2025-07-01"),
        at("2025-07-02"),
    )


def test_a_coarser_schedule_does_not_go_back_before_the_last_run() -> None:
    assert following(
        "0 0 * * *", now="2025-06-10 11:00", last=("2025-06-10 10:00", "2025-06-10 11:00")
    ) == (at("2025-06-11"), at("2025-06-12"))


def test_a_shifted_schedule_overlaps_rather_than_leaving_something_out() -> None:
    assert following("30 5 * * *", now="2025-06-04 01:00", last=("2025-06-03", "2025-06-04")) == (
        at("2025-06-03 05:30"),
        at("2025-06-04 05:30"),
    )


def test_the_end_date_is_compared_with_the_start_of_the_interval() -> None:
    last = ("2025-06-09", "2025-06-10")
    assert following("0 0 * * *", now="2025-06-10", last=last, end="2025-06-10 00:00")
    assert following("0 0 * * *", now="2025-06-10", last=last, end="2025-06-09 23:59") is None


def test_a_flow_is_planned_by_its_definition_with_dates_of_any_zone() -> None:
    definition = FlowDefinition(
        flow_id="f",
        tasks=(),
        schedule="@daily",
        timezone="Europe/Paris",
        start_date="2025-06-01T00:00:00+02:00",
        end_date="2025-06-02T00:00:00+02:00",
        catchup=True,
    )
    now = at("2025-07-01")
    first = timetable.next_interval_of(definition, last=None, now=now)
    assert first == DataInterval(start=at("2025-05-31 22:00"), end=at("2025-06-01 22:00"))
    second = timetable.next_interval_of(definition, last=first, now=now)
    assert second is not None
    assert second.start == at("2025-06-01 22:00")
    assert timetable.next_interval_of(definition, last=second, now=now) is None


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (None, "only by hand"),
        ("* * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("@hourly", "every hour at minute 0 Europe/Paris"),
        ("5 */6 * * *", "every 6 hours at minute 5 Europe/Paris"),
        ("0 2 * * *", "every day at 02:00 Europe/Paris"),
        ("30 16 * * mon", "every Monday at 16:30 Europe/Paris"),
        ("0 9 * * 1-5", "every Monday to Friday at 09:00 Europe/Paris"),
        ("@weekly", "every Sunday at 00:00 Europe/Paris"),
        ("0 0 1 * *", "on day 1 of every month at 00:00 Europe/Paris"),
        ("@yearly", "every year on 1 January at 00:00 Europe/Paris"),
        (
            "@quarterly",
            "on day 1 of January, April, July and October at 00:00 Europe/Paris",
        ),
        ("*/7 * * * *", "*/7 * * * * Europe/Paris"),
        ("*/15 8 * * *", "every day, every 15 minutes from 08:00 to 08:59 Europe/Paris"),
        ("0 */5 * * *", "0 */5 * * * Europe/Paris"),
        ("0 */2 1 * *", "on day 1 of every month, every 2 hours at minute 0 Europe/Paris"),
        ("0 0 1 * 1", "0 0 1 * 1 Europe/Paris"),
        ("0 0 1 JAN *", "every year on 1 January at 00:00 Europe/Paris"),
        ("0 0 * * 1,3", "every Monday and Wednesday at 00:00 Europe/Paris"),
        ("0 8,20 * * *", "every day at 08:00 and 20:00 Europe/Paris"),
        (
            "30 9-17 * * MON-FRI",
            "every Monday to Friday, every hour from 09:30 to 17:30 Europe/Paris",
        ),
        ("*/5 6-8 * * 7", "every Sunday, every 5 minutes from 06:00 to 08:59 Europe/Paris"),
        ("0 6 1,15 * *", "on days 1 and 15 of every month at 06:00 Europe/Paris"),
        ("0 6 L * *", "on the last day of every month at 06:00 Europe/Paris"),
        ("0 6 * JUN,12 *", "every day in June and December at 06:00 Europe/Paris"),
        ("*/10 * * * 1-5", "every Monday to Friday, every 10 minutes Europe/Paris"),
        ("0 1,2,3,4,5,6,7 * * *", "0 1,2,3,4,5,6,7 * * * Europe/Paris"),
        ("0 0 * * FRI#2", "0 0 * * FRI#2 Europe/Paris"),
        ("not a schedule", "not a schedule Europe/Paris"),
    ],
)
def test_a_schedule_is_told_in_words_or_as_it_is(schedule: str | None, words: str) -> None:
    assert schedule_words.describe(schedule, "Europe/Paris") == words


def test_a_schedule_of_every_minute_misses_none() -> None:
    found = timetable.next_fire_times("* * * * *", "UTC", at("2025-06-01 23:30"), 60)
    assert found == [at("2025-06-01 23:30") + timedelta(minutes=n) for n in range(1, 61)]
