"""The picture of a flow: no box covers another, every edge goes to the right, always the same."""

from __future__ import annotations

import itertools
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard import graph
from scheduler_app.rules.errors import DefinitionError


@st.composite
def flows(draw: st.DrawFn) -> dict[str, list[str]]:
    """Any acyclic graph of up to 24 tasks: each task waits for some of those before it."""
    number = draw(st.integers(min_value=1, max_value=24))
    return {
        f"t{at}": sorted(
            {f"t{draw(st.integers(0, at - 1))}" for _ in range(draw(st.integers(0, min(at, 4))))}
        )
        for at in range(number)
    }


def ends(edge: str) -> tuple[float, float]:
    """The first and the last x of a path."""
    first = re.match(r"M([\d.]+)", edge)
    last = re.search(r"H([\d.]+)$|([\d.]+) [\d.]+$", edge)
    assert first is not None
    assert last is not None
    return float(first[1]), float(last[1] or last[2])


@given(flows())
def test_boxes_never_overlap_and_stay_inside(upstream: dict[str, list[str]]) -> None:
    picture = graph.layout(upstream)
    assert {node.task_id for node in picture.nodes} == set(upstream)
    for one, other in itertools.combinations(picture.nodes, 2):
        apart_x = one.x + one.width <= other.x or other.x + other.width <= one.x
        apart_y = one.y + one.height <= other.y or other.y + other.height <= one.y
        assert apart_x or apart_y, (one, other)
    for node in picture.nodes:
        assert 0 <= node.x <= picture.width - node.width
        assert 0 <= node.y <= picture.height - node.height


@given(flows())
def test_every_dependency_is_one_edge_to_the_right(upstream: dict[str, list[str]]) -> None:
    picture = graph.layout(upstream)
    assert len(picture.edges) == sum(len(ups) for ups in upstream.values())
    assert all(start < end for start, end in map(ends, picture.edges))


@given(flows())
def test_the_picture_does_not_depend_on_the_order_of_the_input(
    upstream: dict[str, list[str]],
) -> None:
    mixed = list(upstream)
    random.Random(len(mixed)).shuffle(mixed)
    graph._layout.cache_clear()
    first = graph.layout(upstream)
    graph._layout.cache_clear()
    assert graph.layout({task: upstream[task][::-1] for task in mixed}) == first


def test_a_chain_stands_on_one_line() -> None:
    picture = graph.layout({"a": [], "b": ["a"], "c": ["b"]})
    assert len({node.y for node in picture.nodes}) == 1
    assert [node.x for node in picture.nodes] == sorted(node.x for node in picture.nodes)


def test_two_ladders_are_untangled() -> None:
    # Laid out by name alone, a-d and b-c would cross.
    picture = graph.layout({"a": [], "b": [], "c": ["b"], "d": ["a"]})
    height = {node.task_id: node.y for node in picture.nodes}
    assert (height["a"] < height["b"]) == (height["d"] < height["c"])


def test_a_long_edge_passes_beside_the_boxes_between() -> None:
    picture = graph.layout({"a": [], "b": ["a"], "c": ["b", "a"]})
    middle = next(node for node in picture.nodes if node.task_id == "b")
    (long_edge,) = (edge for edge in picture.edges if "H" in edge[1:] and "C" in edge)
    level = float(re.findall(r"([\d.]+)H", long_edge)[0])
    assert not middle.y <= level <= middle.y + middle.height


def test_a_late_start_stands_just_before_its_first_use() -> None:
    picture = graph.layout({"a": [], "b": ["a"], "side": [], "c": ["b", "side"]})
    place = {node.task_id: node.x for node in picture.nodes}
    assert place["side"] == place["b"]


def test_a_long_name_is_cut_and_the_box_stays_within_bounds() -> None:
    (node,) = graph.layout({"x" * 250: []}).nodes
    assert node.width == graph.NODE_WIDTH_MAX
    assert node.label.endswith("…")
    assert len(node.label) * graph.CHARACTER_WIDTH <= node.width - graph.LABEL_MARGIN


def test_more_bends_than_the_limit_are_drawn_straight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "BENDS_MAX", 0)
    graph._layout.cache_clear()
    picture = graph.layout({"a": [], "b": ["a"], "c": ["b", "a"]})
    graph._layout.cache_clear()
    assert len(picture.edges) == 3
    assert all(edge.count("C") + edge.count("H") == 1 for edge in picture.edges)


def test_a_cycle_is_named() -> None:
    with pytest.raises(DefinitionError, match="a -> b -> a"):
        graph.layout({"a": ["b"], "b": ["a"]})


def test_nothing_is_an_empty_picture() -> None:
    picture = graph.layout({})
    assert picture.nodes == ()
    assert picture.edges == ()
