from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules import graph
from scheduler_app.rules.definition import TaskDefinition, WeightRule
from scheduler_app.rules.weights import HIGHEST, LOWEST, weighed

if TYPE_CHECKING:
    from collections.abc import Callable


def diamond(rule: str, numbers: tuple[int, int, int, int] = (1, 2, 3, 4)) -> dict[str, int]:
    """Priorities of a -> (b, c) -> d."""
    above: dict[str, tuple[str, ...]] = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}
    tasks = [
        TaskDefinition(task_id=one, upstream=above[one], priority=number, weight_rule=rule)
        for one, number in zip(above, numbers, strict=True)
    ]
    return {task.task_id: task.priority for task in weighed(tasks)}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("absolute", {"a": 1, "b": 2, "c": 3, "d": 4}),
        ("downstream", {"a": 10, "b": 6, "c": 7, "d": 4}),
        ("upstream", {"a": 1, "b": 3, "c": 4, "d": 10}),
    ],
)
def test_each_task_that_is_reached_counts_once(rule: str, expected: dict[str, int]) -> None:
    assert diamond(rule) == expected


def test_sums_end_at_what_can_be_stored() -> None:
    assert diamond("downstream", (1, HIGHEST, HIGHEST, 0))["a"] == HIGHEST
    assert diamond("upstream", (LOWEST, LOWEST, 0, 0))["d"] == LOWEST


def test_the_number_as_written_is_kept() -> None:
    (task,) = weighed([TaskDefinition(task_id="t", priority=7, weight_rule="upstream")])
    assert (task.own_priority, task.priority) == (7, 7)


@st.composite
def _graphs(draw: Callable[..., int]) -> list[TaskDefinition]:
    count = draw(st.integers(1, 12))
    tasks = []
    for place in range(count):
        bits = draw(st.integers(0, 2**place - 1)) if place else 0
        tasks.append(
            TaskDefinition(
                task_id=f"t{place:02}",
                upstream=tuple(f"t{one:02}" for one in range(place) if bits >> one & 1),
                priority=draw(st.integers(-5, 5)),
                weight_rule=list(WeightRule)[draw(st.integers(0, 2))],
            )
        )
    return tasks


@given(_graphs())
def test_the_sums_are_those_of_the_closures(tasks: list[TaskDefinition]) -> None:
    upstream = {task.task_id: task.upstream for task in tasks}
    own = {task.task_id: task.priority for task in tasks}
    for task in weighed(tasks):
        others: frozenset[str] = frozenset()
        if task.weight_rule == WeightRule.DOWNSTREAM:
            others = graph.downstream_closure(upstream, [task.task_id])
        elif task.weight_rule == WeightRule.UPSTREAM:
            others = graph.upstream_closure(upstream, [task.task_id])
        assert task.priority == own[task.task_id] + sum(own[other] for other in others)
