"""The picture of a flow or run: the layout of its version, and the state that each task shows."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dashboard.folding import PARAMETER, Folding, folding_of
from dashboard.nested import nested_layout
from scheduler_app.queries.task_instances import told_states
from scheduler_app.rules.mapping import mapped_tasks
from scheduler_app.rules.states import TASK_TERMINAL

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dashboard.graph import Node
    from dashboard.nested import Frame, Nested
    from scheduler_app.queries.groups import GroupRow
    from scheduler_app.queries.task_instances import Cell
    from scheduler_app.rules.definition import FlowDefinition

MAPPED_NOTE: Final = "×?"  # of a mapped task whose number of instances is not known
NODES_MAX: Final = 600  # more are a table; the picture would help nobody
FOLD_ABOVE: Final = (
    300  # tasks: groups of a flow with more are folded unless the address says other
)

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
    """One task in the picture, or one folded group."""

    node: Node
    state: str | None  # null: the picture shows no run
    ti: int | None  # to link to; null when the task has no instance or several
    instances: int
    has_filtered: bool
    note: str  # for several instances, or a group: how many
    toggle: str | None = None  # of a group: what the address says once it is unfolded
    is_mapped: bool = False  # one box for all instances by map index
    told: str = ""  # of these: how many are in which state


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameBox:
    """An unfolded group in the picture."""

    frame: Frame
    state: str | None
    note: str  # which attempt of a transactional group it is
    toggle: str  # what the address says once it is folded


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A layout with states; ``boxes`` is empty when there are too many tasks to draw."""

    layout: Nested | None
    boxes: tuple[Box, ...]
    tasks: int
    frames: tuple[FrameBox, ...] = ()
    has_groups: bool = False
    all_folded: str = ""  # what the address says once every group is folded
    parameter: str = PARAMETER


def picture_of(
    definition: FlowDefinition,
    cells: Sequence[Cell] | None = None,
    with_filtered: Collection[str] = (),
    *,
    folded: str = "",
    groups: Mapping[str, GroupRow] | None = None,
) -> Picture:
    """The picture of a version, with the states of one run's task instances if given.

    ``with_filtered``: the tasks that have filtered attempts; they get a mark. ``folded``:
    what the address says of the groups. ``groups``: the transactional ones of the run.
    """
    tasks = len(definition.tasks)
    folding = folding_of(definition, folded, by_default=tasks > FOLD_ABOVE)
    of_group = {task.task_id: folding.shown_as(task.group) for task in definition.tasks}
    has_groups = bool(definition.groups)
    all_folded = ",".join(sorted(one.group_id for one in definition.groups))
    drawn = len({of_group[task_id] or task_id for task_id in of_group})
    if drawn > NODES_MAX:
        return Picture(
            layout=None, boxes=(), tasks=tasks, has_groups=has_groups, all_folded=all_folded
        )
    expanding = frozenset(mapped_tasks(definition))
    mapped = expanding | {cell.task_id for cell in cells or () if cell.is_mapped}
    places = nested_layout(definition, folding, mapped)
    shown_as: dict[str, list[Cell]] = defaultdict(list)
    inside: dict[str, list[Cell]] = defaultdict(list)
    around = {task.task_id: folding.around(task.group) for task in definition.tasks}
    for cell in cells or ():
        shown_as[of_group.get(cell.task_id) or cell.task_id].append(cell)
        for group_id in around.get(cell.task_id, ()):
            inside[group_id].append(cell)
    numbers = Counter(group_id for groups_around in around.values() for group_id in groups_around)
    is_of_run = cells is not None
    boxes = tuple(
        _folded(node, numbers[node.task_id], folding, shown_as[node.task_id], groups, is_of_run)
        if node.task_id in places.groups
        else _box(node, shown_as[node.task_id], is_of_run, with_filtered, expanding)
        for node in places.nodes
    )
    frames = tuple(
        FrameBox(
            frame=frame,
            state=_worst(inside[frame.group_id]) if is_of_run else None,
            note=_attempt_of(frame.group_id, groups),
            toggle=folding.toggled(frame.group_id),
        )
        for frame in places.frames
    )
    return Picture(
        layout=places,
        boxes=boxes,
        tasks=tasks,
        frames=frames,
        has_groups=has_groups,
        all_folded=all_folded,
    )


def _attempt_of(group_id: str, groups: Mapping[str, GroupRow] | None) -> str:
    row = (groups or {}).get(group_id)
    return row.told if row is not None and row.attempts > 1 else ""


def _folded(
    node: Node,
    tasks: int,
    folding: Folding,
    cells: Sequence[Cell],
    groups: Mapping[str, GroupRow] | None,
    is_of_run: bool,
) -> Box:
    current = [cell for cell in cells if cell.filter_code is None]
    told = _attempt_of(node.task_id, groups).removeprefix("attempt ")
    of_task: Counter[str] = Counter()
    for cell in current:
        of_task[cell.task_id] += cell.number if cell.is_mapped else 0
    times = f" ×{max(of_task.values()):,}" if of_task.total() else ""
    return Box(
        node=node,
        state=_worst(current or cells) if is_of_run else None,
        ti=None,
        instances=sum(cell.number for cell in current),
        has_filtered=any(cell.filter_code for cell in cells),
        note=f"{tasks} task{'' if tasks == 1 else 's'}{times}" + (f", {told}" if told else ""),
        toggle=folding.toggled(node.task_id),
    )


def _box(
    node: Node,
    cells: Sequence[Cell],
    is_of_run: bool,
    with_filtered: Collection[str],
    expanding: Collection[str],
) -> Box:
    current = [cell for cell in cells if cell.filter_code is None]
    shown = current or cells
    states = Counter[str]()
    for cell in shown:
        states[cell.state] += cell.number
    is_mapped = any(cell.is_mapped for cell in shown)
    instances = states.total()
    note = f"×{instances}" if instances > 1 else ""
    if node.task_id in expanding:
        note = MAPPED_NOTE  # it is not expanded, or no run is shown
    if is_mapped:
        done = sum(number for state, number in states.items() if state in TASK_TERMINAL)
        note = f"{done:,}/{instances:,}"
    return Box(
        node=node,
        state=_worst(shown) if is_of_run else None,
        ti=shown[0].ti if instances == 1 and not is_mapped else None,
        instances=instances,
        has_filtered=node.task_id in with_filtered or any(cell.filter_code for cell in cells),
        note=note,
        is_mapped=is_mapped,
        told=told_states(states) if is_mapped else "",
    )


def _worst(cells: Sequence[Cell]) -> str:
    return worst_of({cell.state for cell in cells})


def worst_of(states: Collection[str]) -> str:
    """What is shown of several states: trouble first."""
    return next((state for state in WORST_FIRST if state in states), "none")
