"""Setups, teardowns, branches and gates in real ticks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scheduler_app.models import TaskInstance
from scheduler_app.rules.definition import GroupDefinition, TaskDefinition, TriggerRule
from scheduler_app.rules.roles import Picks, Role

if TYPE_CHECKING:
    from tests.world import World

ALL_DONE_SETUP = TriggerRule.ALL_DONE_SETUP_SUCCESS


def resource(*, fails_run: bool = False) -> tuple[TaskDefinition, ...]:
    """A setup, two pieces of work one after the other, and the teardown."""
    return (
        TaskDefinition(task_id="make", role=Role.SETUP),
        TaskDefinition(task_id="use", upstream=("make",)),
        TaskDefinition(task_id="more", upstream=("use",)),
        TaskDefinition(
            task_id="drop",
            upstream=("make", "more"),
            role=Role.TEARDOWN,
            trigger_rule=ALL_DONE_SETUP,
            fails_run=fails_run,
        ),
    )


def test_a_teardown_runs_though_the_work_failed_and_does_not_decide_the_run(world: World) -> None:
    run_id = world.run(world.flow("f", resource()))
    run = world.play(run_id, failing=["use"])
    assert world.states(run_id) == {
        "make": "success",
        "use": "failed",
        "more": "upstream_failed",
        "drop": "success",
    }
    assert run.state == "failed"


@pytest.mark.parametrize(("fails_run", "state"), [(False, "success"), (True, "failed")])
def test_a_teardown_that_fails_fails_its_run_only_if_it_is_told_to(
    world: World, fails_run: bool, state: str
) -> None:
    run_id = world.run(world.flow("f", resource(fails_run=fails_run)))
    assert world.play(run_id, failing=["drop"]).state == state


def test_without_its_setup_nothing_runs_and_nothing_is_taken_away(world: World) -> None:
    run_id = world.run(world.flow("f", resource()))
    run = world.play(run_id, failing=["make"])
    assert world.states(run_id) == {
        "make": "failed",
        "use": "upstream_failed",
        "more": "upstream_failed",
        "drop": "upstream_failed",
    }
    assert run.state == "failed"


def test_a_teardown_waits_for_everything_between_its_setup_and_itself(world: World) -> None:
    tasks = (
        TaskDefinition(task_id="make", role=Role.SETUP),
        TaskDefinition(task_id="slow", upstream=("make",)),
        TaskDefinition(task_id="quick", upstream=("make",)),
        TaskDefinition(
            task_id="last", upstream=("quick", "slow"), trigger_rule=TriggerRule.ONE_SUCCESS
        ),
        TaskDefinition(
            task_id="drop",
            upstream=("last", "make"),
            role=Role.TEARDOWN,
            trigger_rule=ALL_DONE_SETUP,
        ),
    )
    run_id = world.run(world.flow("f", tasks))
    world.tick(run_id)
    world.serve()
    world.tick(run_id)
    slow = next(m for m in world.messages if _task(m.ti_id) == "slow")
    world.messages = [m for m in world.messages if m is not slow]
    world.serve()  # quick
    world.tick(run_id)
    world.serve()  # last
    world.tick(run_id)
    assert world.messages == []
    assert world.states(run_id)["drop"] == "none", "slow may still use what was made"
    assert world.claim(slow) is not None
    world.finish(slow)
    assert world.play(run_id).state == "success"
    assert world.states(run_id)["drop"] == "success"


def _task(ti_id: int) -> str:
    return TaskInstance.objects.get(pk=ti_id).task_id


def branching() -> tuple[TaskDefinition, ...]:
    """A branch before two ways that come together, and before a group."""
    return (
        TaskDefinition(task_id="choose", picks=Picks.BRANCH),
        TaskDefinition(task_id="g.first", upstream=("choose",), group="g"),
        TaskDefinition(task_id="g.second", upstream=("g.first",), group="g"),
        TaskDefinition(task_id="left", upstream=("choose",)),
        TaskDefinition(task_id="right", upstream=("choose",)),
        TaskDefinition(
            task_id="join",
            upstream=("choose", "left", "right"),
            trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
        ),
    )


@pytest.mark.parametrize(
    ("picked", "skipped"),
    [
        (["left"], {"right", "g.first", "g.second"}),
        (["left", "g"], {"right"}),
        (["g"], {"left", "right", "join"}),
        ([], {"left", "right", "join", "g.first", "g.second"}),
        (["join"], {"left", "right", "g.first", "g.second"}),
    ],
)
def test_a_branch_goes_on_with_what_it_picked_and_what_comes_after_that(
    world: World, picked: list[str], skipped: set[str]
) -> None:
    flow = world.flow("f", branching(), groups=(GroupDefinition(group_id="g"),))
    run_id = world.run(flow)
    assert world.play(run_id, results={"choose": picked}).state == "success"
    states = world.states(run_id)
    assert {task_id for task_id, state in states.items() if state == "skipped"} == skipped
    assert {s for t, s in states.items() if t not in skipped} == {"success"}


def test_another_scheduler_reads_what_was_picked(world: World) -> None:
    run_id = world.run(world.flow("f", branching()[:1] + branching()[3:5]))
    world.tick(run_id)
    world.serve(results={"choose": ["right"]})
    world.ticker.forget([run_id])
    world.play(run_id)
    assert world.states(run_id) == {"choose": "success", "left": "skipped", "right": "success"}


@pytest.mark.parametrize(
    ("picks", "answer", "after", "cleanup"),
    [
        (Picks.GATE_ALL, False, "skipped", "skipped"),
        (Picks.GATE, False, "skipped", "success"),
        (Picks.GATE_ALL, True, "success", "success"),
    ],
)
def test_a_gate_that_is_shut_skips_what_is_behind_it(
    world: World, picks: Picks, answer: bool, after: str, cleanup: str
) -> None:
    tasks = (
        TaskDefinition(task_id="gate", picks=picks),
        TaskDefinition(task_id="after", upstream=("gate",)),
        TaskDefinition(task_id="cleanup", upstream=("after",), trigger_rule=TriggerRule.ALL_DONE),
        TaskDefinition(
            task_id="drop",
            upstream=("cleanup",),
            role=Role.TEARDOWN,
            trigger_rule=ALL_DONE_SETUP,
        ),
    )
    run_id = world.run(world.flow("f", tasks))
    assert world.play(run_id, results={"gate": answer}).state == "success"
    assert world.states(run_id) == {
        "gate": "success",
        "after": after,
        "cleanup": cleanup,
        "drop": "success",
    }
