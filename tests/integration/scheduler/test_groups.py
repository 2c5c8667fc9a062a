"""Transactional groups: one unit, retried whole, seen outside only when all of it succeeded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Attempt, GroupAttempt, Run, TaskInstance
from scheduler_app.operations.clear import clear_run, clear_task_instances
from scheduler_app.operations.freeze import freeze
from scheduler_app.operations.terminate import terminate_task_instance
from scheduler_app.operations.thaw import thaw
from scheduler_app.queries.audit_visibility import compare
from scheduler_app.rules.clear import Options
from scheduler_app.rules.definition import GroupDefinition, GroupRetry, TaskDefinition, TriggerRule
from scheduler_app.rules.errors import Conflict
from scheduler_app.rules.roles import Role, Running
from scheduler_app.rules.visibility import explain
from scheduler_app.worker.context import Services

if TYPE_CHECKING:
    import psycopg

    from tests.world import World


def payment(**options: Any) -> tuple[TaskDefinition, ...]:
    """A group of two tasks beside each other, with one task after the first and one undoing both."""
    return (
        TaskDefinition(task_id="pay.debit", group="pay", **options),
        TaskDefinition(task_id="pay.credit", group="pay", **options),
        TaskDefinition(task_id="receipt", upstream=("pay.debit",)),
        TaskDefinition(
            task_id="undo",
            upstream=("pay.credit", "pay.debit"),
            trigger_rule=TriggerRule.ONE_FAILED,
            role=Role.COMPENSATION,
            compensates="pay",
        ),
    )


def begun(
    world: World, retry: GroupRetry | None = None, tasks: tuple[TaskDefinition, ...] | None = None
) -> int:
    """A run of the payment."""
    groups = (GroupDefinition(group_id="pay", retry=retry or GroupRetry(max_attempts=2)),)
    return world.run(world.flow("f", tasks or payment(), groups=groups))


def told(run_id: int) -> list[tuple[int, str, str]]:
    """Number, cause and state of the attempts of the group."""
    rows = GroupAttempt.objects.filter(run_id=run_id).order_by("number")
    return list(rows.values_list("number", "cause", "state"))


def differences() -> list[Any]:
    return [one for compared in compare() for one in compared.differences]


def test_a_group_that_succeeds_is_seen_then_and_not_before(world: World) -> None:
    run_id = begun(world)
    world.tick(run_id)
    debit = next(m for m in world.messages if _task(m.ti_id) == "pay.debit")
    assert world.claim(debit) is not None
    world.finish(debit)
    world.messages = [m for m in world.messages if m is not debit]
    world.tick(run_id)
    assert world.states(run_id)["receipt"] == "none", "its upstream succeeded, the group has not"
    assert told(run_id) == [(1, "begun", "running")]
    run = world.play(run_id)
    assert run.state == "success"
    assert world.states(run_id) == {
        "pay.debit": "success",
        "pay.credit": "success",
        "receipt": "success",
        "undo": "skipped",
    }
    assert told(run_id) == [(1, "begun", "success")]


def _task(ti_id: int) -> str:
    return TaskInstance.objects.get(pk=ti_id).task_id


def test_a_group_is_retried_whole_and_keeps_what_its_first_attempt_did(world: World) -> None:
    run_id = begun(world)
    world.tick(run_id)
    world.serve(failing=["pay.credit"])
    run = world.play(run_id)
    assert run.state == "success"
    assert told(run_id) == [(1, "begun", "failed"), (2, "retry", "success")]
    first = Attempt.objects.get(run_id=run_id, task_id="pay.debit", try_number=1)
    assert (first.outcome, first.filter_code) == ("success", "superseded_by_group_attempt")
    assert explain("superseded_by_group_attempt", first.filter_detail) == (
        "Try 1 belongs to attempt 1 of group pay. pay.credit failed. The group was begun anew as a"
        " whole: attempt 2 of 2."
    )
    assert Attempt.objects.filter(run_id=run_id).count() == 5
    assert Attempt.objects.filter(run_id=run_id, task_id="receipt").count() == 1
    assert differences() == []


def test_tries_of_a_task_come_before_an_attempt_of_its_group(world: World) -> None:
    run_id = begun(world, tasks=payment(retries=1))
    world.tick(run_id)
    for message in world.messages:
        assert world.claim(message) is not None
        is_credit = _task(message.ti_id) == "pay.credit"
        world.finish(message, ok=not is_credit, retry_after_s=0.0 if is_credit else None)
    world.messages = []
    assert world.play(run_id).state == "success"
    assert told(run_id) == [(1, "begun", "success")]


def test_a_group_that_is_given_up_fails_the_run_and_is_undone(world: World) -> None:
    run_id = begun(world)
    run = world.play(run_id, failing=["pay.credit"])
    assert world.states(run_id) == {
        "pay.debit": "success",
        "pay.credit": "failed",
        "receipt": "upstream_failed",
        "undo": "success",
    }
    assert run.state == "failed", "what was undone was not done"
    assert told(run_id) == [(1, "begun", "failed"), (2, "retry", "failed")]
    last = GroupAttempt.objects.get(run_id=run_id, is_current=True)
    assert last.reason == "pay.credit failed. It was attempt 2 of 2."
    assert differences() == []


def test_the_next_attempt_comes_after_the_cooldown_and_the_tick_tells_when(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    run_id = begun(world, GroupRetry(max_attempts=3, delay_s=60, backoff=2))
    world.tick(run_id)
    world.serve(failing=["pay.credit"])
    outcome = world.tick(run_id)
    assert 50 < outcome.retry_in_s[run_id] <= 60
    assert told(run_id) == [(1, "begun", "up_for_retry")]
    assert world.states(run_id)["pay.debit"] == "success"
    assert Run.objects.get(pk=run_id).is_active
    outcome = world.tick(run_id)
    assert (outcome.messages, told(run_id)) == ([], [(1, "begun", "up_for_retry")])
    raw.execute("UPDATE group_attempt SET retry_at = clock_timestamp()")
    raw.commit()
    world.tick(run_id)
    world.serve()
    world.tick(run_id)
    world.serve(failing=["pay.credit"])
    assert 110 < world.tick(run_id).retry_in_s[run_id] <= 120
    assert told(run_id) == [(1, "begun", "failed"), (2, "retry", "up_for_retry")]


def test_a_group_that_stops_its_rest_does_not_wait_for_it(world: World) -> None:
    retry = GroupRetry(max_attempts=2, running=Running.STOP)
    run_id = begun(world, retry)
    world.tick(run_id)
    credit = next(m for m in world.messages if _task(m.ti_id) == "pay.credit")
    debit = next(m for m in world.messages if _task(m.ti_id) == "pay.debit")
    assert world.claim(debit) is not None
    assert world.claim(credit) is not None
    world.finish(credit, ok=False)
    world.messages = []
    world.tick(run_id)
    assert world.states(run_id)["pay.debit"] == "restarting"
    assert world.states(run_id)["pay.credit"] == "none"
    stopping = Attempt.objects.get(pk=debit.attempt_id)
    assert stopping.stop_reason == "group pay is tried again as a whole: pay.credit failed."
    assert told(run_id) == [(1, "begun", "failed"), (2, "retry", "running")]


def test_what_could_not_begin_is_not_tried_again(world: World) -> None:
    tasks = (
        TaskDefinition(task_id="before"),
        *(
            TaskDefinition(task_id=one, group="pay", upstream=("before",))
            for one in ("pay.debit", "pay.credit")
        ),
    )
    run_id = begun(world, GroupRetry(max_attempts=5), tasks)
    run = world.play(run_id, failing=["before"])
    assert run.state == "failed"
    assert told(run_id) == [(1, "begun", "failed")]
    assert GroupAttempt.objects.get().reason.endswith("What it waits for failed.")


def test_what_a_person_ended_is_not_tried_again(world: World) -> None:
    run_id = begun(world)
    world.tick(run_id)
    credit = TaskInstance.objects.get(run_id=run_id, task_id="pay.credit")
    terminate_task_instance(ti_id=credit.pk, actor="ann", reason="wrong account")
    world.messages = [m for m in world.messages if m.ti_id != credit.pk]
    run = world.play(run_id)
    assert run.state == "failed"
    assert told(run_id) == [(1, "begun", "failed")]
    assert "wrong account" in GroupAttempt.objects.get().reason


def test_a_second_scheduler_finds_nothing_to_do_again(world: World) -> None:
    run_id = begun(world)
    world.tick(run_id)
    world.serve(failing=["pay.credit"])
    world.tick(run_id)
    after = told(run_id)
    for _ in range(3):
        world.ticker.forget([run_id])
        world.tick(run_id)
    assert told(run_id) == after == [(1, "begun", "failed"), (2, "retry", "running")]
    assert len(world.messages) == 2
    assert world.play(run_id).state == "success"


def test_a_cleared_group_has_a_new_attempt_and_a_new_budget(world: World) -> None:
    run_id = begun(world)
    world.play(run_id, failing=["pay.credit"])
    clear_run(run_id=run_id, actor="ann", reason="fixed", dry_run=False)
    run = world.play(run_id)
    assert run.state == "success"
    assert told(run_id) == [
        (1, "begun", "failed"),
        (2, "retry", "failed"),
        (3, "clear", "success"),
    ]
    assert GroupAttempt.objects.get(is_current=True).budget_start == 2
    assert differences() == []


def test_a_clear_of_one_task_takes_the_whole_group_and_what_undid_it(world: World) -> None:
    run_id = begun(world)
    world.play(run_id, failing=["pay.credit"])
    credit = TaskInstance.objects.get(run_id=run_id, task_id="pay.credit")
    plan = clear_task_instances(
        ti_ids=[credit.pk],
        actor="ann",
        reason="fixed",
        options=Options(only_failed=True, include_downstream=True),
        dry_run=False,
    )
    assert {one.task_id: one.rule for one in plan.included} == {
        "pay.credit": "asked",
        "pay.debit": "group",
        "receipt": "downstream",
        "undo": "group",
    }
    assert world.play(run_id).state == "success"
    assert world.states(run_id) == {
        "pay.debit": "success",
        "pay.credit": "success",
        "receipt": "success",
        "undo": "skipped",
    }


def test_nothing_is_decided_about_a_group_while_a_freeze_holds_a_task_of_it(world: World) -> None:
    run_id = begun(world)
    world.tick(run_id)
    debit = TaskInstance.objects.get(run_id=run_id, task_id="pay.debit")
    for message in world.messages:
        assert world.claim(message) is not None
    freeze(scope_kind="task_instance", scope_id=debit.pk, actor="ann", reason="look first")
    for message in world.messages:
        world.finish(message, ok=message.ti_id == debit.pk)
    world.messages = []
    world.tick(run_id)
    assert told(run_id) == [(1, "begun", "running")]
    thaw(scope_kind="task_instance", scope_id=debit.pk, actor="ann", reason="seen")
    assert world.play(run_id).state == "success"
    assert told(run_id) == [(1, "begun", "failed"), (2, "retry", "success")]


def services(run_id: int, raw: psycopg.Connection[Any], **options: Any) -> Services:
    class Asks:
        def once(self, read: Any) -> Any:
            return read(raw)

        ask = once

    given: Any = {
        "saver": Asks(),
        "delivery": None,
        "claim": None,
        "notices": None,
        "run_id": run_id,
        "flow_id": "f",
        "value_bytes_max": 1000,
        **options,
    }
    return Services(**given)


def test_a_result_is_refused_outside_until_the_group_has_succeeded(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    run_id = begun(world)
    world.tick(run_id)
    debit = next(m for m in world.messages if _task(m.ti_id) == "pay.debit")
    world.messages = [m for m in world.messages if m is not debit]
    assert world.claim(debit) is not None
    world.finish(debit, result=7)
    outside = services(run_id, raw, hidden={"pay.debit": "pay"})
    within = services(run_id, raw)
    for read in (
        lambda: outside.result("pay.debit"),
        lambda: outside.pull("pay.debit", None, map_index=-1, include_prior_tries=False),
    ):
        with pytest.raises(Conflict, match="counts only once all of its group 'pay' has succeeded"):
            read()
    assert within.result("pay.debit") == 7
    world.play(run_id)
    assert outside.result("pay.debit") == 7
