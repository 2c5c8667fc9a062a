"""Callbacks of transactional groups: with each move of the group, once, and not for what a person did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils import timezone

from scheduler_app.models import Attempt, GroupAttempt
from scheduler_app.operations.terminate import terminate_task_instance
from scheduler_app.rules.definition import GroupDefinition, GroupRetry, TaskDefinition

if TYPE_CHECKING:
    from tests.world import World

EVERY: dict[str, tuple[str, ...]] = {
    f"on_{on}": ("tell", "count") for on in ("retry", "success", "failure")
}


def _begun(world: World, *, delay_s: float = 0.0) -> int:
    tasks = (TaskDefinition(task_id="a", group="pay"), TaskDefinition(task_id="b", group="pay"))
    groups = (
        GroupDefinition(
            group_id="pay", retry=GroupRetry(max_attempts=2, delay_s=delay_s), callbacks=EVERY
        ),
    )
    return world.run(world.flow("f", tasks, groups=groups))


def _called(run_id: int) -> list[tuple[str, str, int]]:
    rows = Attempt.objects.filter(run_id=run_id, kind="callback").order_by("fence")
    return [
        (row.callback["on"], row.callback["group"], row.callback["index"])
        for row in rows
        if row.callback
    ]


def _fail_once(world: World, run_id: int) -> None:
    world.tick(run_id)
    world.serve(failing=["a"])
    for _ in range(3):
        world.tick(run_id)


def test_a_group_tells_that_it_is_retried_and_that_it_succeeded_once_each(world: World) -> None:
    run_id = _begun(world)
    _fail_once(world, run_id)
    assert _called(run_id) == [("on_retry", "pay", 0), ("on_retry", "pay", 1)]
    assert world.play(run_id).state == "success"
    for _ in range(3):
        world.tick(run_id)
    assert _called(run_id)[2:] == [("on_success", "pay", 0), ("on_success", "pay", 1)]
    row = Attempt.objects.filter(kind="callback").order_by("fence").first()
    assert row is not None
    assert (row.state, row.ti_id, row.shard, row.lease_token) == (
        "issued",
        None,
        3,
        world.leases.terms()[3],
    )
    assert row.callback is not None
    assert "a failed." in row.callback["reason"]


def test_a_group_that_waits_for_its_retry_tells_so_when_it_begins_to_wait(world: World) -> None:
    run_id = _begun(world, delay_s=3600)
    _fail_once(world, run_id)
    assert [on for on, _, _ in _called(run_id)] == ["on_retry", "on_retry"]
    GroupAttempt.objects.update(retry_at=timezone.now())
    for _ in range(3):
        world.tick(run_id)
    assert GroupAttempt.objects.get(is_current=True).number == 2
    assert len(_called(run_id)) == 2


def test_a_group_that_is_given_up_tells_its_failure_once(world: World) -> None:
    run_id = _begun(world)
    for _ in range(2):
        _fail_once(world, run_id)
    assert [on for on, _, index in _called(run_id) if index == 0] == ["on_retry", "on_failure"]
    assert world.play(run_id).state == "failed"
    assert len(_called(run_id)) == 4


def test_a_group_that_a_person_ended_tells_nobody(world: World) -> None:
    run_id = _begun(world)
    world.tick(run_id)
    message = next(one for one in world.messages)
    terminate_task_instance(ti_id=message.ti_id, actor="ada", reason="a wrong input")
    for message in list(world.messages)[1:]:
        if world.claim(message) is not None:
            world.finish(message)
    for _ in range(3):
        world.tick(run_id)
    assert _called(run_id) == []


def test_flows_without_such_callbacks_have_the_stored_picture_of_before() -> None:
    from scheduler_app.rules.definition import FlowDefinition, from_dict, to_dict  # noqa: PLC0415

    task = (TaskDefinition(task_id="a", group="pay"),)
    plain = FlowDefinition(flow_id="f", tasks=task, groups=(GroupDefinition(group_id="pay"),))
    (group,) = to_dict(plain)["groups"]
    assert "callbacks" not in group
    told: Any = FlowDefinition(
        flow_id="f", tasks=task, groups=(GroupDefinition(group_id="pay", callbacks=EVERY),)
    )
    assert from_dict(to_dict(told)) == told
