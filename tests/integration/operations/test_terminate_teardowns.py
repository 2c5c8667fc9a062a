"""Where a whole run is asked to end, by a person or by its time limit, teardowns still take away what is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Run, TaskInstance
from scheduler_app.operations.mark import mark_run
from scheduler_app.operations.terminate import terminate_run, terminate_task_instance
from scheduler_app.queries.audit_visibility import compare
from scheduler_app.rules.definition import TaskDefinition, TriggerRule
from scheduler_app.rules.roles import Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler_app.transitions.attempt import Message
    from tests.world import World

WHY: dict[str, Any] = {"actor": "ada", "reason": "bad data"}
TASKS = (
    TaskDefinition(task_id="make", role=Role.SETUP),
    TaskDefinition(task_id="use", upstream=("make",), retries=3),
    TaskDefinition(task_id="more", upstream=("use",)),
    TaskDefinition(
        task_id="drop",
        upstream=("make", "more"),
        role=Role.TEARDOWN,
        trigger_rule=TriggerRule.ALL_DONE_SETUP_SUCCESS,
    ),
)


class Scene:
    """A run of the tasks, as far as it is wanted."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.run_id = world.run(world.flow("f", TASKS, run_timeout_s=3600.0))

    def claimed(self) -> Message:
        """A tick lets one task go, and a worker claims it."""
        self.world.tick(self.run_id)
        (message,), self.world.messages = self.world.messages, []
        assert self.world.claim(message) is not None
        return message

    def up_to(self, task_id: str) -> Message:
        """This task runs, and all before it have ended well."""
        for one in ("make", "use", "more", "drop"):
            message = self.claimed()
            if one == task_id:
                return message
            self.world.finish(message)
        raise AssertionError(task_id)

    def end(self) -> Run:
        for _ in range(2):  # what others moved meanwhile may be seen one look later
            self.world.tick(self.run_id)
        assert all(not one.differences for one in compare())
        return Run.objects.get(pk=self.run_id)


@pytest.fixture
def scene(world: World) -> Scene:
    return Scene(world)


def by_hand(scene: Scene) -> None:
    terminate_run(run_id=scene.run_id, **WHY)


def by_time(scene: Scene) -> None:
    scene.world.connection.execute("UPDATE run SET deadline_at = clock_timestamp()")
    scene.world.tick(scene.run_id)
    assert scene.world.messages == []


@pytest.mark.parametrize("ask", [by_hand, by_time])
def test_what_a_setup_made_is_taken_away_before_the_run_ends(
    scene: Scene, ask: Callable[[Scene], None]
) -> None:
    running = scene.up_to("use")
    ask(scene)
    assert scene.world.states(scene.run_id) == {
        "make": "success",
        "use": "running",
        "more": "failed",
        "drop": "none",
    }
    scene.world.finish(running, ok=False)
    drop = scene.claimed()
    ask(scene)  # asked again it is left alone as well
    assert Run.objects.get(pk=scene.run_id).is_active
    assert TaskInstance.objects.get(task_id="drop").stop_requested_at is None
    scene.world.finish(drop)
    run = scene.end()
    assert (run.state, scene.world.states(scene.run_id)["drop"]) == ("failed", "success")


@pytest.mark.parametrize("ask", [by_hand, by_time])
def test_where_its_setup_never_began_nothing_is_spared(
    scene: Scene, ask: Callable[[Scene], None]
) -> None:
    scene.world.tick(scene.run_id)
    scene.world.messages.clear()
    ask(scene)
    assert set(scene.world.states(scene.run_id).values()) == {"failed"}
    assert scene.end().state == "failed"


@pytest.mark.parametrize(("ok", "drop"), [(True, "success"), (False, "upstream_failed")])
def test_a_setup_that_was_running_decides_whether_its_teardown_runs(
    scene: Scene, ok: bool, drop: str
) -> None:
    """It may have ended well before its worker heard that it was to stop."""
    running = scene.up_to("make")
    by_hand(scene)
    assert scene.world.states(scene.run_id)["drop"] == "none"
    scene.world.finish(running, ok=ok)
    run = scene.world.play(scene.run_id)
    assert (run.state, scene.world.states(scene.run_id)["drop"]) == ("failed", drop)


def test_the_plan_says_what_is_spared_and_how_to_stop_it_all_the_same(scene: Scene) -> None:
    running = scene.up_to("use")
    plan = terminate_run(run_id=scene.run_id, actor="ada", dry_run=True)
    assert [one.task_id for one in plan.included] == ["use", "more"]
    (spared,) = plan.excluded
    assert spared.task_id == "drop"
    assert "takes away what a setup made" in spared.effect
    by_hand(scene)
    terminate_task_instance(ti_id=spared.id, **WHY)
    assert scene.world.states(scene.run_id)["drop"] == "failed"
    scene.world.finish(running, ok=False)
    assert scene.end().state == "failed"


@pytest.mark.parametrize("state", ["success", "failed"])
def test_a_marked_run_waits_for_a_deferred_teardown(scene: Scene, state: str) -> None:
    drop = scene.up_to("drop")
    trigger_id = scene.world.defer(drop)
    mark_run(run_id=scene.run_id, state=state, **WHY)
    assert scene.end().is_active
    scene.world.fire(trigger_id)
    run = scene.world.play(scene.run_id)
    assert (run.state, scene.world.states(scene.run_id)["drop"]) == (state, "success")
