"""Arguments that are filled in when the task is executed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from scheduler_app.authoring import Context, Flow, Task, Template, TimeTrigger, flow, task
from scheduler_app.rules.errors import DefinitionError, InvalidInput

AT = datetime(2026, 1, 31, 6, 30, tzinfo=UTC)


def flow_of(argument: Any) -> Flow:
    @task
    def a(given: Any) -> Any:
        return given

    @flow(flow_id="f", params={"region": "eu", "deep": {"er": 1}})
    def f() -> None:
        a(argument)

    return f


def filled(argument: Any, **options: Any) -> Any:
    done = flow_of(argument).test(logical_date=AT, **options)
    assert done.state == "success", done.attempts[-1].error
    return done.results["a"]


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("/in/{ds}/{params[region]}.csv", "/in/2026-01-31/eu.csv"),
        ("{ds_nodash} {ts}", "20260131 2026-01-31T06:30:00+00:00"),
        ("{logical_date:%Y/%m}", "2026/01"),
        ("{params[deep][er]}", "1"),
        ("{flow_id}.{task_id} {try_number} {map_index}", "f.a 1 -1"),
        ("{{ds}}", "{ds}"),
        ("plain", "plain"),
    ],
)
def test_names_in_braces_are_filled_in(text: str, made: str) -> None:
    assert filled(Template(text)) == made


def test_at_any_depth_and_beside_results() -> None:
    @task
    def first() -> int:
        return 1

    @task
    def second(given: Any) -> Any:
        return given

    @flow
    def f() -> None:
        second({"rows": first(), "paths": [Template("{ds}"), ("x", Template("{run_id}"))]})

    done = f.test(logical_date=AT)
    assert done.results["second"] == {"rows": 1, "paths": ["2026-01-31", ("x", "rehearsal")]}


def test_a_class_task_has_it_filled_in_also_where_it_resumes() -> None:
    class Wait(Task):
        path: str

        def execute(self, ctx: Context) -> Any:
            assert self.path == "2026-01-31"
            self.defer(trigger=TimeTrigger(at=AT), method_name="fired")

        def fired(self, event: Any) -> Any:
            del event
            return self.path

    @flow
    def f() -> None:
        Wait(path=Template("{ds}"))

    assert f.test(logical_date=AT).results == {"Wait": "2026-01-31"}


def test_a_parameter_that_there_is_not_fails_the_task_and_says_so() -> None:
    done = flow_of(Template("{params[day]}")).test(logical_date=AT)
    assert done.state == "failed"
    error = done.attempts[0].error
    assert isinstance(error, InvalidInput)
    assert "params has no 'day'" in str(error)
    assert filled(Template("{params[day]}"), conf={"day": "x"}) == "x"


@pytest.mark.parametrize(
    "text",
    [
        "{0}",
        "{}",
        "{ds!r}",
        "{ctx}",
        "{params.__class__}",
        "{ds[0]}",
        "{logical_date:{ds}}",
        "{",
    ],
)
def test_nothing_else_can_be_reached(text: str) -> None:
    with pytest.raises(DefinitionError, match="cannot be filled in"):
        Template(text)


def test_what_a_run_is_given_is_no_template() -> None:
    assert filled(Template("{params[region]}"), conf={"region": "{ds}"}) == "{ds}"
