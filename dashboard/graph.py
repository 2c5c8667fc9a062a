"""Where the tasks of a flow stand in its picture: a layered layout, pure and always the same.

Tasks go from left to right by their longest way from a start; each layer is ordered so that few
edges cross, and each task is moved as near to its neighbours as the order allows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from scheduler_app.rules.graph import topological_order

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

NODE_HEIGHT: Final = 32.0  # px, as every length here
NODE_WIDTH_MIN: Final = 112.0
NODE_WIDTH_MAX: Final = 260.0
CHARACTER_WIDTH: Final = 7.0  # of a label, about
LABEL_MARGIN: Final = 44.0  # room for the mark
GAP_X: Final = 56.0
GAP_Y: Final = 14.0
BEND_GAP: Final = 10.0  # between edges that pass a layer
MARGIN: Final = 12.0
SWEEPS: Final = 6  # there and back
BENDS_MAX: Final = 20_000  # places where long edges pass layers; more are drawn straight
CACHED_MAX: Final = 64  # layouts


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One task: its box, by the upper left corner."""

    task_id: str
    label: str  # cut to the width
    x: float
    y: float
    width: float
    height: float = NODE_HEIGHT


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The picture: boxes, edges as SVG paths, and its size."""

    nodes: tuple[Node, ...]
    edges: tuple[str, ...]
    width: float
    height: float


Size = tuple[float, float]  # width, height


def layout(
    upstream: Mapping[str, Collection[str]], sizes: Mapping[str, Size] | None = None
) -> Layout:
    """Where every task and edge goes. Raises ``DefinitionError`` for a cycle.

    ``sizes`` holds the boxes that are no task's: those of groups with their tasks in them.
    """
    return _layout(
        tuple((task, tuple(sorted(upstream[task]))) for task in sorted(upstream)),
        tuple(sorted((sizes or {}).items())),
    )


@lru_cache(maxsize=CACHED_MAX)
def _layout(
    items: tuple[tuple[str, tuple[str, ...]], ...], sized: tuple[tuple[str, Size], ...]
) -> Layout:
    upstream, sizes = dict(items), dict(sized)
    layer_of = _layers(upstream)
    chains = _chains(upstream, layer_of)
    columns = _columns(upstream, layer_of, chains)
    _order(columns, chains)
    middle = _place(columns, chains, sizes)
    return _draw(layer_of, columns, chains, middle, sizes)


# A point is a task (text) or a bend of a long edge (a tuple of upstream, downstream, layer).
Point = str | tuple[str, str, int]
Chain = tuple[Point, ...]  # an edge with its bends, from upstream to downstream


def _layers(upstream: Mapping[str, Sequence[str]]) -> dict[str, int]:
    order = topological_order(upstream)
    layer_of: dict[str, int] = {}
    for task in order:
        layer_of[task] = 1 + max((layer_of[up] for up in upstream[task]), default=-1)
    nearest: dict[str, int] = {}
    for task in reversed(order):
        if not upstream[task] and task in nearest:
            layer_of[task] = nearest[task] - 1  # a start stands just before its first use
        for up in upstream[task]:
            nearest[up] = min(nearest.get(up, layer_of[task]), layer_of[task])
    return layer_of


def _chains(
    upstream: Mapping[str, Sequence[str]], layer_of: Mapping[str, int]
) -> tuple[Chain, ...]:
    edges = [(up, task) for task in upstream for up in upstream[task]]
    bends = sum(layer_of[task] - layer_of[up] - 1 for up, task in edges)
    if bends > BENDS_MAX:
        return tuple(edges)
    return tuple(
        (up, *((up, task, layer) for layer in range(layer_of[up] + 1, layer_of[task])), task)
        for up, task in edges
    )


def _columns(
    upstream: Mapping[str, Sequence[str]], layer_of: Mapping[str, int], chains: Sequence[Chain]
) -> list[list[Point]]:
    columns: list[list[Point]] = [[] for _ in range(max(layer_of.values(), default=-1) + 1)]
    for task in upstream:
        columns[layer_of[task]].append(task)
    for chain in chains:
        for bend in chain[1:-1]:
            assert isinstance(bend, tuple)
            columns[bend[2]].append(bend)
    return columns


def _order(columns: list[list[Point]], chains: Sequence[Chain]) -> None:
    """The columns are in an order with few crossings."""
    before, after = _neighbours(chains)
    best = [list(column) for column in columns]
    fewest = _crossings(columns, after)
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        walk = range(1, len(columns)) if forward else range(len(columns) - 2, -1, -1)
        near = before if forward else after
        for at in walk:
            place = {point: i for i, point in enumerate(columns[at - 1 if forward else at + 1])}
            columns[at] = _by_barycentre(columns[at], near, place)
        crossings = _crossings(columns, after)
        if crossings < fewest:
            fewest, best = crossings, [list(column) for column in columns]
        if not fewest:
            break
    columns[:] = best


def _neighbours(
    chains: Sequence[Chain],
) -> tuple[dict[Point, list[Point]], dict[Point, list[Point]]]:
    before: dict[Point, list[Point]] = defaultdict(list)
    after: dict[Point, list[Point]] = defaultdict(list)
    for chain in chains:
        for left, right in pairwise(chain):
            after[left].append(right)
            before[right].append(left)
    return before, after


def _by_barycentre(
    column: list[Point], near: Mapping[Point, list[Point]], place: Mapping[Point, int]
) -> list[Point]:
    weight: dict[Point, float] = {}
    for at, point in enumerate(column):
        seen = [place[other] for other in near.get(point, ()) if other in place]
        weight[point] = sum(seen) / len(seen) if seen else float(at)
    return sorted(column, key=lambda point: weight[point])


def _crossings(columns: Sequence[Sequence[Point]], after: Mapping[Point, list[Point]]) -> int:
    total = 0
    for left, right in pairwise(columns):
        place = {point: i for i, point in enumerate(right)}
        ends: list[int] = []
        for point in left:
            ends += sorted(place[other] for other in after.get(point, ()) if other in place)
        passed: list[int] = []
        for end in ends:
            at = bisect_left(passed, end + 1)
            total += len(passed) - at
            passed.insert(at, end)
    return total


def _place(
    columns: Sequence[Sequence[Point]], chains: Sequence[Chain], sizes: Mapping[str, Size]
) -> dict[Point, float]:
    """The middle height of every point: as near to its neighbours as its column's order allows.

    The highest box begins at 0.
    """
    before, after = _neighbours(chains)
    middle: dict[Point, float] = {}
    for column in columns:
        height = 0.0
        for above, point in zip((None, *column), column, strict=False):
            height += _distance(above, point, sizes) if above is not None else 0.0
            middle[point] = height
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        near = before if forward else after
        for column in columns if forward else reversed(columns):
            wanted = [_mean(near.get(point, ()), middle, middle[point]) for point in column]
            middle.update(zip(column, _apart(column, wanted, sizes), strict=True))
    top = min((at - _half(point, sizes) for point, at in middle.items()), default=0.0)
    return {point: at - top for point, at in middle.items()}


def _mean(near: Sequence[Point], middle: Mapping[Point, float], default: float) -> float:
    return sum(middle[point] for point in near) / len(near) if near else default


def _distance(above: Point, below: Point, sizes: Mapping[str, Size]) -> float:
    if isinstance(above, tuple) and isinstance(below, tuple):
        return BEND_GAP
    return _half(above, sizes) + _half(below, sizes) + GAP_Y


def _half(point: Point, sizes: Mapping[str, Size]) -> float:
    """Half the height of what stands at the point."""
    if isinstance(point, tuple):
        return 0.0
    return sizes[point][1] / 2 if point in sizes else NODE_HEIGHT / 2


def _apart(
    column: Sequence[Point], wanted: Sequence[float], sizes: Mapping[str, Size]
) -> list[float]:
    """The heights nearest to the wanted ones (least squares) that keep the order and the distances."""
    offsets = [0.0]
    for above, below in pairwise(column):
        offsets.append(offsets[-1] + _distance(above, below, sizes))
    blocks: list[tuple[float, int]] = []  # mean, how many: pools of neighbours that pushed together
    for want, offset in zip(wanted, offsets, strict=False):
        mean, number = want - offset, 1
        while blocks and blocks[-1][0] > mean:
            last_mean, last_number = blocks.pop()
            mean = (mean * number + last_mean * last_number) / (number + last_number)
            number += last_number
        blocks.append((mean, number))
    means = [mean for mean, number in blocks for _ in range(number)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=False)]


def _draw(
    layer_of: Mapping[str, int],
    columns: Sequence[Sequence[Point]],
    chains: Sequence[Chain],
    middle: Mapping[Point, float],
    sizes: Mapping[str, Size],
) -> Layout:
    lefts, widths, of_tasks = _column_places(columns, sizes)
    top = MARGIN
    nodes = []
    for task, layer in layer_of.items():
        width, height = sizes.get(task, (of_tasks[layer], NODE_HEIGHT))
        nodes.append(
            Node(
                task_id=task,
                label=_label(task, width),
                x=round(lefts[layer], 1),
                y=round(middle[task] + top - height / 2, 1),
                width=width,
                height=height,
            )
        )
    ends = {node.task_id: round(node.x + node.width, 1) for node in nodes}
    edges = []
    for chain in chains:
        points: list[tuple[float, float]] = []
        for point in chain:
            layer = layer_of[point] if isinstance(point, str) else point[2]
            y = round(middle[point] + top, 1)
            left, right = round(lefts[layer], 1), round(lefts[layer] + widths[layer], 1)
            if point is chain[0]:
                # Level to the end of its column, past wider boxes above and below it.
                assert isinstance(point, str)
                points += [(ends[point], y)] + ([(right, y)] if ends[point] < right else [])
            elif point is chain[-1]:
                points.append((left, y))
            else:
                points += [(left, y), (right, y)]
        edges.append(_path(points))
    width = lefts[-1] + widths[-1] + MARGIN if columns else 2 * MARGIN
    height = max((node.y + node.height for node in nodes), default=0.0)
    height = max([height, *(middle[point] + top for point in middle)]) + MARGIN
    return Layout(
        nodes=tuple(nodes), edges=tuple(edges), width=round(width, 1), height=round(height, 1)
    )


def _column_places(
    columns: Sequence[Sequence[Point]], sizes: Mapping[str, Size]
) -> tuple[list[float], list[float], list[float]]:
    """Where each column begins, how wide it is, and how wide the tasks in it are."""
    widths: list[float] = []
    lefts: list[float] = []
    of_tasks: list[float] = []
    at = MARGIN
    for column in columns:
        tasks = [point for point in column if isinstance(point, str) and point not in sizes]
        longest = max(map(len, tasks), default=0)
        width = longest * CHARACTER_WIDTH + LABEL_MARGIN
        of_tasks.append(min(max(width, NODE_WIDTH_MIN), NODE_WIDTH_MAX))
        boxes = [sizes[point][0] for point in column if isinstance(point, str) and point in sizes]
        widths.append(max([*boxes, *([of_tasks[-1]] if tasks or not boxes else [])]))
        lefts.append(at)
        at += widths[-1] + GAP_X
    return lefts, widths, of_tasks


def _label(task_id: str, width: float) -> str:
    fits = int((width - LABEL_MARGIN) / CHARACTER_WIDTH)
    return task_id if len(task_id) <= fits else task_id[: fits - 1] + "…"


def _path(points: Sequence[tuple[float, float]]) -> str:
    (x, y), *rest = points
    parts = [f"M{x:g} {y:g}"]
    for to_x, to_y in rest:
        half = (x + to_x) / 2
        level = to_y == y
        parts.append(
            f"H{to_x:g}" if level else f"C{half:g} {y:g} {half:g} {to_y:g} {to_x:g} {to_y:g}"
        )
        x, y = to_x, to_y
    return "".join(parts)
