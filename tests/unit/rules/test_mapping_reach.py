"""Which instances a clear or a mark reaches from those that are named, through mapped groups."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules import clear, graph
from scheduler_app.rules.definition import FlowDefinition, GroupDefinition, TaskDefinition
from scheduler_app.rules.mapping import Argument, Kind, MapOver, Source, is_reached, reached
from scheduler_app.rules.roles import Role

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


def test_a_clear_brings_the_setups_of_the_same_index_of_a_mapped_group() -> None:
    over = MapOver(
        arguments=(Argument(name="n", source=Source(kind=Kind.RESULT, task_id="names")),)
    )
    tasks = (
        TaskDefinition(task_id="names"),
        TaskDefinition(task_id="around", role=Role.SETUP, upstream=("names",)),
        TaskDefinition(task_id="g.make", role=Role.SETUP, upstream=("around",), group="g"),
        TaskDefinition(task_id="g.use", upstream=("g.make",), group="g"),
        TaskDefinition(
            task_id="g.drop", role=Role.TEARDOWN, upstream=("g.make", "g.use"), group="g"
        ),
        TaskDefinition(task_id="end", role=Role.TEARDOWN, upstream=("around", "g.use")),
    )
    groups = (GroupDefinition(group_id="g", mapped=over),)
    definition = FlowDefinition(flow_id="f", tasks=tasks, groups=groups)
    candidates = [
        clear.Candidate(
            id=n,
            task_id=task.task_id,
            map_index=index,
            state="success",
            try_number=1,
            attempt_id=str(n),
        )
        for n, (task, index) in enumerate(
            (task, index) for task in tasks for index in ((0, 1, 2) if task.group else (-1,))
        )
    ]
    named = next(one for one in candidates if (one.task_id, one.map_index) == ("g.use", 1))
    for downstream in (False, True):
        chosen = clear.select(
            candidates,
            upstream={task.task_id: task.upstream for task in tasks},
            retries={task.task_id: 0 for task in tasks},
            asked=[named.id],
            options=clear.Options(include_downstream=downstream),
            definition=definition,
        )
        assert {(one.task_id, one.map_index) for one in chosen.included} == {
            ("around", -1),
            ("g.make", 1),
            ("g.use", 1),
            ("g.drop", 1),
            ("end", -1),
        }
