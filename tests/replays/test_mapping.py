"""Replays of reports on dynamic mapping."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Run, TaskInstance
from scheduler_app.rules.definition import TaskDefinition
from scheduler_app.rules.mapping import Argument, Kind, MapOver, Source

if TYPE_CHECKING:
    from tests.workshop import Workshop
    from tests.world import World

pytestmark = pytest.mark.django_db(transaction=True)


def mapped(task_id: str, over: str, **options: Any) -> TaskDefinition:
    """A task that maps over the result of another."""
    source = Source(kind=Kind.RESULT, task_id=over)
    upstream = tuple(sorted({over, *options.pop("upstream", ())}))
    return TaskDefinition(
        task_id=task_id,
        upstream=upstream,
        mapped=MapOver(arguments=(Argument(name="x", source=source),)),
        **options,
    )


def states(run_id: int, task_id: str) -> dict[int, str]:
    """State by map index."""
    rows = TaskInstance.objects.filter(run_id=run_id, task_id=task_id)
    return dict(rows.values_list("map_index", "state"))


@pytest.mark.parametrize("length", [3, 5])
def test_b103_a_chain_of_empty_maps_ends_well(world: World, length: int) -> None:
    tasks = [TaskDefinition(task_id="m0")]
    tasks += [mapped(f"m{n}", f"m{n - 1}") for n in range(1, length + 1)]
    run_id = world.run(world.flow("f", [TaskDefinition(task_id="before"), *tasks]))
    assert world.play(run_id, results={"m0": []}).state == "success"
    assert {states(run_id, f"m{n}")[-1] for n in range(1, length + 1)} == {"skipped"}


def test_b159_nothing_is_skipped_before_what_is_mapped_over_has_ended(world: World) -> None:
    tasks = [
        TaskDefinition(task_id="a"),
        mapped("b", "a"),
        mapped("c", "b"),
        TaskDefinition(task_id="d"),
        TaskDefinition(task_id="e", upstream=("c", "d")),
    ]
    run_id = world.run(world.flow("f", tasks))
    for _ in range(30):
        world.tick(run_id)
        assert "skipped" not in TaskInstance.objects.values_list("state", flat=True)
        world.serve(results={"a": [1, 2], "b": 7})
        if not Run.objects.get(pk=run_id).is_active:
            break
    assert Run.objects.get(pk=run_id).state == "success"
    assert states(run_id, "c") == {0: "success", 1: "success"}
    assert states(run_id, "e") == {-1: "success"}


def test_b161_what_comes_after_an_empty_group_runs_with_an_empty_list(
    world: World, workshop: Workshop
) -> None:
    version = workshop.flow(
        """
        from scheduler_app.authoring import flow, group, task

        @task
        def rows():
            return []

        @task
        def each(x):
            return x

        @group
        def g(x):
            return each(x)

        @task(trigger_rule="all_done")
        def t(found):
            return {"found": found}

        @flow
        def f():
            t(g.map(rows()))
        """
    )
    run_id = workshop.run(version)
    for _ in range(6):
        world.tick(run_id)
        messages, world.messages = world.messages, []
        for message in messages:
            workshop.deliver(message)
    assert states(run_id, "g.each") == {-1: "skipped"}
    ti = TaskInstance.objects.get(run_id=run_id, task_id="t")
    assert ti.state == "success"
    assert ti.attempts.get().result == {"found": []}


def test_b163_without_its_source_a_task_is_given_up_whatever_its_rule(world: World) -> None:
    tasks = [TaskDefinition(task_id="a"), mapped("b", "a", trigger_rule="all_done")]
    run_id = world.run(world.flow("f", tasks))
    assert world.play(run_id, failing=["a"]).state == "failed"
    assert states(run_id, "b") == {-1: "upstream_failed"}


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        ("list(range(1025))", ["list of 1,025 elements", "the limit is 1,024"]),
        ("'abc'", ["type str of length 3", "1,024"]),
        ("None", ["returned nothing"]),
    ],
)
def test_b165_a_source_that_is_too_long_or_no_list_fails_and_says_the_limit(
    workshop: Workshop, returned: str, told: list[str]
) -> None:
    message = workshop.issue_one(
        f"""
        from scheduler_app.authoring import flow, task

        @task
        def t():
            return {returned}

        @task
        def each(x): ...

        @flow
        def f():
            each.map(t())
        """
    )
    workshop.deliver(message)
    attempt = workshop.attempt(message)
    assert attempt.outcome == "failed"
    assert all(one in (attempt.outcome_reason or "") for one in told)
