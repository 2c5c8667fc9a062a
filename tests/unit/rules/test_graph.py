from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules import graph
from scheduler_app.rules.errors import DefinitionError

DIAMOND = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}


def test_the_order_puts_upstream_first_and_ties_by_id() -> None:
    assert graph.topological_order({"d": ("c", "b"), "c": ("a",), "b": ("a",), "a": ()}) == (
        "a",
        "b",
        "c",
        "d",
    )
    assert graph.topological_order({"z": (), "m": (), "b": ("z",)}) == ("m", "z", "b")


def test_a_dependency_that_is_named_twice_or_unknown_does_not_disturb_the_order() -> None:
    assert graph.topological_order({"b": ("a", "a", "gone"), "a": ()}) == ("a", "b")


def test_a_cycle_is_named_from_its_lowest_id_round_to_it() -> None:
    with pytest.raises(DefinitionError, match="a -> b -> c -> a") as raised:
        graph.topological_order({"b": ("a",), "c": ("b",), "a": ("c",), "x": ()})
    assert raised.value.extra["cycle"] == ["a", "b", "c", "a"]


def test_a_task_that_waits_for_itself_is_a_cycle() -> None:
    assert graph.find_cycle({"a": ("a",)}) == ("a", "a")


def test_without_a_cycle_none_is_found() -> None:
    assert graph.find_cycle(DIAMOND) is None


def test_closures_go_all_the_way_and_leave_the_start_out() -> None:
    assert graph.upstream_closure(DIAMOND, ["d"]) == {"a", "b", "c"}
    assert graph.downstream_closure(DIAMOND, ["a"]) == {"b", "c", "d"}
    assert graph.upstream_closure(DIAMOND, ["a"]) == set()


def test_a_start_that_another_start_reaches_is_in_the_closure() -> None:
    assert graph.upstream_closure(DIAMOND, ["d", "b"]) == {"a", "b", "c"}
    assert graph.downstream_closure(DIAMOND, ["a", "b"]) == {"b", "c", "d"}


def test_the_leaves_are_the_tasks_that_nobody_waits_for() -> None:
    assert graph.leaves(DIAMOND) == {"d"}
    assert graph.leaves({"a": (), "b": ("a",), "c": ()}) == {"b", "c"}
    assert graph.leaves({}) == set()


@st.composite
def acyclic(draw: st.DrawFn) -> dict[str, tuple[str, ...]]:
    """A graph whose tasks come in any order."""
    ids = [f"t{number}" for number in range(draw(st.integers(0, 8)))]
    edges = {
        task_id: tuple(sorted(draw(st.sets(st.sampled_from(ids[:place])))) if place else ())
        for place, task_id in enumerate(ids)
    }
    return {task_id: edges[task_id] for task_id in draw(st.permutations(ids))}


@given(acyclic())
def test_any_graph_without_a_cycle_has_an_order_with_every_task_once(
    upstream: dict[str, tuple[str, ...]],
) -> None:
    order = graph.topological_order(upstream)
    assert sorted(order) == sorted(upstream)
    for place, task_id in enumerate(order):
        assert set(upstream[task_id]) <= set(order[:place])


@given(acyclic(), st.data())
def test_up_and_down_are_each_others_mirror(
    upstream: dict[str, tuple[str, ...]], data: st.DataObject
) -> None:
    if not upstream:
        assert graph.leaves(upstream) == set()
        return
    one = data.draw(st.sampled_from(sorted(upstream)))
    for other in upstream:
        assert (other in graph.upstream_closure(upstream, [one])) == (
            one in graph.downstream_closure(upstream, [other])
        )
