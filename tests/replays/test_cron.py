"""Reports on schedules: changes of the clock, catch-up, dates given by hand."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from scheduler_app.models import Flow, Run
from scheduler_app.operations.pause_flow import set_paused
from scheduler_app.rules import timetable
from scheduler_app.rules.definition import FlowDefinition
from scheduler_app.rules.schedule import Planner, Schedule
from scheduler_app.scheduler.create_runs import create_due_runs
from scheduler_app.transitions.flow import Source, store_version
from tests.world import chain

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg
    from django.test import Client

    from tests.world import World

SOURCE = Source(folder="/flows", path="flow.py", bundle_digest="0" * 64, archive=b"")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def fires(schedule: str | Schedule, zone: str, after: str, count: int) -> list[str]:
    """The next fire times in UTC."""
    found = timetable.next_fire_times(schedule, zone, at(after), count)
    return [one.strftime("%m-%d %H:%M") for one in found]


def seen(raw: psycopg.Connection[Any], **options: Any) -> Flow:
    """The catalog has seen a flow f like this for the first time, or again."""
    definition = FlowDefinition(flow_id="f", tasks=chain("a"), **options)
    store_version(raw, definition=definition, source=SOURCE, shard=3, own_folders=["/flows"])
    return Flow.objects.get(pk="f")


def create_all(raw: psycopg.Connection[Any], world: World, *, looks: int = 10) -> list[Run]:
    """The runs that so many looks at the schedules have made, in order."""
    for _ in range(looks):
        create_due_runs(raw, leases=world.leases, terms=world.leases.terms())
    return list(Run.objects.order_by("id"))


def test_b129_the_day_after_summer_time_ended_noon_comes_once() -> None:
    after = "2025-10-25 12:00"
    assert fires("0 12 * * *", "Europe/Paris", after, 3) == [
        "10-26 11:00",
        "10-27 11:00",
        "10-28 11:00",
    ]


def test_b131_nine_o_clock_in_new_york_follows_its_clock() -> None:
    assert fires("0 9 * * *", "US/Eastern", "2025-10-31 20:00", 3) == [
        "11-01 13:00",
        "11-02 14:00",
        "11-03 14:00",
    ]


def test_b133_a_due_time_in_the_past_gets_one_run_in_whatever_zones(
    world: World, raw: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process lives in Almaty, the schedule in UTC; what was last is kept."""
    monkeypatch.setenv("TZ", "Asia/Almaty")
    time.tzset()
    try:
        seen(raw, schedule="0 * * * *", timezone="UTC")
        runs = create_all(raw, world, looks=20)
    finally:
        monkeypatch.undo()
        time.tzset()
    (run,) = runs
    flow = Flow.objects.get()
    assert (flow.last_interval_start, flow.last_interval_end) == (
        run.data_interval_start,
        run.data_interval_end,
    )
    assert flow.next_interval_start == run.data_interval_end


def test_b135_a_skipped_time_comes_at_the_jump_and_a_repeated_one_once() -> None:
    """The documented policy; docs/schedules.md."""
    zone = "America/New_York"
    assert fires("30 2 * * *", zone, "2025-03-08 12:00", 2) == ["03-09 07:00", "03-10 06:30"]
    assert fires("30 1 * * *", zone, "2025-11-01 12:00", 2) == ["11-02 05:30", "11-03 06:30"]


def test_b137_midnight_in_santiago_comes_once_on_each_of_1500_days() -> None:
    """Also on those that begin at one o'clock."""
    zone = ZoneInfo("America/Santiago")
    found = timetable.next_fire_times("0 0 * * *", str(zone), at("2022-01-01 12:00"), 1500)
    assert all(one < other for one, other in pairwise(found))
    days = [one.astimezone(zone).date() for one in found]
    assert all(other - one == timedelta(days=1) for one, other in pairwise(days))


@pytest.fixture
def sydney(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process lives in Sydney."""
    monkeypatch.setenv("TZ", "Australia/Sydney")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("sydney")
def test_b139_the_clock_of_the_host_skips_no_hour_of_a_schedule_in_utc() -> None:
    assert fires("0 * * * *", "UTC", "2025-10-04 23:59", 24) == [
        f"10-05 {hour:02}:00" for hour in range(24)
    ]


@pytest.mark.parametrize(
    ("skipped", "repeated", "in_spring", "in_autumn"),
    [
        ("at_jump", "first", ["03-30 01:00", "03-31 00:30"], ["10-26 00:30", "10-27 01:30"]),
        ("skip", "first", ["03-31 00:30", "04-01 00:30"], ["10-26 00:30", "10-27 01:30"]),
        ("at_jump", "second", ["03-30 01:00", "03-31 00:30"], ["10-26 01:30", "10-27 01:30"]),
        ("skip", "both", ["03-31 00:30", "04-01 00:30"], ["10-26 00:30", "10-26 01:30"]),
    ],
)
def test_b141_each_policy_for_skipped_and_repeated_times_does_what_it_says(
    skipped: str, repeated: str, in_spring: list[str], in_autumn: list[str]
) -> None:
    schedule = Schedule(crons=("30 2 * * *",), skipped_times=skipped, repeated_times=repeated)
    assert fires(schedule, "Europe/Paris", "2025-03-29 12:00", 2) == in_spring
    assert fires(schedule, "Europe/Paris", "2025-10-25 12:00", 2) == in_autumn
    assert Schedule(crons=("@daily",)).skipped_times == "at_jump", "by default it is shifted"
    assert Schedule(crons=("@daily",)).repeated_times == "first", "and comes once"


@pytest.mark.parametrize("planner", list(Planner))
@pytest.mark.parametrize("is_paused", [False, True])
def test_b143_an_interval_without_catch_up_gets_one_run_when_it_is_first_seen(
    world: World, raw: psycopg.Connection[Any], planner: str, is_paused: bool
) -> None:
    """Whether it is enabled from the start or later."""
    flow = seen(
        raw,
        timetable=Schedule(every_s=86_400.0, planner=planner),
        schedule="every day",
        start_date="2019-01-01T00:00:00+00:00",
        is_paused_upon_creation=is_paused,
    )
    assert flow.is_paused is is_paused
    if is_paused:
        assert create_all(raw, world) == []
        set_paused(flow_id="f", is_paused=False, actor="ana", reason="go")
    assert len(create_all(raw, world)) == 1


def test_b145_a_run_by_hand_of_a_missed_date_is_about_the_interval_of_the_schedule(
    raw: psycopg.Connection[Any], api: Client
) -> None:
    seen(raw, schedule="20 6 * * *", timezone="Europe/Paris", is_paused_upon_creation=True)

    def interval(logical_date: str) -> tuple[str, str]:
        answer = api.post(
            "/api/v1/flows/f/runs/",
            {"logical_date": logical_date},
            content_type="application/json",
        )
        assert answer.status_code == 201, answer.content
        run = answer.json()
        return run["data_interval_start"], run["data_interval_end"]

    assert interval("2025-10-25T06:20:00+02:00") == ("2025-10-25T04:20:00Z", "2025-10-26T05:20:00Z")
    between = "2025-10-25T07:00:00Z"
    assert interval(between) == (between, between), "no date of the schedule: that moment alone"


def test_b147_a_paused_flow_has_no_next_run(
    world: World, raw: psycopg.Connection[Any], api: Client
) -> None:
    """Neither one in the past, nor one that moves: it is found anew when the flow is unpaused."""
    assert seen(raw, schedule="* * * * *").next_interval_end is not None
    set_paused(flow_id="f", is_paused=True, actor="ana", reason="wait")
    seen(raw, schedule="*/2 * * * *")  # a new version does not bring it back
    told = api.get("/api/v1/flows/f/").json()
    assert (told["next_interval_start"], told["next_interval_end"]) == (None, None)
    assert create_all(raw, world) == []
    set_paused(flow_id="f", is_paused=False, actor="ana", reason="go")
    assert api.get("/api/v1/flows/f/").json()["next_interval_end"] is not None
    assert len(create_all(raw, world)) == 1


def test_b149_fifty_triggers_in_a_second_are_fifty_runs(
    raw: psycopg.Connection[Any], api: Client
) -> None:
    """Also of one logical date; the same run id again is refused, and the field named."""
    seen(raw, schedule=None)
    body: dict[str, Any] = {"logical_date": "2026-01-01T00:00:00Z"}

    def trigger(run_id: str) -> Any:
        return api.post(
            "/api/v1/flows/f/runs/", {**body, "run_id": run_id}, content_type="application/json"
        )

    assert {trigger(f"r{number}").status_code for number in range(50)} == {201}
    assert Run.objects.count() == 50
    again = trigger("r7")
    assert again.status_code == 409
    assert again.json()["field"] == "run_id", again.content
    assert Run.objects.count() == 50
