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
    return Cell(ti=number, task_id=task_id, is_mapped=index >= 0, state=state, filter_code=code)


def test_a_picture_without_a_run_shows_no_states() -> None:
    picture = pictures.picture_of(FLOW)
    assert {box.state for box in picture.boxes} == {None}


def test_a_mapped_task_is_one_box_with_the_worst_of_its_states_and_how_many_are_done() -> None:
    cells = [
        Cell(ti=1, task_id="a", is_mapped=True, state="success", filter_code=None, number=900),
        Cell(ti=901, task_id="a", is_mapped=True, state="failed", filter_code=None, number=3),
        Cell(ti=904, task_id="a", is_mapped=True, state="queued", filter_code=None, number=597),
    ]
    picture = pictures.picture_of(FLOW, cells)
    box = next(b for b in picture.boxes if b.node.task_id == "a")
    assert (box.state, box.note, box.ti) == ("failed", "903/1,500", None)
    assert (box.is_mapped, box.instances) == (True, 1500)
    assert box.told == "900 of 1,500 success, 597 queued, 3 failed"
    other = next(b for b in picture.boxes if b.node.task_id == "b")
    assert box.node.width > other.node.width, "it has room for the numbers"


def test_a_filtered_instance_does_not_speak_for_its_task() -> None:
    cells = [cell(1, "a", "failed", "removed_from_flow", 0), cell(2, "a", "success", index=1)]
    box = next(b for b in pictures.picture_of(FLOW, cells).boxes if b.node.task_id == "a")
    assert (box.state, box.instances, box.has_filtered) == ("success", 1, True)


def test_filtered_attempts_put_a_mark_on_their_task() -> None:
    cells = [cell(1, "a", "success"), cell(2, "b", "success")]
    marked = {b.node.task_id: b.has_filtered for b in pictures.picture_of(FLOW, cells, {"b"}).boxes}
    assert marked == {"a": False, "b": True}


def test_too_many_tasks_are_left_to_the_table() -> None:
    tasks = tuple(TaskDefinition(task_id=f"t{at}") for at in range(pictures.NODES_MAX + 1))
    picture = pictures.picture_of(FlowDefinition(flow_id="f", tasks=tasks))
    assert picture.layout is None
    assert picture.tasks == len(tasks)


def test_every_state_of_a_task_instance_has_its_rank() -> None:
    from scheduler_app.queries.shown import TASK_STATES  # noqa: PLC0415 - beside its only use

    assert set(pictures.WORST_FIRST) == set(TASK_STATES)
