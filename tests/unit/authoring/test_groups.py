"""Groups: ids, defaults, arrows beside them, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from scheduler_app.authoring import (
    Context,
    Flow,
    GroupRetry,
    flow,
    group,
    setup,
    task,
    teardown,
)
from scheduler_app.authoring.registry import collecting
from scheduler_app.rules import definition, ties
from scheduler_app.rules.definition import from_dict, to_dict
from scheduler_app.rules.errors import DefinitionError

CTX = cast("Context", SimpleNamespace(name="the context"))


@task
def part(rows: object = None) -> object:
    return rows


def named(task_id: str) -> Any:
    return part.override(task_id=task_id)()


def upstream(of: Flow) -> dict[str, tuple[str, ...]]:
    return {one.task_id: one.upstream for one in of.definition().tasks}


def groups(of: Flow) -> dict[str, str]:
    return {one.group_id: one.parent for one in of.definition().groups}


def messages(define: Any) -> list[str]:
    with collecting() as registry:
        define()
    return [f"{one.message} {one.remedy}" for made in registry.registrations for one in made.faults]


def test_a_group_stands_before_the_ids_of_what_is_in_it_unless_it_is_told_not_to() -> None:
    @flow
    def f() -> None:
        with group("extract"):
            part()
            part()
            with group("inner"):
                part()
            with group("flat", prefix=False):
                part.override(task_id="other")()
        part()

    assert groups(f) == {
        "extract": "",
        "extract.inner": "extract",
        "extract.flat": "extract",
    }
    found = {one.task_id: one.group for one in f.definition().tasks}
    assert found == {
        "extract.part": "extract",
        "extract.part__1": "extract",
        "extract.inner.part": "extract.inner",
        "extract.other": "extract.flat",
        "part": "",
    }


def test_the_tasks_of_a_group_are_those_in_its_groups_too() -> None:
    @flow
    def f() -> None:
        with group("a"):
            with group("b"):
                part()
            named("x")
        part()

    assert ties.members(f.definition(), "a") == ("a.b.part", "a.x")
    assert ties.members(f.definition(), "a.b") == ("a.b.part",)
    assert ties.group_and_inner(f.definition().groups, "a") == ("a", "a.b")


def test_defaults_of_a_group_lie_over_those_of_the_flow_and_under_those_of_a_task() -> None:
    @flow(default_args={"retries": 1, "queue": "one", "pool": "p"})
    def f() -> None:
        with group("g", default_args={"retries": 2, "queue": "two"}):
            part()
            with group("h", default_args={"retries": 3}):
                part.override(queue="three")()
        part()

    found = {one.task_id: (one.retries, one.queue, one.pool) for one in f.definition().tasks}
    assert found == {
        "g.part": (2, "two", "p"),
        "g.h.part": (3, "three", "p"),
        "part": (1, "one", "p"),
    }


def test_an_arrow_beside_a_group_means_its_first_and_its_last_tasks() -> None:
    @flow
    def f() -> None:
        before, after = named("before"), named("after")
        with group("g") as g:
            a, b, c, d = (named(name) for name in "abcd")
            a >> b >> c
        before >> g >> after
        assert d is not None

    assert upstream(f) == {
        "before": (),
        "g.a": ("before",),
        "g.b": ("g.a",),
        "g.c": ("g.b",),
        "g.d": ("before",),
        "after": ("g.c", "g.d"),
    }


def test_what_is_added_to_a_group_after_the_arrow_counts_too() -> None:
    @flow
    def f() -> None:
        with group("g") as g:
            a = named("a")
            g_after = named("late")
        g >> named("after")
        a >> g_after

    assert upstream(f)["after"] == ("g.late",)


def test_groups_stand_beside_groups_and_lists_at_any_depth() -> None:
    @flow
    def f() -> None:
        with group("outer") as outer:
            with group("one") as one:
                named("a") >> named("b")
            with group("two") as two:
                named("c")
            one >> two
        [named("x"), named("y")] >> outer
        outer << named("w")
        outer >> [named("z")]

    assert upstream(f) == {
        "w": (),
        "x": (),
        "y": (),
        "outer.one.a": ("w", "x", "y"),
        "outer.one.b": ("outer.one.a",),
        "outer.two.c": ("outer.one.b",),
        "z": ("outer.two.c",),
    }


def test_an_empty_group_passes_on_what_stands_before_it() -> None:
    @flow
    def f() -> None:
        with group("none") as none, group("nothing") as nothing:
            pass
        with group("never") as never:
            pass
        named("a") >> never >> named("b")
        assert none is not nothing

    assert upstream(f)["b"] == ("a",)


def test_a_function_as_a_group_hands_out_results_that_stand_for_the_whole_group() -> None:
    @group
    def extract(source: str) -> Any:
        """Takes rows out of a source."""
        rows = part.override(task_id="rows")(source)
        named("check")
        return rows

    @flow
    def f() -> None:
        first = named("first")
        rows = extract("here")
        again = extract("there")
        load = part.override(task_id="load")(rows)
        first >> rows
        again >> load

    assert upstream(f) == {
        "first": (),
        "extract.check": ("first",),
        "extract.rows": ("first",),
        "extract__1.check": (),
        "extract__1.rows": (),
        "load": ("extract.rows", "extract__1.check", "extract__1.rows"),
    }
    assert f.definition().groups[0].doc == "Takes rows out of a source."
    assert f.calls["load"].execute(CTX, {"extract.rows": 7}) == 7


def test_a_function_without_a_result_hands_out_the_group() -> None:
    @group(group_id="work")
    def anything() -> None:
        part()

    @flow
    def f() -> None:
        anything() >> named("after")

    assert upstream(f)["after"] == ("work.part",)


def test_teardowns_are_not_what_follows_a_group_waits_for() -> None:
    @setup
    def make() -> None: ...

    @teardown
    def drop() -> None: ...

    @flow
    def f() -> None:
        with group("g") as g:
            made = make()
            with drop().as_teardown(setups=made):
                named("a") >> named("b")
        g >> named("after")

    assert upstream(f) == {
        "g.make": (),
        "g.a": ("g.make",),
        "g.b": ("g.a",),
        "g.drop": ("g.b", "g.make"),
        "after": ("g.b",),
    }
    roles = {one.task_id: (one.role, one.trigger_rule) for one in f.definition().tasks}
    assert roles["g.make"] == ("setup", "all_success")
    assert roles["g.drop"] == ("teardown", "all_done_setup_success")
    assert roles["g.a"] == ("work", "all_success")


def test_a_setup_and_its_teardown_may_be_said_of_any_task() -> None:
    @flow
    def f() -> None:
        make, drop = named("make"), named("drop")
        drop.as_teardown(setups=make, fails_run=True)
        make >> named("work") >> drop

    found = {one.task_id: (one.role, one.fails_run) for one in f.definition().tasks}
    assert found == {
        "make": ("setup", False),
        "work": ("work", False),
        "drop": ("teardown", True),
    }


def test_a_unit_is_stored_with_how_it_is_retried_and_what_undoes_it() -> None:
    @task
    def undo(ctx: Context) -> None: ...

    retry = GroupRetry(3, cooldown=timedelta(minutes=1), backoff=2, running="stop")

    @flow
    def f() -> None:
        with group("pay", retry=retry, compensate=undo) as pay:
            named("debit") >> named("credit")
        pay >> named("after")

    made = from_dict(to_dict(f.definition()))
    assert made == f.definition()
    assert made.groups[0].retry == definition.GroupRetry(
        max_attempts=3, delay_s=60, backoff=2, running="stop"
    )
    found = made.task("undo")
    assert (found.role, found.compensates, found.group) == ("compensation", "pay", "")
    assert (found.trigger_rule, found.upstream) == ("one_failed", ("pay.credit", "pay.debit"))


def test_a_flow_without_groups_is_stored_as_before_there_were_any() -> None:
    @flow
    def f() -> None:
        part()

    stored = to_dict(f.definition())
    assert "groups" not in stored
    assert not {"group", "role", "fails_run", "picks", "compensates"} & stored["tasks"][0].keys()


def _twice() -> None:
    @flow
    def f() -> None:
        with group("g"):
            part()
        with group("g"):
            part()


def _like_a_task() -> None:
    @flow
    def f() -> None:
        named("g")
        with group("g"):
            part()


def _to_itself() -> None:
    @flow
    def f() -> None:
        with group("g") as g:
            a = part()
        a >> g


def _as_a_result() -> None:
    @flow
    def f() -> None:
        with group("g") as g:
            part()
        part(g)


def _unit_in_unit() -> None:
    @flow
    def f() -> None:
        with group("g", retry=GroupRetry()), group("h", retry=GroupRetry()):
            part()


def _comes_back() -> None:
    @flow
    def f() -> None:
        with group("g", retry=GroupRetry()):
            a, b = named("a"), named("b")
        a >> named("outside") >> b


def _too_long() -> None:
    @flow
    def f() -> None:
        with group("g" * 200):
            named("t" * 100)


def _no_retry() -> None:
    @flow
    def f() -> None:
        with group("g", retry=3):  # type: ignore[call-overload] # what is refused
            part()


def _no_id() -> None:
    @flow
    def f() -> None:
        with group(retry=GroupRetry()):
            part()


def _airflow() -> None:
    @flow
    def f() -> None:
        with group("g", prefix_group_id=False):  # type: ignore[call-overload] # what is refused
            part()


def _rule_of_teardown() -> None:
    @flow
    def f() -> None:
        part.override(trigger_rule="all_done")().as_teardown()


def _with_work() -> None:
    @flow
    def f() -> None:
        with part():
            part()


def _stops_a_teardown() -> None:
    @flow
    def f() -> None:
        with group("g", retry=GroupRetry(running="stop")):
            part() >> named("drop").as_teardown()


@pytest.mark.parametrize(
    ("define", "words"),
    [
        (_stops_a_teardown, "which stops its tasks to be tried again: then it would not run"),
        (_twice, "Group id 'g' is used twice in flow 'f'"),
        (_like_a_task, "Group id 'g' is used twice in flow 'f'"),
        (_to_itself, "Group 'g' is tied to 'g.part', which is in it"),
        (_as_a_result, "Group 'g' stands where the result of a task is wanted"),
        (_unit_in_unit, "lies in group 'g', which is too"),
        (_comes_back, "Task 'outside' waits for group 'g', which is retried as a whole"),
        (_too_long, "shorten one of them"),
        (_no_retry, "Give retry a GroupRetry"),
        (_no_id, "A group in a with statement has no id"),
        (_airflow, "Write prefix=..."),
        (_rule_of_teardown, "a teardown runs when everything up to it has ended"),
        (_with_work, "neither setup nor teardown"),
    ],
)
def test_what_cannot_be_is_told_with_its_remedy(define: Any, words: str) -> None:
    assert any(words in one for one in messages(define)), messages(define)


@pytest.mark.parametrize(
    "options", [{"max_attempts": 0}, {"cooldown": -1}, {"backoff": "x"}, {"running": "now"}]
)
def test_a_retry_of_a_group_is_checked_where_it_is_written(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=f"GroupRetry has {next(iter(options))}="):
        GroupRetry(**options)
