"""Reports on freezing and pausing, replayed; each test carries the report's id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler_app.models import Attempt, Flow, Run, TaskInstance
from scheduler_app.operations.freeze import freeze
from scheduler_app.operations.pause_flow import set_paused
from scheduler_app.operations.thaw import thaw
from scheduler_app.operations.trigger_run import trigger_run
from scheduler_app.queries import task_instances, why
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules.definition import TaskDefinition
from tests.world import World, chain

if TYPE_CHECKING:
    from django.test import Client


def test_b303_a_pause_lets_runs_go_on_and_a_freeze_says_who_holds_what_since_when(
    world: World, api: Client
) -> None:
    """A run half way is paused: it goes on. Frozen, every view says by whom, since when and why."""
    flow = world.flow("f", chain("a", "b", "c"))
    run_id = world.run(flow)
    world.tick(run_id)
    world.serve()
    set_paused(flow_id="f", is_paused=True, actor="ada", reason="no new ones")
    by_hand = trigger_run(flow_id="f", actor="ada")
    world.tick(run_id, by_hand.id)
    assert len(world.messages) == 2, "the pause is for the schedule's new runs alone"
    world.serve()
    freeze(scope_kind="flow", scope_id="f", actor="ada", reason="look first")
    late = trigger_run(flow_id="f", actor="ada")
    world.tick(run_id, by_hand.id, late.id)
    assert world.messages == []
    for run in (run_id, by_hand.id, late.id):
        assert api.get(f"/api/v1/runs/{run}/").json()["state"] == "frozen"
    ti = TaskInstance.objects.get(run_id=run_id, task_id="c")
    told = why.explain(EVERYTHING, task_instances.one(EVERYTHING, ti.id))
    assert told.rule == "frozen"
    for word in ("ada", "look first", "since"):
        assert word in told.sentence
    thaw(scope_kind="flow", scope_id="f", actor="ada", reason="looked")
    assert Flow.objects.get(pk="f").is_paused, "the other switch stays as it was"
    for run in (run_id, by_hand.id, late.id):
        assert world.play(run).state == "success"


def test_b305_queued_tasks_are_refused_while_frozen_and_no_retry_is_used(world: World) -> None:
    """Ten deliveries are with the broker when the flow is frozen: none starts, and none is lost."""
    tasks = [TaskDefinition(task_id=f"t{n}", retries=0) for n in range(10)]
    run_id = world.run(world.flow("f", tasks, max_active_tasks=10))
    world.queue_slots = {"default": 10}
    world.tick(run_id)
    messages = list(world.messages)
    assert len(messages) == 10
    freeze(scope_kind="flow", scope_id="f", actor="ada", reason="look first")
    assert [world.claim(message) for message in messages] == [None] * 10
    world.tick(run_id)
    thaw(scope_kind="flow", scope_id="f", actor="ada", reason="looked")
    assert world.play(run_id).state == "success"
    attempts = Attempt.objects.filter(run_id=run_id)
    seen: list[Any] = sorted(attempts.values_list("try_number", "state", "is_accepted"))
    assert seen == [(1, "ended", True)] * 10, "the same attempts, in their first try"
    assert Run.objects.get(pk=run_id).state == "success"
