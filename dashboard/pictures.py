"""The picture of a flow or run: the layout of its version, and the state that each task shows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dashboard import graph

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from scheduler_app.queries.task_instances import Cell
    from scheduler_app.rules.definition import FlowDefinition

NODES_MAX: Final = 600  # more are a table; the picture would help nobody

# What a task of several instances shows: the worst of their states.
WORST_FIRST: Final = (
    "failed",
    "upstream_failed",
    "frozen",
    "restarting",
    "up_for_retry",
    "running",
    "queued",
    "scheduled",
    "deferred",
    "up_for_reschedule",
    "none",
    "skipped",
    "removed",
    "success",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """One task in the picture."""

    node: graph.Node
    state: str | None  # null: the picture shows no run
    ti: int | None  # to link to; null when the task has no instance or several
    instances: int
    has_filtered: bool
    note: str  # for several instances: how many


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A layout with states; ``boxes`` is empty when there are too many tasks to draw."""

    layout: graph.Layout | None
    boxes: tuple[Box, ...]
    tasks: int


def picture_of(
    definition: FlowDefinition,
    cells: Sequence[Cell] | None = None,
    with_filtered: Collection[int] = (),
) -> Picture:
    """The picture of a version, with the states of one run's task instances if given.

    ``with_filtered``: the task instances that have filtered attempts; they get a mark.
    """
    tasks = len(definition.tasks)
    if tasks > NODES_MAX:
        return Picture(layout=None, boxes=(), tasks=tasks)
    known = {task.task_id for task in definition.tasks}
    places = graph.layout(
        {task.task_id: [up for up in task.upstream if up in known] for task in definition.tasks}
    )
    of_task: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells or ():
        of_task[cell.task_id].append(cell)
    boxes = tuple(
        _box(node, of_task[node.task_id], cells is not None, with_filtered) for node in places.nodes
    )
    return Picture(layout=places, boxes=boxes, tasks=tasks)


def _box(
    node: graph.Node, cells: Sequence[Cell], is_of_run: bool, with_filtered: Collection[int]
) -> Box:
    current = [cell for cell in cells if cell.filter_code is None]
    shown = current or cells
    return Box(
        node=node,
        state=_worst(shown) if is_of_run else None,
        ti=shown[0].id if len(shown) == 1 else None,
        instances=len(shown),
        has_filtered=any(cell.filter_code or cell.id in with_filtered for cell in cells),
        note=f"×{len(shown)}" if len(shown) > 1 else "",
    )


def _worst(cells: Sequence[Cell]) -> str:
    states = {cell.state for cell in cells}
    return next((state for state in WORST_FIRST if state in states), "none")
