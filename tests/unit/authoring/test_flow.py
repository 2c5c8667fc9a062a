"""Flows say what their functions say: tasks, both ways of dependency, options."""

from __future__ import annotations

import subprocess
import sys
from collections import namedtuple
from datetime import date, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest

from scheduler_app.authoring import Context, Flow, Task, flow, task
from scheduler_app.rules.definition import from_dict, to_dict

CTX = cast("Context", SimpleNamespace(name="the context"))


@task
def extract() -> list[int]:
    """Gives numbers."""
    return [1, 2]


@task
def load(rows: object, more: object = None) -> object:
    return rows, more


def upstream(of: Flow) -> dict[str, tuple[str, ...]]:
    return {one.task_id: one.upstream for one in of.definition().tasks}


def test_results_at_any_depth_of_arguments_make_dependencies_and_are_filled_in() -> None:
    pair = namedtuple("pair", "left right")

    @flow
    def f() -> None:
        one, two, three, four = extract(), extract(), extract(), extract()
        load([one, {"two": (two, 2)}], more=pair(three, {"set": [four]}))

    assert upstream(f)["load"] == ("extract", "extract__1", "extract__2", "extract__3")
    call = f.calls["load"]
    assert call.result_task_ids() == {"extract", "extract__1", "extract__2", "extract__3"}
    results = {"extract": 1, "extract__1": 2, "extract__2": 3, "extract__3": 4}
    assert call.execute(CTX, results) == ([1, {"two": (2, 2)}], pair(3, {"set": [4]}))


def test_arrows_order_tasks_and_lists_of_tasks() -> None:
    @flow
    def f() -> None:
        a, b, c, d = (extract.override(task_id=name)() for name in "abcd")
        a >> [b, c] >> d
        d << a
        [b, c] << extract.override(task_id="e")()

    assert upstream(f) == {
        "a": (),
        "e": (),
        "b": ("a", "e"),
        "c": ("a", "e"),
        "d": ("a", "b", "c"),
    }


def test_a_task_that_is_called_again_gets_the_next_free_number() -> None:
    @flow
    def f() -> None:
        extract()
        extract()
        extract.override(task_id="named")()
        extract()

    assert list(f.calls) == ["extract", "extract__1", "named", "extract__2"]


def test_tasks_come_in_topological_order_with_their_lines_and_docs() -> None:
    @flow
    def f() -> None:
        late = load.override(task_id="a_late")(extract())
        late >> extract.override(task_id="b_later", doc="Of its own.")()

    tasks = f.definition().tasks
    assert [one.task_id for one in tasks] == ["extract", "a_late", "b_later"]
    assert [one.doc for one in tasks] == ["Gives numbers.", "", "Of its own."]
    lines = [one.line or 0 for one in tasks]
    assert lines[1] == lines[0] == lines[2] - 1


def test_ctx_is_filled_in_by_name_wherever_it_stands() -> None:
    @task
    def first(ctx: object, rows: object) -> object:
        return ctx, rows

    @task
    def last(rows: object, *rest: object, ctx: object, **named: object) -> object:
        return rows, rest, ctx, named

    @task
    def defaulted(rows: object, ctx: object = None, flag: bool = True) -> object:
        return rows, ctx, flag

    @task
    def before_rest(ctx: object, *rest: object) -> object:
        return ctx, rest

    @flow
    def f() -> None:
        first("rows")
        last(1, 2, 3, four=4)  # type: ignore[call-arg] # checkers know ctx as the first one alone
        defaulted(1)
        before_rest(1, 2)

    ran = {name: call.execute(CTX, {}) for name, call in f.calls.items()}
    assert ran == {
        "first": (CTX, "rows"),
        "last": (1, (2, 3), CTX, {"four": 4}),
        "defaulted": (1, CTX, True),
        "before_rest": (CTX, (1, 2)),
    }


def test_a_coroutine_is_run_to_its_result() -> None:
    @task
    async def slow(ctx: object) -> str:
        return "done"

    @flow
    def f() -> None:
        slow()

    assert f.calls["slow"].execute(CTX, {}) == "done"


def test_class_tasks_take_annotated_attributes_or_an_init_of_their_own() -> None:
    class Copy(Task):
        """Copies."""

        path: object
        times: int = 1

        def execute(self, ctx: Context) -> Any:
            return ctx, self.path, self.times

    class Joined(Task):
        def __init__(self, *parts: object, **options: object) -> None:
            super().__init__(**options)
            self.parts = parts

        def execute(self, ctx: Context) -> Any:
            return self.parts

    @flow
    def f() -> None:
        Copy(path={"in": extract()}, retries=4)
        Copy(path="x", times=2, task_id="named") >> Joined(extract(), "text")

    definition = f.definition()
    assert upstream(f)["Copy"] == ("extract",)
    assert upstream(f)["Joined"] == ("extract__1", "named")
    assert (definition.task("Copy").retries, definition.task("Copy").doc) == (4, "Copies.")
    assert definition.task("Joined").doc == ""
    assert f.calls["Copy"].execute(CTX, {"extract": 7}) == (CTX, {"in": 7}, 1)
    assert f.calls["Copy"].execute(CTX, {"extract": 8}) == (CTX, {"in": 8}, 1), "again, afresh"
    assert f.calls["Joined"].execute(CTX, {"extract__1": 9}) == (9, "text")


def test_options_of_the_flow_the_task_and_the_override_are_laid_over_each_other() -> None:
    @task(retries=2, pool="small", backoff=2, max_retry_delay=timedelta(minutes=1))
    def part() -> None: ...

    @flow(default_args={"retries": 1, "retry_delay": 9, "queue": "slow", "owner": "team"})
    def f() -> None:
        extract()
        part()
        part.override(
            retries=3, slots=2, priority=-5, timeout=timedelta(seconds=1.5), trigger_rule="all_done"
        )()

    definition = f.definition()
    plain, once, twice = (definition.task(name) for name in ("extract", "part", "part__1"))
    assert definition.owner == "team"
    assert (plain.retries, plain.retry_delay_s, plain.queue) == (1, 9.0, "slow")
    assert (once.retries, once.pool, once.backoff, once.max_retry_delay_s) == (2, "small", 2.0, 60)
    assert (twice.retries, twice.pool_slots, twice.priority, twice.timeout_s) == (3, 2, -5, 1.5)
    assert (twice.trigger_rule, once.trigger_rule) == ("all_done", "all_success")


def test_every_option_of_a_flow_is_in_its_definition() -> None:
    @flow(
        flow_id="nightly.load",
        schedule="0 2 * * *",
        timezone="Europe/Paris",
        start_date=date(2024, 7, 1),
        end_date="2024-12-01T00:00:00+00:00",
        catchup=True,
        max_active_runs=1,
        max_active_tasks=4,
        run_timeout=timedelta(hours=1),
        tags=["a", "b"],
        owner="me",
        params={"day": 1},
        is_paused_upon_creation=True,
    )
    def f() -> None:
        """Loads."""
        extract()

    made = f.definition()
    assert (made.flow_id, f.flow_id) == ("nightly.load", "nightly.load")
    assert (made.schedule, made.timezone) == ("0 2 * * *", "Europe/Paris")
    assert made.start_date == "2024-07-01T00:00:00+02:00", "a day begins in the flow's zone"
    assert made.end_date == "2024-12-01T00:00:00+00:00"
    assert (made.catchup, made.max_active_runs, made.max_active_tasks) == (True, 1, 4)
    assert (made.run_timeout_s, made.tags, made.owner) == (3600.0, ("a", "b"), "me")
    assert (made.params, made.description, made.is_paused_upon_creation) == (
        {"day": 1},
        "Loads.",
        True,
    )
    assert from_dict(to_dict(made)) == made


def test_a_zone_may_be_a_zone_object_and_a_naive_start_is_in_it() -> None:
    @flow(timezone=ZoneInfo("Asia/Tokyo"), start_date=datetime(2024, 1, 1, 9))  # noqa: DTZ001 - meant
    def f() -> None:
        extract()

    assert f.definition().timezone == "Asia/Tokyo"
    assert f.definition().start_date == "2024-01-01T09:00:00+09:00"


def test_calling_a_flow_as_airflow_wants_it_gives_the_flow() -> None:
    @flow
    def f() -> None:
        extract()

    assert f() is f


def test_a_task_can_be_run_plainly() -> None:
    assert extract.function() == [1, 2]


@pytest.mark.parametrize("name", ["django", "psycopg", "celery", "redis", "channels"])
def test_authoring_needs_no_framework(name: str) -> None:
    code = f"import scheduler_app.authoring, sys; sys.exit({name!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
