"""Schedules as authors write them: what the definition keeps, and what a bad one is told."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from scheduler_app.authoring import Schedule, flow, task
from scheduler_app.authoring.faults import Place, faults_of
from scheduler_app.catalog.load import load_each
from scheduler_app.rules.definition import FlowDefinition, from_dict, to_dict
from scheduler_app.rules.errors import DefinitionError

DOCUMENT = Path(__file__).parents[3] / "docs" / "schedules.md"


@task
def step() -> None: ...


def defined(**options: Any) -> FlowDefinition:
    @flow(**options)
    def a_flow() -> None:
        step()

    made: FlowDefinition = a_flow.definition()
    assert from_dict(to_dict(made)) == made
    return made


def test_one_expression_is_kept_as_it_is_and_leaves_no_trace_of_the_long_form() -> None:
    for schedule in ("0 2 * * *", Schedule("0 2 * * *"), ["0 2 * * *"]):
        made = defined(schedule=schedule)
        assert (made.schedule, made.timetable) == ("0 2 * * *", None)
        assert "timetable" not in to_dict(made)
        assert "overlap" not in to_dict(made)


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        (["0 2 * * *", "@monthly"], "0 2 * * * | @monthly"),
        (timedelta(hours=6), "every 6 hours"),
        ([date(2026, 3, 1), datetime(2026, 6, 1, 9)], "2 dates"),  # noqa: DTZ001 - of the flow's zone
        (Schedule("@daily", exclude=[date(2026, 12, 25)]), "@daily except 1 day"),
    ],
)
def test_the_long_form_is_told_in_a_line(schedule: Any, text: str) -> None:
    made = defined(schedule=schedule)
    assert made.schedule == text
    assert made.timetable is not None


def test_dates_without_an_offset_are_those_of_the_flows_zone() -> None:
    made = defined(schedule=[date(2026, 3, 1)], timezone="Asia/Tokyo").timetable
    assert made is not None
    assert datetime.fromisoformat(made.dates[0]) == datetime(2026, 2, 28, 15, tzinfo=UTC)


def test_a_catch_up_window_is_a_duration() -> None:
    made = defined(schedule="@daily", catchup=timedelta(days=3))
    assert (made.catchup, made.catchup_window_s) == (True, 259_200.0)
    assert defined(schedule="@daily", catchup=True).catchup_window_s is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"schedule": 5}, "a cron expression, a preset such as '@daily', several of them"),
        ({"schedule": Schedule()}, "either cron expressions, or every=, or dates="),
        ({"schedule": Schedule("@daily", every=timedelta(hours=1))}, "either cron expressions"),
        ({"schedule": ["@daily", "0 25 * * *"]}, "wrong at hour"),
        ({"schedule": Schedule("@daily", planner="often")}, "as planner"),
        (
            {"schedule": Schedule("@daily", exclude=cast("Any", ["2026-12-25"]))},
            "dates or datetimes in exclude",
        ),
        ({"schedule": Schedule("30 2 * * *", repeated_times="thrice")}, "as repeated_times"),
        ({"schedule": timedelta(0)}, "fires every 0 s"),
        ({"overlap": "never"}, "one of queue, skip, cancel_older"),
        ({"catchup": "yes"}, "True, False or a timedelta"),
        ({"max_consecutive_failed_runs": -1}, "a whole number from 0"),
    ],
)
def test_a_bad_one_is_told_with_file_and_line(options: dict[str, Any], says: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        defined(**options)
    (told,) = faults_of(refused.value, Place(file="", line=0))
    assert says in f"{told.message} {told.remedy}"
    assert told.file == __file__


def test_the_document_defines_what_it_says(tmp_path: Path) -> None:
    (source,) = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text("utf-8"), re.M | re.S)
    (tmp_path / "schedules.py").write_text(source, encoding="utf-8")
    (found,) = load_each([(tmp_path, "schedules.py")], limit_s=30)
    assert found.faults == ()
    schedules = {one.flow_id: one.schedule for one in found.flows}
    assert schedules == {
        "nightly": "0 2 * * *",
        "several": "0 2 * * * | 30 14 * * 1-5",
        "every_six_hours": "every 6 hours",
        "on_dates": "2 dates",
        "but_not_at_christmas": "0 9 * * 1-5 except 1 day",
    }
