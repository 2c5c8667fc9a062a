"""The layout of a flow with groups: each unfolded group is a frame around a layout of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from dashboard import graph
from scheduler_app.rules.graph import find_cycle

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dashboard.folding import Folding
    from dashboard.graph import Layout, Node, Size
    from scheduler_app.rules.definition import FlowDefinition, TaskDefinition

TITLE_HEIGHT: Final = 26.0
NOTE_WIDTH: Final = 100.0  # "12 tasks, 2 of 3" behind the name of a group
FRAME_WIDTH_MIN: Final = 150.0
NUMBERS_WIDTH: Final = 46.0  # "4,812/5,000" of a mapped task takes that more than "12 tasks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """An unfolded group: the box around its tasks."""

    group_id: str
    label: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Nested:
    """Boxes of tasks and of folded groups, frames of the others (outer first), edges as SVG paths."""

    nodes: tuple[Node, ...]
    groups: frozenset[str]  # those of the nodes that are folded groups
    frames: tuple[Frame, ...]
    edges: tuple[tuple[str, float, float], ...]  # path, and by how much it is moved
    width: float
    height: float
    undrawn: int = 0  # edges by which a way that has left a group comes back into it


def nested_layout(
    definition: FlowDefinition, folding: Folding, mapped: frozenset[str] = frozenset()
) -> Nested:
    """Where every task, group and edge goes. Edges into or out of a group end at its frame.

    ``mapped``: tasks of many instances, whose boxes have room for how many.
    """
    return _within(definition, folding, mapped, "")


def _within(
    definition: FlowDefinition, folding: Folding, mapped: frozenset[str], container: str
) -> Nested:
    """The layout of what lies in the group (empty: in the flow), with the upper left corner at 0."""
    inner = {group_id for group_id, parent in folding.parents.items() if parent == container}
    nested = {
        group_id: _within(definition, folding, mapped, group_id)
        for group_id in sorted(inner - folding.folded)
    }
    labels = {group_id: label_of(folding, group_id) for group_id in inner}
    sizes: dict[str, Size] = {
        group_id: (
            max(part.width, FRAME_WIDTH_MIN, _text_width(labels[group_id])),
            part.height + TITLE_HEIGHT,
        )
        for group_id, part in nested.items()
    }
    for group_id in inner & folding.folded:
        sizes[group_id] = (_text_width(labels[group_id]), graph.NODE_HEIGHT)
    prefix = f"{container}." if container else ""
    for task in definition.tasks:
        if task.group == container and task.task_id in mapped:
            name = task.task_id.removeprefix(prefix)
            width = min(_text_width(name) + NUMBERS_WIDTH, graph.NODE_WIDTH_MAX + NOTE_WIDTH)
            sizes[task.task_id] = (width, graph.NODE_HEIGHT)
    upstream = _edges(definition.tasks, folding, container, inner)
    kept, undrawn = _without_cycles(upstream)
    named = _names(upstream, container)
    placed: Layout = graph.layout(
        {named[one]: [named[other] for other in above] for one, above in kept.items()},
        {named[one]: size for one, size in sizes.items()},
    )
    ids = {name: one for one, name in named.items()}
    nodes: list[Node] = []
    frames: list[Frame] = []
    edges: list[tuple[str, float, float]] = [(path, 0.0, 0.0) for path in placed.edges]
    groups = set(inner & folding.folded)
    for drawn in placed.nodes:
        node = replace(drawn, task_id=ids[drawn.task_id])
        part = nested.get(node.task_id)
        if part is None:
            label = labels.get(node.task_id, node.label)
            nodes.append(replace(node, label=label))
            continue
        x, y = node.x, node.y + TITLE_HEIGHT
        frames.append(
            Frame(
                group_id=node.task_id,
                label=labels[node.task_id],
                x=node.x,
                y=node.y,
                width=node.width,
                height=node.height,
            )
        )
        frames += [replace(one, x=one.x + x, y=one.y + y) for one in part.frames]
        nodes += [replace(one, x=round(one.x + x, 1), y=round(one.y + y, 1)) for one in part.nodes]
        edges += [(path, dx + x, dy + y) for path, dx, dy in part.edges]
        groups |= part.groups
    return Nested(
        nodes=tuple(nodes),
        groups=frozenset(groups),
        frames=tuple(frames),
        edges=tuple(edges),
        width=placed.width,
        height=placed.height,
        undrawn=undrawn + sum(part.undrawn for part in nested.values()),
    )


def _names(ids: Iterable[str], container: str) -> dict[str, str]:
    """What the boxes in a frame are called: without the id of its group, where that stays clear."""
    short = {one: one.removeprefix(f"{container}.") if container else one for one in ids}
    return short if len(set(short.values())) == len(short) else {one: one for one in short}


def label_of(folding: Folding, group_id: str) -> str:
    """The id of the group without that of the group around it, which its frame says."""
    around = folding.parents.get(group_id)
    return group_id.removeprefix(f"{around}.") if around else group_id


def _text_width(label: str) -> float:
    width = (
        len(label) * graph.CHARACTER_WIDTH + graph.LABEL_MARGIN + 40.0
    )  # with a number behind it
    return min(max(width, FRAME_WIDTH_MIN), graph.NODE_WIDTH_MAX + 40.0)


def _edges(
    tasks: Sequence[TaskDefinition], folding: Folding, container: str, inner: set[str]
) -> dict[str, set[str]]:
    """The upstream of the tasks right in the container, and of the groups right in it."""
    place: dict[str, str] = {}
    for task in tasks:
        if task.group == container:
            place[task.task_id] = task.task_id
        else:
            found = next((one for one in folding.around(task.group) if one in inner), None)
            if found is not None:
                place[task.task_id] = found
    upstream: dict[str, set[str]] = {one: set() for one in (*place.values(), *inner)}
    for task in tasks:
        own = place.get(task.task_id)
        if own is None:
            continue
        for above in task.upstream:
            other = place.get(above)
            if other is not None and other != own:
                upstream[own].add(other)
    return upstream


def _without_cycles(upstream: Mapping[str, set[str]]) -> tuple[dict[str, set[str]], int]:
    """The same, less an edge of each cycle, and how many those are."""
    kept = {one: set(above) for one, above in upstream.items()}
    taken_out = 0
    while cycle := find_cycle(kept):
        before, after = cycle[-2], cycle[-1]
        kept[after].discard(before)
        taken_out += 1
    return kept, taken_out
