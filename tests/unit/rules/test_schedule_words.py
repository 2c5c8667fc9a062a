from __future__ import annotations

from typing import Any

import pytest

from scheduler_app.rules.cron import PRESETS
from scheduler_app.rules.definition import FlowDefinition, TaskDefinition
from scheduler_app.rules.schedule import Schedule
from scheduler_app.rules.schedule_words import describe, policies


def _told(**said: Any) -> dict[str, str]:
    fields: dict[str, Any] = {"schedule": "0 2 * * *", "timezone": "Europe/Paris", **said}
    flow = FlowDefinition(flow_id="f", tasks=(TaskDefinition(task_id="t"),), **fields)
    return dict(policies(flow))


def test_a_flow_without_a_schedule_has_no_policies() -> None:
    assert _told(schedule=None) == {}


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_words(preset: str) -> None:
    assert "@" not in describe(preset, "Europe/Paris")
    assert "*" not in describe(preset, "Europe/Paris")


def test_the_defaults_are_told() -> None:
    assert _told() == {
        "A run is about": "the time from one date to the next; it is due at its end",
        "When the clock changes": "a skipped time comes at the jump, a repeated one once, the first time",
        "Missed dates": "of those that nobody scheduled in time, the newest gets its run",
        "When runs would overlap": "at 16 active runs a due date waits",
        "After failures in a row": "the schedule goes on",
    }


@pytest.mark.parametrize(
    ("said", "heading", "words"),
    [
        ({"catchup": True}, "Missed dates", "each gets its run, oldest first"),
        (
            {"catchup": True, "catchup_window_s": 3 * 86_400.0},
            "Missed dates",
            "each that was due no longer than 3 days ago gets its run, oldest first",
        ),
        (
            {"overlap": "skip", "max_active_runs": 1},
            "When runs would overlap",
            "at 1 active run a due date is left out, with a record of it",
        ),
        (
            {"overlap": "cancel_older", "max_active_runs": 2},
            "When runs would overlap",
            "at 2 active runs the oldest one is terminated for a due date",
        ),
        (
            {"max_consecutive_failed_runs": 5},
            "After failures in a row",
            "after 5 failed runs the schedule is paused, and an incident opened",
        ),
        ({"timezone": "UTC"}, "When the clock changes", "UTC has no changes"),
        (
            {"schedule": "*/5 * * * *"},
            "When the clock changes",
            "it follows the real clock: no skipped hour, a repeated one twice",
        ),
        (
            {
                "timetable": Schedule(
                    crons=("0 2 * * *", "0 * * * *"), skipped_times="skip", repeated_times="both"
                )
            },
            "When the clock changes",
            "a skipped time is left out, a repeated one both times; expressions that begin with a star"
            " follow the real clock",
        ),
        (
            {"timetable": Schedule(every_s=90.0)},
            "When the clock changes",
            "it is counted in real time and knows no changes",
        ),
        (
            {"timetable": Schedule(crons=("0 2 * * *",), planner="trigger", interval_s=6 * 3600.0)},
            "A run is about",
            "the 6 hours before its date; it is due then",
        ),
        (
            {"timetable": Schedule(dates=("2026-01-01T00:00:00+00:00",), planner="trigger")},
            "A run is about",
            "its date; it is due then",
        ),
        ({"start_date": "2026-01-01T00:00:00+01:00"}, "First date", "2026-01-01T00:00:00+01:00"),
        ({"end_date": "2026-02-01T00:00:00+01:00"}, "Last date", "2026-02-01T00:00:00+01:00"),
    ],
)
def test_each_policy_is_told_in_words(said: dict[str, Any], heading: str, words: str) -> None:
    assert _told(**said)[heading] == words
