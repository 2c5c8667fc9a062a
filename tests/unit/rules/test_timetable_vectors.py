"""The vectors of fire times and of the next interval; none of the compared ones differs."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.rules import schedule as schedule_rules
from scheduler_app.rules import timetable
from scheduler_app.rules.errors import InvalidInput
from scheduler_app.rules.schedule import Planner, Schedule
from scheduler_app.rules.timetable import DataInterval
from tests.vectors.cases import cases, parameters

if TYPE_CHECKING:
    from tests.vectors.cases import Case


def instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def of_kind(*when: str) -> list[Case]:
    return [one for one in cases("cron_next") if one.when in when]


@parameters(of_kind("next_fire_times"))
def test_a_schedule_fires_when_the_vector_says(case: Case) -> None:
    given = case.given
    after = datetime.fromisoformat(given["after"])
    found = timetable.next_fire_times(given["cron"], given["timezone"], after, given["count"])
    assert [time.strftime("%Y-%m-%dT%H:%M:%SZ") for time in found] == case.wanted["fire_times"]


@parameters(of_kind("validate_cron", "validate_and_fire"))
def test_a_schedule_is_taken_or_refused_as_the_vector_says(case: Case) -> None:
    given = case.given
    if not case.wanted["valid"]:
        with pytest.raises(InvalidInput):
            schedule_rules.check_schedule(given["cron"], given["timezone"])
        return
    schedule_rules.check_schedule(given["cron"], given["timezone"])
    after = datetime.fromisoformat(given["after"])
    found = timetable.next_fire_times(given["cron"], given["timezone"], after, given["count"])
    assert [time.strftime("%Y-%m-%dT%H:%M:%SZ") for time in found] == case.wanted["fire_times"]


def schedule_of(given: dict[str, Any]) -> str | Schedule:
    if given["timetable"] != Planner.TRIGGER:
        return str(given["cron"])
    return Schedule(
        crons=(given["cron"],),
        planner=Planner.TRIGGER,
        interval_s=given["interval_seconds"],
        run_immediately=given["run_immediately"],
    )


@parameters(of_kind("plan_next_run"))
def test_the_next_interval_is_the_vectors(case: Case) -> None:
    given = case.given
    last = given["last_interval"]
    found = timetable.next_interval(
        schedule=schedule_of(given),
        timezone=given["timezone"],
        start_date=instant(given["start_date"]),
        end_date=instant(given["end_date"]),
        catchup=given["catchup"],
        last=last
        and DataInterval(
            start=datetime.fromisoformat(last[0]), end=datetime.fromisoformat(last[1])
        ),
        now=datetime.fromisoformat(given["now"]),
    )
    wanted = case.wanted["next_run"]
    if wanted is None:
        assert found is None
        return
    assert found == DataInterval(
        start=datetime.fromisoformat(wanted["interval_start"]),
        end=datetime.fromisoformat(wanted["interval_end"]),
    )
    # A run is due at the end of its interval, and its start is its logical date.
    assert wanted["due"] == wanted["interval_end"]
    assert wanted["logical_date"] == wanted["interval_start"]


def test_every_vector_is_compared() -> None:
    kinds = ("next_fire_times", "plan_next_run", "validate_cron", "validate_and_fire")
    assert len(of_kind(*kinds)) == len(cases("cron_next")) == 94
