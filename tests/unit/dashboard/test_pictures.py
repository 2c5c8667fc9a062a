"""Which state a task of a picture shows."""

from __future__ import annotations

from dashboard import pictures
from scheduler_app.queries.task_instances import Cell
from scheduler_app.rules.definition import FlowDefinition, TaskDefinition

FLOW = FlowDefinition(
    flow_id="f", tasks=(TaskDefinition(task_id="a"), TaskDefinition(task_id="b", upstream=("a",)))
)


def cell(number: int, task_id: str, state: str, code: str | None = None, index: int = -1) -> Cell:
    """A task instance as a picture knows it."""
    return Cell(id=number, task_id=task_id, map_index=index, state=state, filter_code=code)


def test_a_picture_without_a_run_shows_no_states() -> None:
    picture = pictures.picture_of(FLOW)
    assert {box.state for box in picture.boxes} == {None}


def test_a_task_of_several_instances_shows_the_worst_and_their_number() -> None:
    cells = [cell(1, "a", "success", index=0), cell(2, "a", "failed", index=1)]
    box = next(b for b in pictures.picture_of(FLOW, cells).boxes if b.node.task_id == "a")
    assert (box.state, box.note, box.ti) == ("failed", "×2", None)


def test_a_filtered_instance_does_not_speak_for_its_task() -> None:
    cells = [cell(1, "a", "failed", "removed_from_flow", 0), cell(2, "a", "success", index=1)]
    box = next(b for b in pictures.picture_of(FLOW, cells).boxes if b.node.task_id == "a")
    assert (box.state, box.ti, box.has_filtered) == ("success", 2, True)


def test_filtered_attempts_put_a_mark_on_their_task() -> None:
    cells = [cell(1, "a", "success"), cell(2, "b", "success")]
    marked = {b.node.task_id: b.has_filtered for b in pictures.picture_of(FLOW, cells, {2}).boxes}
    assert marked == {"a": False, "b": True}


def test_too_many_tasks_are_left_to_the_table() -> None:
    tasks = tuple(TaskDefinition(task_id=f"t{at}") for at in range(pictures.NODES_MAX + 1))
    picture = pictures.picture_of(FlowDefinition(flow_id="f", tasks=tasks))
    assert picture.layout is None
    assert picture.tasks == len(tasks)


def test_every_state_of_a_task_instance_has_its_rank() -> None:
    from scheduler_app.queries.shown import TASK_STATES  # noqa: PLC0415 - beside its only use

    assert set(pictures.WORST_FIRST) == set(TASK_STATES)
