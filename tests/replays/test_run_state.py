"""Reports on the states of runs, and on run-level retries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.test import Client

from scheduler_app.models import Attempt, Review, Run, TaskInstance
from scheduler_app.operations.mark import mark_run
from scheduler_app.operations.retry_run import cancel_retry
from scheduler_app.operations.terminate import terminate_run
from scheduler_app.rules.definition import TaskDefinition, TriggerRule
from scheduler_app.rules.roles import Role
from scheduler_app.rules.run_retry import RunRetryPolicy
from scheduler_app.scheduler.run_retries import begin_due
from scheduler_app.scheduler.versions import Versions
from tests.replays import saying
from tests.world import chain

if TYPE_CHECKING:
    from tests.world import World

WHY: dict[str, Any] = {"actor": "ana", "reason": "wrong date"}


def begin(world: World) -> set[int]:
    """One sweep of the scheduler over runs that wait for their next run attempt."""
    moved, _ = begin_due(
        world.connection, leases=world.leases, terms=world.leases.terms(), versions=Versions()
    )
    return moved


def taken(world: World, run_id: int) -> dict[str, Any]:
    """A tick, after which a worker has claimed everything; the messages by task."""
    world.tick(run_id)
    messages, world.messages = world.messages, []
    for message in messages:
        assert world.claim(message) is not None
    return {TaskInstance.objects.get(pk=m.ti_id).task_id: m for m in messages}


def test_b103_a_chain_of_tasks_that_are_skipped_ends_well_however_long(world: World) -> None:
    """There are no mapped tasks yet; what an empty map leaves is a skipped instance, and it cascades."""
    for length in (3, 5):
        tasks = chain("source", *(f"map_{n}" for n in range(length)))
        run_id = world.run(world.flow(f"f{length}", tasks))
        messages = taken(world, run_id)
        world.finish(messages["source"])
        TaskInstance.objects.filter(run_id=run_id, task_id="map_0").update(
            state="skipped", is_open=False, ended_at="2026-01-01T00:00Z"
        )
        world.ticker.forget([run_id])
        run = world.play(run_id)
        assert run.state == "success"
        states = world.states(run_id)
        assert {states[f"map_{n}"] for n in range(length)} == {"skipped"}


def test_b105_a_run_that_is_marked_keeps_the_mark_and_nothing_of_it_starts(world: World) -> None:
    tasks = [TaskDefinition(task_id="running"), TaskDefinition(task_id="queued")]
    run_id = world.run(world.flow("f", tasks))
    world.tick(run_id)
    by_task = {TaskInstance.objects.get(pk=m.ti_id).task_id: m for m in world.messages}
    world.messages.clear()
    assert world.claim(by_task["running"]) is not None
    mark_run(run_id=run_id, state="success", **WHY)
    assert world.claim(by_task["queued"]) is None, "what was queued never starts"
    stopped = Attempt.objects.get(pk=by_task["running"].attempt_id)
    assert stopped.stop_requested_at is not None
    world.finish(by_task["running"], ok=False)
    world.tick(run_id)
    run = Run.objects.get(pk=run_id)
    assert (run.state, run.retry_at) == ("success", None)
    world.tick(run_id)
    assert world.messages == []
    saying.assert_nothing_hidden()


def test_b107_a_failure_in_the_middle_of_a_run_that_succeeds_is_shown(world: World) -> None:
    """Leaves decide, as the glossary says; the page of the run names the failure all the same."""
    end = TaskDefinition(task_id="end", upstream=("middle",), trigger_rule=TriggerRule.ALL_DONE)
    run_id = world.run(world.flow("f", (*chain("start", "middle"), end)))
    run = world.play(run_id, failing=["middle"])
    assert run.state == "success"
    client = Client()
    client.force_login(get_user_model().objects.create_user("ana"))
    page = client.get(f"/runs/{run_id}/").content.decode()
    assert "First failure" in page
    assert "middle" in page


def test_b109_a_run_that_is_marked_ends_no_sooner_than_its_teardown(world: World) -> None:
    work = TaskDefinition(task_id="work")
    down = TaskDefinition(
        task_id="down",
        upstream=("work",),
        trigger_rule=TriggerRule.ALL_DONE_SETUP_SUCCESS,
        role=Role.TEARDOWN,
    )
    run_id = world.run(world.flow("f", (work, down)))
    world.finish(taken(world, run_id)["work"])
    messages = taken(world, run_id)
    mark_run(run_id=run_id, state="success", **WHY)
    world.tick(run_id)
    assert Run.objects.get(pk=run_id).is_active, "its teardown runs"
    world.finish(messages["down"])
    world.tick(run_id)
    assert Run.objects.get(pk=run_id).state == "success"


def test_b111_a_run_whose_first_task_waits_for_its_retry_is_running(world: World) -> None:
    run_id = world.run(world.flow("f", chain("a", "b", retries=1)))
    world.finish(taken(world, run_id)["a"], ok=False, retry_after_s=0)
    run = Run.objects.get(pk=run_id)
    assert (run.state, world.states(run_id)["a"]) == ("running", "up_for_retry")
    assert world.play(run_id).state == "success"


def test_b113_a_run_that_is_ended_while_it_waits_for_a_retry_is_over_at_once(
    world: World,
) -> None:
    """For a task's retry and for a run's: neither comes back when its time has passed."""
    flow = world.flow(
        "f", chain("a", retries=1), max_active_runs=1, run_retry=RunRetryPolicy(max_attempts=3)
    )
    first, second = world.run(flow, "r1"), world.run(flow, "r2")
    world.finish(taken(world, first)["a"], ok=False, retry_after_s=0.05)
    terminate_run(run_id=first, **WHY)
    world.tick(first)
    run = Run.objects.get(pk=first)
    assert (run.state, run.retry_at, run.is_active) == ("failed", None, False)
    world.tick(second)
    assert Run.objects.get(pk=second).state == "running", "its place is free"
    world.connection.execute("SELECT pg_sleep(0.1)")
    world.tick(first)
    assert begin(world) == set()
    assert Attempt.objects.filter(run_id=first).count() == 1

    other = world.flow("g", chain("a"), run_retry=RunRetryPolicy(max_attempts=3))
    run = world.play(world.run(other), failing=["a"])
    assert run.retry_at is not None
    cancel_retry(run_id=run.pk, **WHY)
    assert begin(world) == set()
    assert Run.objects.get(pk=run.pk).run_attempt == 1


def test_b115_a_run_that_a_person_ended_is_not_begun_again_by_its_policy(world: World) -> None:
    policy = RunRetryPolicy(max_attempts=2)
    run_id = world.run(world.flow("f", chain("a"), run_retry=policy))
    messages = taken(world, run_id)
    terminate_run(run_id=run_id, **WHY)
    world.finish(messages["a"], ok=False)
    world.tick(run_id)
    run = Run.objects.get(pk=run_id)
    assert (run.state, run.retry_at) == ("failed", None)
    assert run.retry_reason == "Not retried: ana terminated the run: wrong date"
    assert begin(world) == set()
    assert not Review.objects.exists(), "nobody is asked about what a person ended"
