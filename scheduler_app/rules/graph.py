"""The graph of a flow: order, cycles and closures. ``upstream`` maps a task to its direct upstream."""

from __future__ import annotations

from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from scheduler_app.rules.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


def topological_order(upstream: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """Every task after all of its upstream; of those that could come next, the lowest id.

    Raises ``DefinitionError`` naming a cycle.
    """
    if cycle := find_cycle(upstream):
        shown = " -> ".join(cycle)
        raise DefinitionError(
            f"The tasks wait for each other: {shown}.",
            cycle=list(cycle),
            remedy="Remove one of these dependencies.",
        )
    below = downstream_of(upstream)
    missing = {task_id: len(known_upstream(upstream, task_id)) for task_id in upstream}
    free = [task_id for task_id, number in missing.items() if not number]
    heapify(free)
    order: list[str] = []
    while free:
        task_id = heappop(free)
        order.append(task_id)
        for child in below[task_id]:
            missing[child] -= 1
            if not missing[child]:
                heappush(free, child)
    return tuple(order)


def find_cycle(upstream: Mapping[str, Collection[str]]) -> tuple[str, ...] | None:
    """A cycle from its lowest id round to the same id; null when there is none.

    Each task of it is followed by one that waits for it.
    """
    try:
        TopologicalSorter({t: sorted(upstream[t]) for t in sorted(upstream)}).prepare()
    except CycleError as error:
        walked = list(error.args[1])[:-1]
        first = walked.index(min(walked))
        return (*walked[first:], *walked[:first], walked[first])
    return None


def upstream_closure(
    upstream: Mapping[str, Collection[str]], task_ids: Iterable[str]
) -> frozenset[str]:
    """Every task that one of these waits for, directly or not.

    The given tasks are in it only where one of them waits for another.
    """
    return _reached(upstream, task_ids)


def downstream_closure(
    upstream: Mapping[str, Collection[str]], task_ids: Iterable[str]
) -> frozenset[str]:
    """Every task that waits for one of these, directly or not.

    The given tasks are in it only where one of them waits for another.
    """
    return _reached(downstream_of(upstream), task_ids)


def leaves(upstream: Mapping[str, Collection[str]]) -> frozenset[str]:
    """The tasks that no other task waits for."""
    return frozenset(upstream).difference(*upstream.values())


def downstream_of(upstream: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """The direct downstream of every task, each once."""
    below: defaultdict[str, list[str]] = defaultdict(list, {task_id: [] for task_id in upstream})
    for task_id in upstream:
        for above in known_upstream(upstream, task_id):
            below[above].append(task_id)
    return below


def known_upstream(upstream: Mapping[str, Collection[str]], task_id: str) -> set[str]:
    """The direct upstream of a task that is in the graph itself."""
    return {above for above in upstream[task_id] if above in upstream}


def _reached(edges: Mapping[str, Collection[str]], starts: Iterable[str]) -> frozenset[str]:
    reached: set[str] = set()
    open_ids = [following for start in starts for following in edges.get(start, ())]
    while open_ids:
        task_id = open_ids.pop()
        if task_id not in reached:
            reached.add(task_id)
            open_ids.extend(edges.get(task_id, ()))
    return frozenset(reached)
