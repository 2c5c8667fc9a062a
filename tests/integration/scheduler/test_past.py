"""Tasks that wait for the run before: ticks by hand over several runs of a flow."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scheduler_app.models import Run, TaskInstance
from scheduler_app.operations.clear import clear_task_instances
from scheduler_app.rules.definition import TaskDefinition, TriggerRule
from tests.world import chain

if TYPE_CHECKING:
    import pytest

    from scheduler_app.transitions.attempt import Message
    from tests.world import World


def three(world: World, *tasks: TaskDefinition) -> list[int]:
    """Three runs of a flow, one after the other by their logical dates."""
    flow = world.flow("f", tasks)
    return [world.run(flow, f"r{number}") for number in range(3)]


def names(world: World) -> set[tuple[str, str]]:
    """Run and task of each message that waits to be taken."""
    ids = [message.ti_id for message in world.messages]
    rows = TaskInstance.objects.filter(pk__in=ids)
    return set(rows.values_list("run__run_key", "task_id"))


def test_one_run_after_the_other(world: World) -> None:
    run_ids = three(world, *chain("a", depends_on_past=True))
    for number in range(3):
        world.tick(*run_ids)
        assert names(world) == {(f"r{number}", "a")}
        world.serve()
    world.tick(*run_ids)
    assert set(Run.objects.values_list("state", flat=True)) == {"success"}


def test_others_of_the_flow_do_not_wait(world: World) -> None:
    a, b = TaskDefinition(task_id="a", depends_on_past=True), TaskDefinition(task_id="b")
    run_ids = three(world, a, b)
    world.tick(*run_ids)
    assert names(world) == {("r0", "a"), ("r0", "b"), ("r1", "b"), ("r2", "b")}


def test_a_failure_holds_the_next_run_until_it_is_put_right_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler_app.scheduler.dispatch_attempts.WAIT_NOTED_AFTER_S", 0.0)
    run_ids = three(world, *chain("a", depends_on_past=True))
    world.tick(*run_ids)
    world.serve(failing=["a"])
    for _ in range(3):
        world.tick(*run_ids)
    assert not world.messages
    waiting = TaskInstance.objects.get(run_id=run_ids[1])
    assert waiting.wait is not None
    assert waiting.wait["code"] == "past_failed"
    assert "the run before, r0: there it is failed. Clear or mark that" in waiting.wait["detail"]
    failed = TaskInstance.objects.get(run_id=run_ids[0])
    clear_task_instances(ti_ids=[failed.pk], actor="ana", reason="r", dry_run=False)
    world.tick(*run_ids)
    assert names(world) == {("r0", "a")}
    world.serve()
    world.tick(*run_ids)
    assert names(world) == {("r1", "a")}
    # What waits for a retry goes on with what was let go, whatever becomes of the run before.
    world.serve()


def test_with_wait_for_downstream_what_comes_after_it_counts_too(world: World) -> None:
    a = TaskDefinition(task_id="a", wait_for_downstream=True)
    b = TaskDefinition(task_id="b", upstream=("a",))
    run_ids = three(world, a, b)
    seen = []
    for _ in range(4):
        world.tick(*run_ids)
        seen.append(names(world))
        world.serve()
    assert seen == [{("r0", "a")}, {("r0", "b")}, {("r1", "a")}, {("r1", "b")}]


def test_a_retry_does_not_wait_anew(world: World) -> None:
    run_ids = three(world, *chain("a", depends_on_past=True, retries=1, retry_delay_s=0))
    world.tick(*run_ids)
    world.serve()
    world.tick(*run_ids)
    message = world.messages.pop()
    assert world.claim(message) is not None
    world.finish(message, ok=False, retry_after_s=0)
    TaskInstance.objects.filter(run_id=run_ids[0]).update(state="failed")
    world.tick(*run_ids)
    assert names(world) == {("r1", "a")}


def test_what_is_skipped_does_not_wait_for_the_run_before(world: World) -> None:
    before, after = TaskDefinition(task_id="a"), TaskDefinition(task_id="b", upstream=("a",))
    after = replace(after, depends_on_past=True, trigger_rule=TriggerRule.ONE_FAILED)
    run_ids = three(world, before, after)
    world.tick(*run_ids)
    last = next(m for m in world.messages if name_of(m) == "r2")
    assert world.claim(last) is not None
    world.finish(last)
    world.messages.remove(last)
    world.tick(*run_ids)
    assert world.states(run_ids[2])["b"] == "skipped", (
        "its rule asks for a failure, and starts nothing"
    )
    assert world.states(run_ids[1])["b"] == "none"


def name_of(message: Message) -> str:
    return TaskInstance.objects.get(pk=message.ti_id).run.run_key
