"""Priorities that the graph gives: a task weighs what depends on it, or what it depends on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from scheduler_app.rules import graph
from scheduler_app.rules.definition import WeightRule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler_app.rules.definition import TaskDefinition

LOWEST: Final = -(2**31)  # what the database can store
HIGHEST: Final = 2**31 - 1


def weighed(tasks: Sequence[TaskDefinition]) -> tuple[TaskDefinition, ...]:
    """The tasks with the priorities that their weight rules make of the numbers as written.

    ``tasks`` in topological order; each task that is reached, by however many ways, counts once.
    Sums end at the bounds of what can be stored.
    """
    rules = {task.weight_rule for task in tasks}
    if rules <= {WeightRule.ABSOLUTE}:
        return tuple(tasks)
    upstream = {task.task_id: task.upstream for task in tasks}
    sums: dict[str, dict[str, int]] = {}
    if WeightRule.UPSTREAM in rules:
        sums[WeightRule.UPSTREAM] = _sums(tasks, upstream, [task.task_id for task in tasks])
    if WeightRule.DOWNSTREAM in rules:
        below = graph.downstream_of(upstream)
        backwards = [task.task_id for task in reversed(tasks)]
        sums[WeightRule.DOWNSTREAM] = _sums(tasks, below, backwards)
    return tuple(
        task
        if task.weight_rule == WeightRule.ABSOLUTE
        else replace(
            task,
            own_priority=task.priority,
            priority=max(LOWEST, min(HIGHEST, sums[task.weight_rule][task.task_id])),
        )
        for task in tasks
    )


def _sums(
    tasks: Iterable[TaskDefinition], nearest: Mapping[str, Iterable[str]], order: Iterable[str]
) -> dict[str, int]:
    """By task, its number and those of all that it reaches. ``order``: what is reached comes first.

    A set of tasks is the bits of one whole number, so that wide and deep flows stay cheap.
    """
    bit = {task.task_id: 1 << place for place, task in enumerate(tasks)}
    of_number: dict[int, int] = {}
    for task in tasks:
        of_number[task.priority] = of_number.get(task.priority, 0) | bit[task.task_id]
    reached: dict[str, int] = {}
    for task_id in order:
        found = bit[task_id]
        for other in nearest[task_id]:
            found |= reached.get(other, 0)
        reached[task_id] = found
    return {
        task_id: sum(
            number * (found & having).bit_count() for number, having in of_number.items() if number
        )
        for task_id, found in reached.items()
    }
