"""Reports on trigger rules and skips."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import TaskInstance
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.queries.why import why_of
from scheduler_app.rules.definition import GroupDefinition, TaskDefinition, TriggerRule
from scheduler_app.rules.roles import Picks
from tests.replays import saying
from tests.world import chain

if TYPE_CHECKING:
    from tests.world import World


def claimed(world: World, run_id: int) -> dict[str, Any]:
    """A tick, after which a worker has claimed everything; the messages by task."""
    world.tick(run_id)
    messages, world.messages = world.messages, []
    for message in messages:
        assert world.claim(message) is not None
    return {TaskInstance.objects.get(pk=m.ti_id).task_id: m for m in messages}


@pytest.mark.parametrize("rule", [rule for rule in TriggerRule if rule != TriggerRule.ALWAYS])
def test_b151_nothing_is_said_of_a_task_of_a_group_before_the_sensor_has_ended(
    world: World, rule: TriggerRule
) -> None:
    tasks = (
        TaskDefinition(task_id="sensor"),
        TaskDefinition(task_id="g.check", upstream=("sensor",), trigger_rule=rule, group="g"),
    )
    run_id = world.run(world.flow("f", tasks, groups=(GroupDefinition(group_id="g"),)))
    message = claimed(world, run_id)["sensor"]
    for _ in range(3):
        world.tick(run_id)
    assert world.states(run_id) == {"sensor": "running", "g.check": "none"}
    world.finish(message, ok=False)
    world.play(run_id)
    starts = {"all_failed", "all_done", "all_done_setup_success", "one_failed", "one_done"}
    starts |= {"none_skipped"}
    skips = {"all_skipped"}
    expected = "success" if rule in starts else "skipped" if rule in skips else "upstream_failed"
    assert world.states(run_id)["g.check"] == expected


@pytest.mark.parametrize(
    ("failing", "expected", "run_state"),
    [(["p", "q"], "upstream_failed", "failed"), ([], "skipped", "success")],
)
def test_b153_one_success_does_not_hide_that_all_before_it_failed(
    world: World, failing: list[str], expected: str, run_state: str
) -> None:
    """Where all were skipped, it is too."""
    tasks = (
        TaskDefinition(task_id="gate", picks=Picks.GATE),
        TaskDefinition(task_id="p", upstream=("gate",)),
        TaskDefinition(task_id="q", upstream=("gate",)),
        TaskDefinition(task_id="one", upstream=("p", "q"), trigger_rule=TriggerRule.ONE_SUCCESS),
    )
    run_id = world.run(world.flow("f", tasks))
    run = world.play(run_id, failing=failing, results={"gate": bool(failing)})
    assert world.states(run_id)["one"] == expected
    assert run.state == run_state
    saying.assert_nothing_hidden()


@pytest.mark.parametrize("first_ok", [True, False])
def test_b155_what_comes_after_a_join_is_decided_by_its_end_alone(
    world: World, first_ok: bool
) -> None:
    """Whichever of its branches ends first, and however often it is looked at in between."""
    join = TaskDefinition(task_id="join", upstream=("p", "q"), trigger_rule=TriggerRule.ALL_DONE)
    after = TaskDefinition(task_id="after", upstream=("join",))
    run_id = world.run(world.flow("f", (*chain("p"), *chain("q"), join, after)))
    messages = claimed(world, run_id)
    world.finish(messages["p"], ok=first_ok)
    for _ in range(3):
        world.tick(run_id)
    assert (world.states(run_id)["join"], world.states(run_id)["after"]) == ("none", "none")
    world.finish(messages["q"], ok=not first_ok)
    run = world.play(run_id)
    assert (world.states(run_id)["join"], world.states(run_id)["after"]) == ("success", "success")
    assert run.state == "success"


@pytest.mark.parametrize(
    ("picks", "join", "end"), [(Picks.GATE_ALL, "skipped", "picked"), (Picks.GATE, "success", None)]
)
def test_b157_a_short_circuit_skips_all_that_follows_or_only_the_next_and_says_so(
    world: World, picks: Picks, join: str, end: str | None
) -> None:
    """Which of the two is an option, and documented; why a task was skipped names the gate."""
    tasks = (
        TaskDefinition(task_id="gate", picks=picks),
        TaskDefinition(task_id="next", upstream=("gate",)),
        TaskDefinition(task_id="join", upstream=("next",), trigger_rule=TriggerRule.NONE_FAILED),
    )
    run_id = world.run(world.flow("f", tasks))
    world.play(run_id, results={"gate": False})
    assert world.states(run_id) == {"gate": "success", "next": "skipped", "join": join}
    found = {one.task_id: why_of(EVERYTHING, one.pk) for one in TaskInstance.objects.all()}
    assert found["next"].rule == "picked"
    assert found["next"].sentence == "It was skipped since gate did not let it go on."
    assert end is None or found["join"] == found["next"]
