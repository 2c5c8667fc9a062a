from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from scheduler_app.authoring import Task, concat, flow, group, task, zip_
from scheduler_app.authoring.flow import Flow
from scheduler_app.authoring.registry import collecting
from scheduler_app.rules import definition

DOCS = Path(__file__).parents[3] / "docs" / "mapping.md"


@task
def numbers() -> list[int]:
    return [1, 2, 3]


@task
def each(x: Any, y: Any = 0) -> Any:
    return (x, y)


@task
def gathered(found: Any) -> Any:
    return found


def made(body: Any) -> Flow:
    """The flow whose function this is."""
    found: Flow = flow(flow_id="f")(body)
    return found


def results(body: Any, task_id: str = "each") -> Any:
    """What the task returned in a rehearsal that succeeded."""
    played = made(body).test()
    assert played.state == "success", [one.error for one in played.attempts]
    return played.results[task_id]


def faults(body: Any) -> list[Any]:
    """What is wrong with the flow whose function this is."""
    with collecting() as registry:
        flow(flow_id="f")(body)
    (one,) = registry.registrations
    return list(one.faults)


class TestWhatIsMappedOver:
    def test_the_result_of_a_task(self) -> None:
        def body() -> None:
            gathered(each.map(numbers()))

        assert results(body) == [(1, 0), (2, 0), (3, 0)]
        assert results(body, "gathered") == [(1, 0), (2, 0), (3, 0)]

    def test_every_combination_the_last_argument_fastest(self) -> None:
        assert results(lambda: each.expand(x=["a", "b"], y=numbers())) == [
            (x, y) for x in "ab" for y in (1, 2, 3)
        ]

    def test_arguments_that_are_the_same_for_all(self) -> None:
        assert results(lambda: each.partial(y=numbers()).map(["a"])) == [("a", [1, 2, 3])]

    def test_pairs_of_a_dict_in_its_order(self) -> None:
        pairs = {"zz": 1, "a": 2}
        assert results(lambda: each.map(pairs)) == [(("zz", 1), 0), (("a", 2), 0)]
        assert results(lambda: each.map(gathered(pairs))) == [(("zz", 1), 0), (("a", 2), 0)]

    def test_what_is_zipped(self) -> None:
        assert results(lambda: each.map(zip_(numbers(), ["a", "b"]))) == [
            ((1, "a"), 0),
            ((2, "b"), 0),
        ]
        filled = results(lambda: each.map(numbers().zip(["a"], fill="-")))
        assert filled == [((1, "a"), 0), ((2, "-"), 0), ((3, "-"), 0)]

    def test_one_after_the_other(self) -> None:
        assert results(lambda: each.map(concat([0], numbers(), []))) == [
            (0, 0),
            (1, 0),
            (2, 0),
            (3, 0),
        ]

    def test_what_a_function_makes_of_each(self) -> None:
        assert results(lambda: each.map(numbers().map(lambda one: -one))) == [
            (-1, 0),
            (-2, 0),
            (-3, 0),
        ]

    def test_dicts_of_arguments(self) -> None:
        assert results(lambda: each.expand_kwargs([{"x": 1}, {"x": 2, "y": 3}])) == [(1, 0), (2, 3)]

    def test_whole_results_in_a_list(self) -> None:
        def body() -> None:
            each.map([numbers(), 7])

        assert results(body) == [([1, 2, 3], 0), (7, 0)]

    def test_the_results_of_a_mapped_task_without_those_that_have_none(self) -> None:
        @task
        def odd(x: int) -> int | None:
            return x if x % 2 else None

        assert results(lambda: each.map(odd.map(numbers()))) == [(1, 0), (3, 0)]

    def test_class_tasks(self) -> None:
        class Doubled(Task):
            n: int
            by: int = 2

            def execute(self, ctx: Any) -> int:
                return self.n * self.by

        assert results(lambda: Doubled.partial(by=3).expand(n=numbers()), "Doubled") == [3, 6, 9]
        assert results(lambda: Doubled.expand_kwargs([{"n": 1}]), "Doubled") == [2]


class TestGroups:
    def test_each_index_has_its_own_results(self) -> None:
        @group
        def both(n: int, by: int) -> Any:
            @task
            def times(n: int, by: int) -> int:
                return n * by

            @task
            def told(ctx: Any, product: int) -> str:
                return f"{ctx.map_index}:{product}"

            return told(times(n, by))

        def body() -> None:
            gathered(both.partial(by=2).map(numbers()))

        assert results(body, "gathered") == ["0:2", "1:4", "2:6"]

    def test_a_failure_stops_its_own_index_only(self) -> None:
        @group
        def both(n: int) -> Any:
            @task
            def fails(n: int) -> int:
                if n == 2:
                    raise ValueError(n)
                return n

            return each(fails(n))

        played = made(lambda: both.map(numbers())).test()
        assert played.state == "failed"
        assert [played.mapped_states["both.each", n] for n in range(3)] == [
            "success",
            "upstream_failed",
            "success",
        ]

    def test_its_first_tasks_wait_for_what_it_maps_over(self) -> None:
        @group
        def one(n: int) -> None:
            gathered("a") >> each(n)

        definition = made(lambda: one.map(numbers())).definition()
        assert definition.task("one.gathered").upstream == ("numbers",)
        assert definition.task("one.each").upstream == ("one.gathered",)
        assert definition.groups[0].mapped is not None


class TestWhatARunComesTo:
    def test_nothing_to_map_over(self) -> None:
        played = made(lambda: gathered.override(trigger_rule="all_done")(each.map([]))).test()
        assert played.states == {"each": "skipped", "gathered": "success"}
        assert played.results["gathered"] == []

    @pytest.mark.parametrize(
        ("returned", "told"),
        [
            ("'abc'", "str of length 3"),
            ("7", "type int"),
            ("None", "returned nothing"),
            ("list(range(1025))", "list of 1,025 elements"),
            ("{1, 2}", "type set of length 2"),
        ],
    )
    def test_a_result_that_cannot_be_mapped_over_fails_its_task(
        self, returned: str, told: str
    ) -> None:
        @task
        def makes() -> Any:
            return eval(returned)

        played = made(lambda: each.map(makes())).test()
        assert played.states == {"makes": "failed", "each": "upstream_failed"}
        assert told in str(played.attempts[0].error)
        assert "1,024" in str(played.attempts[0].error) or returned == "None"

    def test_labels(self) -> None:
        @task(map_label="{x[name]} #{map_index}")
        def named(x: Any) -> None: ...

        played = made(lambda: named.map([{"name": "north"}, {"name": "south"}])).test()
        assert played.mapped_labels == {("named", 0): "north #0", ("named", 1): "south #1"}

    def test_one_instance_is_tried_again(self) -> None:
        @task(retries=1)
        def flaky(ctx: Any, x: int) -> int:
            if x == 2 and ctx.try_number == 1:
                raise OSError("away")
            return x

        played = made(lambda: flaky.map(numbers())).test()
        assert played.results["flaky"] == [1, 2, 3]
        assert [one.map_index for one in played.of("flaky") if one.outcome == "failed"] == [1]


def test_what_is_mapped_over_is_stored_with_the_definition_and_comes_back() -> None:
    def body() -> None:
        each.expand(x=zip_(numbers(), {"a": (1,)}, fill=None), y=concat(numbers(), [2]).map(str))

    said = made(body).definition()
    assert definition.from_dict(definition.to_dict(said)) == said
    assert said.task("each").upstream == ("numbers", "numbers__1")


@group
def _inner(n: Any) -> None:
    each.partial(x=n).map([1])


@group
def _element(n: Any) -> None:
    each.map(n)


@group
def _outer(n: Any) -> None:
    _plain.map([1])


@group
def _plain(n: Any) -> None:
    each(n)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda: each.map("abc"), "over 'abc', a text"),
        (lambda: each.map({1, 2}), "which has no order"),
        (lambda: each.map(7), "over 7"),
        (lambda: each.map(None), "over None"),
        (lambda: each.map(numbers), "which is not called"),
        (lambda: each.map([object()]), "cannot be stored"),
        (lambda: each.map(iter([1])), "can be read once only"),
        (lambda: (each.map(), each.map()), "maps over nothing"),
        (lambda: each.partial(x=1).expand(z=[1]), "unexpected keyword argument 'z'"),
        (lambda: each.map([1], [2], [3]), "takes 2 such arguments"),
        (lambda: each.partial(x=1).expand(x=[2]), "gets 'x' by .partial(...)"),
        (lambda: each.expand(ctx=[1]), "called with ctx"),
        (lambda: each.expand(x=range(400), y=range(400)), "400 x 400 = 160,000"),
        (lambda: each.map([1, [numbers()]]), "deeper inside"),
        (lambda: each(numbers().map(str)), "which is there to be mapped over"),
        (lambda: _inner.map([1]), "is mapped inside group '_inner'"),
        (lambda: _element.map([1]), "an element of the group around it"),
        (lambda: _outer.map([1]), "is mapped inside group '_outer'"),
        (lambda: _plain.expand(m=[1]), "its function does not take"),
        (lambda: _plain.override(retry=None).map("a"), "over 'a', a text"),
        (lambda: each.override(map_label="{z}").map([1]), "which is not mapped over"),
        (lambda: each.override(map_label="{x}").map(numbers().map(str)), "in the worker only"),
        (lambda: numbers().map(each), "no plain function"),
    ],
)
def test_what_is_wrong_is_told_with_its_line_and_what_to_do(body: Any, message: str) -> None:
    found = faults(body)
    assert message in " ".join(one.message for one in found)
    assert all(
        one.line and one.remedy and Path(one.file).name == Path(__file__).name for one in found
    )


def test_the_examples_of_the_page_run() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", DOCS.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"__name__": "mapping"}
    with collecting() as registry:
        for block in blocks:
            exec(compile(block, "mapping.md", "exec"), names)
    assert [fault for one in registry.registrations for fault in one.faults] == []
    nightly, sources, shop = (one.flow.test() for one in registry.registrations)
    assert nightly.results["report"] == 15
    assert set(nightly.mapped_labels.values()) == {"a.csv", "b.csv", "c.csv"}
    assert sources.results["total"] == 6
    assert shop.results["one_order.by_hand"] == ["2 by hand"]
    assert shop.results["one_order.by_itself"] == ["1 by itself"]
    assert shop.results["close"] == [1, 2]


def test_a_dict_of_arguments_that_does_not_fit_is_told_with_what_it_has() -> None:
    @task
    def dicts() -> list[dict[str, int]]:
        return [{"y": 2}]

    @task
    def takes(x: int) -> int:
        return x

    @flow
    def f() -> None:
        takes.expand_kwargs(dicts())

    done = f.test()
    assert done.state == "failed"
    (tried,) = done.of("takes")
    assert "does not fit: missing a required argument: 'x'" in str(tried.error)
    assert "given 'y'; it takes (x: 'int')" in str(tried.error)
