"""The picture of groups: frames around their tasks, folded ones as one box, every edge drawn."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from dashboard import pictures
from dashboard.folding import folding_of
from dashboard.grids import grid_of
from dashboard.nested import nested_layout
from scheduler_app.queries.task_instances import Cell
from scheduler_app.rules.definition import FlowDefinition, GroupDefinition, TaskDefinition

if TYPE_CHECKING:
    from dashboard.graph import Node
    from dashboard.nested import Frame


@st.composite
def flows(draw: st.DrawFn) -> FlowDefinition:
    """Tasks in groups, groups in groups, edges anywhere forward."""
    groups: list[GroupDefinition] = []
    for number in range(draw(st.integers(0, 4))):
        outer = draw(st.sampled_from(["", *(one.group_id for one in groups)]))
        groups.append(GroupDefinition(group_id=f"g{number}", parent=outer))
    known = ["", *(one.group_id for one in groups)]
    tasks: list[TaskDefinition] = []
    for number in range(draw(st.integers(1, 9))):
        above = [one.task_id for one in tasks]
        upstream = draw(st.sets(st.sampled_from(above), max_size=3)) if above else set()
        tasks.append(
            TaskDefinition(
                task_id=f"t{number}",
                group=draw(st.sampled_from(known)),
                upstream=tuple(sorted(upstream)),
            )
        )
    return FlowDefinition(flow_id="f", tasks=tuple(tasks), groups=tuple(groups))


@st.composite
def folded_flows(draw: st.DrawFn) -> tuple[FlowDefinition, str]:
    flow = draw(flows())
    ids = [one.group_id for one in flow.groups]
    folded = draw(st.sets(st.sampled_from(ids))) if ids else set()
    return flow, ",".join(sorted(folded)) or "-"


def overlap(one: Node | Frame, other: Node | Frame) -> bool:
    return (
        one.x < other.x + other.width
        and other.x < one.x + one.width
        and one.y < other.y + other.height
        and other.y < one.y + one.height
    )


def contains(outer: Frame, inner: Node | Frame) -> bool:
    return (
        outer.x <= inner.x
        and outer.y <= inner.y
        and inner.x + inner.width <= outer.x + outer.width
        and inner.y + inner.height <= outer.y + outer.height
    )


@given(folded_flows())
def test_boxes_lie_in_the_frames_of_their_groups_and_never_over_each_other(
    asked: tuple[FlowDefinition, str],
) -> None:
    flow, said = asked
    folding = folding_of(flow, said, by_default=False)
    placed = nested_layout(flow, folding)
    shown = {folding.shown_as(task.group) or task.task_id for task in flow.tasks}
    assert {node.task_id for node in placed.nodes} >= shown
    for one, other in itertools.combinations(placed.nodes, 2):
        assert not overlap(one, other)
    frames = {frame.group_id: frame for frame in placed.frames}
    group_of = {task.task_id: task.group for task in flow.tasks}
    for node in placed.nodes:
        inside = (
            folding.around(folding.parents[node.task_id])
            if node.task_id in placed.groups
            else (folding.around(group_of[node.task_id]))
        )
        for group_id, frame in frames.items():
            assert contains(frame, node) if group_id in inside else not overlap(frame, node)
        assert node.x + node.width <= placed.width
        assert node.y + node.height <= placed.height


@given(flows())
def test_without_groups_folded_every_edge_between_two_places_is_drawn_once(
    flow: FlowDefinition,
) -> None:
    placed = nested_layout(flow, folding_of(flow, "-", by_default=False))
    around = folding_of(flow, "-", by_default=False).around
    wanted = set()
    for task in flow.tasks:
        own = [*around(task.group), task.task_id]
        for above in task.upstream:
            other = next(t for t in flow.tasks if t.task_id == above)
            theirs = [*around(other.group), other.task_id]
            ends = next(pair for pair in zip(own, theirs, strict=False) if pair[0] != pair[1])
            wanted.add(ends)
    assert len(placed.edges) + placed.undrawn == len(wanted)


NESTED = FlowDefinition(
    flow_id="f",
    tasks=(
        TaskDefinition(task_id="a.b.x", group="a.b"),
        TaskDefinition(task_id="a.y", group="a", upstream=("a.b.x",)),
        TaskDefinition(task_id="z", upstream=("a.y",)),
    ),
    groups=(GroupDefinition(group_id="a"), GroupDefinition(group_id="a.b", parent="a")),
)


def cell(number: int, task_id: str, state: str) -> Cell:
    return Cell(ti=number, task_id=task_id, is_mapped=False, state=state, filter_code=None)


def test_a_folded_group_shows_the_worst_of_its_tasks_and_how_many_there_are() -> None:
    cells = [cell(1, "a.b.x", "failed"), cell(2, "a.y", "success"), cell(3, "z", "success")]
    picture = pictures.picture_of(NESTED, cells, folded="a")
    boxes = {box.node.task_id: box for box in picture.boxes}
    assert set(boxes) == {"a", "z"}
    assert (boxes["a"].state, boxes["a"].note, boxes["a"].toggle) == ("failed", "2 tasks", "-")
    assert picture.frames == ()
    picture = pictures.picture_of(NESTED, cells, folded="a.b")
    assert {box.node.task_id for box in picture.boxes} == {"a.b", "a.y", "z"}
    assert [(one.frame.group_id, one.state, one.toggle) for one in picture.frames] == [
        ("a", "failed", "a,a.b")
    ]


def test_groups_of_a_large_flow_are_folded_unless_the_address_says_otherwise() -> None:
    tasks = tuple(
        TaskDefinition(task_id=f"g.t{n}", group="g") for n in range(pictures.FOLD_ABOVE + 1)
    )
    flow = FlowDefinition(flow_id="f", tasks=tasks, groups=(GroupDefinition(group_id="g"),))
    assert [box.node.task_id for box in pictures.picture_of(flow).boxes] == ["g"]
    assert len(pictures.picture_of(flow, folded="-").boxes) == len(tasks)
    assert pictures.picture_of(flow, folded="no_group").frames != ()


def test_rows_of_a_grid_stand_under_their_group_unless_that_is_folded() -> None:
    def lines(said: str) -> list[tuple[str, int, bool]]:
        grid = grid_of(
            runs=[],
            task_ids=[task.task_id for task in NESTED.tasks],
            cells={},
            tries={},
            now=datetime(2026, 1, 31, tzinfo=UTC),
            group_of={task.task_id: task.group for task in NESTED.tasks},
            folding=folding_of(NESTED, said, by_default=True),
        )
        return [(row.label, row.depth, row.is_folded) for row in grid.rows]

    assert lines("") == [("a", 0, True), ("z", 0, False)]
    assert lines("a.b") == [
        ("a", 0, False),
        ("b", 1, True),
        ("y", 1, False),
        ("z", 0, False),
    ]
    assert lines("-") == [
        ("a", 0, False),
        ("b", 1, False),
        ("x", 2, False),
        ("y", 1, False),
        ("z", 0, False),
    ]


def test_a_folded_group_that_is_mapped_says_how_often_it_is_there() -> None:
    cells = [
        Cell(ti=1, task_id="a.b.x", is_mapped=True, state="success", filter_code=None, number=900),
        Cell(ti=901, task_id="a.b.x", is_mapped=True, state="running", filter_code=None, number=20),
        Cell(ti=921, task_id="a.y", is_mapped=True, state="none", filter_code=None, number=920),
    ]
    boxes = {b.node.task_id: b for b in pictures.picture_of(NESTED, cells, folded="a").boxes}
    assert (boxes["a"].note, boxes["a"].instances) == ("2 tasks ×920", 1840)
