"""Which instances a clear or a mark reaches from those that are named, through mapped groups."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules import graph
from scheduler_app.rules.mapping import is_reached, reached

# p and q are in the mapped group g; before it stands a, after it z; x leads out of g and into it again.
UPSTREAM = {
    "a": (),
    "g.p": ("a",),
    "g.q": ("g.p",),
    "x": ("g.p",),
    "g.r": ("g.q", "x"),
    "z": ("g.r",),
}
GROUPS = {"g.p": "g", "g.q": "g", "g.r": "g"}
DOWNSTREAM = graph.downstream_of(UPSTREAM)


def test_within_a_mapped_group_a_relative_has_the_same_index() -> None:
    found = reached(UPSTREAM, {"g.q": {3}}, GROUPS)
    assert found == {"g.q": frozenset({3}), "g.p": frozenset({3}), "a": None}
    assert is_reached(found, "g.p", 3)
    assert not is_reached(found, "g.p", 4)
    assert is_reached(found, "a", -1)
    assert not is_reached(found, "z", -1)


def test_who_comes_into_the_group_from_outside_reaches_every_index() -> None:
    assert reached(DOWNSTREAM, {"a": {-1}}, GROUPS)["g.q"] is None
    back = reached(DOWNSTREAM, {"g.p": {1}}, GROUPS)
    assert back["g.q"] == frozenset({1})
    assert back["g.r"] is None, "through x, which waits for every index"


def test_several_that_are_named_add_up() -> None:
    found = reached(DOWNSTREAM, {"g.p": {1}, "g.q": {2}}, {"g.p": "g", "g.q": "g"})
    assert found["g.q"] == frozenset({1, 2})


@given(st.data())
def test_without_mapped_groups_it_is_what_the_graph_reaches(data: st.DataObject) -> None:
    tasks = [f"t{number}" for number in range(6)]
    upstream = {
        task_id: data.draw(st.sets(st.sampled_from(tasks[:at]))) if at else set()
        for at, task_id in enumerate(tasks)
    }
    named = data.draw(st.sets(st.sampled_from(tasks), min_size=1))
    found = reached(upstream, {one: {-1} for one in named}, {})
    assert set(found) == named | graph.upstream_closure(upstream, named)
    assert set(found.values()) == {None}
