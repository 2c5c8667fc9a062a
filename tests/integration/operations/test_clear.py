"""Clearing from every state; plans; and against claims, reports, deferrals, fires and other clears."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection as django_connection
from django.utils import timezone

from scheduler_app.models import (
    Attempt,
    Audit,
    Checkpoint,
    ClearPlan,
    Flow,
    FlowVersion,
    Pool,
    Run,
    RunAttempt,
    TaskInstance,
    Trigger,
)
from scheduler_app.operations.clear import clear_run, clear_task_instances
from scheduler_app.operations.terminate import terminate_task_instance
from scheduler_app.operations.undo_clear import undo_clear
from scheduler_app.queries.audit_visibility import compare
from scheduler_app.rules.clear import Options
from scheduler_app.rules.definition import FlowDefinition, TaskDefinition, to_dict
from scheduler_app.rules.errors import Conflict, InvalidInput, NotAllowed, NotFound
from scheduler_app.rules.retry import told_tries
from scheduler_app.rules.states import AttemptOutcome, TaskState
from scheduler_app.rules.visibility import explain
from scheduler_app.transitions import attempt as moves
from scheduler_app.transitions import checkpoint, trigger
from tests.together import together
from tests.world import chain

if TYPE_CHECKING:
    import psycopg

    from scheduler_app.transitions.attempt import Message
    from tests.world import World

Act = Callable[["psycopg.Connection[Any]"], Any]
ROUNDS = 12


def begun(world: World, *, claim: bool = True, run_key: str = "r1", retries: int = 2) -> Message:
    """The first task of a run of three is queued, or runs."""
    flow = Flow.objects.select_related("current_version").filter(flow_id="f").first()
    flow = flow or world.flow(
        "f", chain("a", "b", "c", retries=retries, retry_delay_s=0), max_active_runs=99
    )
    run_id = world.run(flow, run_key)
    world.tick(run_id)
    (message,), world.messages = world.messages, []
    if claim:
        assert world.claim(message) is not None
    return message


def clear(*ti_ids: int, **options: Any) -> Any:
    """They are cleared at once, with a reason."""
    chosen = {k: options.pop(k) for k in list(options) if k in Options.__dataclass_fields__}
    asked: dict[str, Any] = {"actor": "ada", "reason": "bad data", "dry_run": False}
    return clear_task_instances(ti_ids=ti_ids, options=Options(**chosen), **{**asked, **options})


def clear_whole(run_id: int, **options: Any) -> Any:
    """The whole run is cleared at once, with a reason."""
    chosen = {k: options.pop(k) for k in list(options) if k in Options.__dataclass_fields__}
    asked: dict[str, Any] = {"actor": "ada", "reason": "bad data", "dry_run": False}
    return clear_run(run_id=run_id, options=Options(**chosen), **{**asked, **options})


def ti_of(message: Message) -> TaskInstance:
    return TaskInstance.objects.get(pk=message.ti_id)


def attempt_of(message: Message) -> Attempt:
    return Attempt.objects.get(pk=message.attempt_id)


def nothing_is_hidden() -> bool:
    """Every stored standing is the one that the facts ask for."""
    return [one for one in compare() if one.differences] == []


def report(message: Message, connection: psycopg.Connection[Any], **to: Any) -> int | None:
    values: dict[str, Any] = {
        "state": TaskState.SUCCESS,
        "is_open": False,
        "outcome": AttemptOutcome.SUCCESS,
    }
    return moves.finish(
        connection,
        ti_id=message.ti_id,
        attempt_id=message.attempt_id,
        nonce=uuid.UUID(int=message.attempt_id.int),
        **{**values, **to},
    )


# -- from every state ----------------------------------------------------------------------------


def test_a_running_task_is_stopped_first_and_begins_anew_when_it_has_ended(world: World) -> None:
    message = begun(world)
    plan = clear(message.ti_id)
    assert [(one.state, one.executions) for one in plan.included] == [("running", 3)]
    one, ti = attempt_of(message), ti_of(message)
    assert (ti.state, ti.attempt_id, one.state) == ("restarting", message.attempt_id, "running")
    (beat,) = moves.beat(
        world.connection, attempt_ids=[message.attempt_id], worker_job_id=world.worker
    )
    assert beat.stop_reason == "ada cleared it: bad data"
    assert report(message, world.connection) is None, "its result comes too late"
    assert moves.begin_anew(world.connection, attempt_id=message.attempt_id, reason="stopped")
    ti = ti_of(message)
    assert (ti.state, ti.try_number, ti.budget_start, ti.max_tries) == ("none", 1, 1, 3)
    world.tick(message.run_id)
    (again,) = world.messages
    one = attempt_of(message)
    assert (one.filter_code, one.superseded_by) == ("superseded_by_clear", str(again.attempt_id))
    assert one.filter_detail is not None
    told = explain("superseded_by_clear", one.filter_detail)
    assert told.startswith("Try 1 was cleared by ada: bad data (clear ")
    assert str(plan.plan_id) in told
    assert Attempt.objects.get(pk=again.attempt_id).try_number == 2
    assert nothing_is_hidden()


def test_a_queued_task_is_issued_again_and_its_message_is_refused(world: World) -> None:
    message = begun(world, claim=False)
    clear(message.ti_id)
    one, ti = attempt_of(message), ti_of(message)
    assert (ti.state, ti.attempt_id, ti.try_number) == ("none", None, 1)
    assert (one.state, one.outcome, one.filter_code) == (
        "ended",
        "terminated",
        "superseded_by_clear",
    )
    assert world.claim(message) is None
    assert world.play(message.run_id).state == "success"
    assert ti_of(message).try_number == 2
    assert nothing_is_hidden()


def test_a_deferred_task_loses_its_trigger(world: World) -> None:
    message = begun(world)
    trigger_id = world.defer(message)
    clear(message.ti_id)
    ti = ti_of(message)
    assert (ti.state, ti.next_method, ti.next_kwargs, ti.wait) == ("none", None, None, None)
    row = Trigger.objects.get(pk=trigger_id)
    assert (row.state, row.is_waiting) == ("cancelled", False)
    assert world.fire(trigger_id) == "late"
    world.tick(message.run_id)
    (again,), world.messages = world.messages, []
    claim = world.claim(again)
    assert claim is not None
    assert (claim.try_number, claim.resume_index, claim.next_method) == (2, 0, None)
    world.defer(again)  # of another try: no trigger stands in its way
    assert nothing_is_hidden()


def test_retries_are_counted_afresh_and_the_try_never_falls(world: World) -> None:
    message = begun(world)
    world.finish(message, ok=False, retry_after_s=0)
    world.tick(message.run_id)
    world.serve(failing=["a"])
    ti = ti_of(message)
    assert (ti.state, ti.try_number) == ("failed", 2)
    clear(message.ti_id)
    ti = ti_of(message)
    assert (ti.try_number, ti.budget_start, ti.max_tries) == (2, 2, 4)
    assert told_tries(3, 4, 2) == "3 (1 of 3 since its clear)"
    assert told_tries(2, 2, 0) == "2 of 3"
    world.tick(message.run_id)
    (third,), world.messages = world.messages, []
    assert Attempt.objects.get(pk=third.attempt_id).try_number == 3


def test_a_task_that_a_person_ended_can_be_cleared(world: World) -> None:
    message = begun(world, claim=False)
    terminate_task_instance(ti_id=message.ti_id, actor="ada", reason="wrong")
    clear(message.ti_id)
    assert ti_of(message).stop_requested_at is None
    assert world.play(message.run_id).state == "success"


def test_one_that_is_asked_to_end_is_left_alone_until_it_has(world: World) -> None:
    message = begun(world)
    terminate_task_instance(ti_id=message.ti_id, actor="ada", reason="wrong")
    plan = clear(message.ti_id)
    assert [one.rule for one in plan.excluded] == ["terminating"]
    assert ti_of(message).state == "running"


# -- runs ------------------------------------------------------------------------------------------


def test_a_finished_run_that_is_cleared_runs_in_a_run_attempt_of_its_own(world: World) -> None:
    flow = world.flow("f", chain("a", "b"))
    run_id = world.run(flow)
    assert world.play(run_id).state == "success"
    plan = clear_whole(run_id)
    run = Run.objects.get(pk=run_id)
    assert (run.state, run.is_active, run.ended_at, run.run_attempt) == ("queued", True, None, 2)
    assert plan.new_run_attempt == 2
    assert world.play(run_id).state == "success"
    goes = RunAttempt.objects.filter(run_id=run_id).order_by("number")
    assert [(go.number, go.cause, go.actor, go.state, go.filter_code) for go in goes] == [
        (1, "created", "", "success", "superseded_by_run_attempt"),
        (2, "clear", "ada", "success", None),
    ]
    assert [(one.task_id, one.run_attempt, one.filter_code) for one in world.attempts(run_id)] == [
        ("a", 1, "superseded_by_run_attempt"),
        ("b", 1, "superseded_by_run_attempt"),
        ("a", 2, None),
        ("b", 2, None),
    ]
    old = world.attempts(run_id)[0]
    assert "ada began attempt 2: bad data" in explain(old.filter_code or "", old.filter_detail)
    assert (old.state, old.outcome) == ("ended", "success"), "its history stays"
    assert nothing_is_hidden()


def test_clearing_tasks_of_a_finished_run_opens_it_in_the_same_run_attempt(world: World) -> None:
    flow = world.flow("f", chain("a", "b", "c"))
    run_id = world.run(flow)
    assert world.play(run_id, failing=["b"]).state == "failed"
    b = TaskInstance.objects.get(run_id=run_id, task_id="b")
    clear(b.pk, include_downstream=True)
    run = Run.objects.get(pk=run_id)
    assert (run.state, run.run_attempt, run.state_reason) == ("queued", 1, "")
    assert world.states(run_id) == {"a": "success", "b": "none", "c": "none"}
    assert world.play(run_id).state == "success"
    assert [go.state for go in RunAttempt.objects.filter(run_id=run_id)] == ["success"]
    assert nothing_is_hidden()


def test_clears_of_tasks_and_runs_one_after_the_other_keep_their_own_reasons(world: World) -> None:
    flow = world.flow("f", chain("a", "b"))
    run_id = world.run(flow)
    world.play(run_id)
    b = TaskInstance.objects.get(run_id=run_id, task_id="b")
    clear(b.pk, reason="first")
    world.play(run_id)
    clear(b.pk, reason="second")
    assert nothing_is_hidden(), "before a successor is dispatched"
    world.play(run_id)
    clear_whole(run_id, reason="third")
    assert nothing_is_hidden()
    world.play(run_id)
    told = [
        (one.try_number, one.filter_code, (one.filter_detail or {}).get("reason"))
        for one in Attempt.objects.filter(ti_id=b.pk).order_by("fence")
    ]
    assert told == [
        (1, "superseded_by_clear", "first"),
        (2, "superseded_by_clear", "second"),
        (3, "superseded_by_run_attempt", "third"),
        (4, None, None),
    ]
    assert nothing_is_hidden()


def test_a_run_under_way_goes_on_in_a_new_run_attempt(world: World) -> None:
    message = begun(world)
    plan = clear_whole(message.run_id)
    assert [(one.task_id, one.rule) for one in plan.excluded] == [
        ("b", "not_started"),
        ("c", "not_started"),
    ]
    run = Run.objects.get(pk=message.run_id)
    assert (run.state, run.run_attempt) == ("running", 2)
    assert moves.begin_anew(world.connection, attempt_id=message.attempt_id, reason="stopped")
    assert world.play(message.run_id).state == "success"
    assert attempt_of(message).filter_code == "superseded_by_run_attempt"
    assert nothing_is_hidden()


@pytest.mark.parametrize("downstream", [True, False])
def test_what_waits_for_room_waits_for_its_upstream_again(
    world: World, monkeypatch: pytest.MonkeyPatch, downstream: bool
) -> None:
    monkeypatch.setattr("scheduler_app.scheduler.dispatch_attempts.WAIT_NOTED_AFTER_S", 0.0)
    pool = Pool.objects.create(name="closed", slots=0)
    tasks = chain("a", "b", "c", pool="closed")
    tasks = (replace(tasks[0], pool="default"), *tasks[1:], replace(tasks[1], task_id="d"))
    run_id = world.run(world.flow("f", tasks))
    world.tick(run_id)
    world.serve()
    for _ in range(3):
        world.tick(run_id)
    before = world.states(run_id)
    assert before == {"a": "success", "b": "scheduled", "c": "none", "d": "scheduled"}
    d = TaskInstance.objects.get(run_id=run_id, task_id="d")
    clear(d.pk)
    assert world.states(run_id)["b"] == "scheduled", "it comes after the same, and not after d"
    a = TaskInstance.objects.get(run_id=run_id, task_id="a")
    plan = clear(a.pk, include_downstream=downstream)
    taken = {one.task_id: one.rule for one in plan.included}
    assert taken == {"a": "asked", "b": "downstream"}, "d waits again already"
    Pool.objects.filter(pk=pool.pk).update(slots=5)
    for _ in range(3):
        world.tick(run_id)
    assert world.states(run_id) == {"a": "queued", "b": "none", "c": "none", "d": "none"}
    assert world.play(run_id).state == "success"
    assert nothing_is_hidden()


def test_a_plan_that_let_something_wait_again_can_be_undone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler_app.scheduler.dispatch_attempts.WAIT_NOTED_AFTER_S", 0.0)
    Pool.objects.create(name="closed", slots=0)
    tasks = chain("a", "b", pool="closed")
    run_id = world.run(world.flow("f", (replace(tasks[0], pool="default"), tasks[1])))
    world.tick(run_id)
    world.serve()
    for _ in range(3):
        world.tick(run_id)
    plan = clear(TaskInstance.objects.get(run_id=run_id, task_id="a").pk)
    assert world.states(run_id) == {"a": "none", "b": "none"}
    undo_clear(plan_id=plan.plan_id, actor="ana", reason="no")
    assert world.states(run_id) == {"a": "success", "b": "scheduled"}
    assert nothing_is_hidden()


def test_an_empty_selection_touches_nothing(world: World) -> None:
    flow = world.flow("f", chain("a", "b"))
    run_id = world.run(flow)
    world.play(run_id)
    before = Run.objects.values().get(pk=run_id)
    plan = clear_whole(run_id, only_failed=True)
    assert (plan.included, plan.new_run_attempt) == ((), None)
    assert {one.rule for one in plan.excluded} == {"not_failed"}
    assert Run.objects.values().get(pk=run_id) == before
    assert not Audit.objects.exists()


def test_a_second_clear_changes_nothing_more(world: World) -> None:
    flow = world.flow("f", chain("a", "b"))
    run_id = world.run(flow)
    world.play(run_id)
    clear_whole(run_id)
    before = list(TaskInstance.objects.order_by("id").values())
    plan = clear_whole(run_id)
    assert plan.included == ()
    assert list(TaskInstance.objects.order_by("id").values()) == before
    assert Run.objects.get(pk=run_id).run_attempt == 2
    assert Audit.objects.count() == 1
    message_run = begun(world, run_key="r2")
    clear(message_run.ti_id)
    assert clear(message_run.ti_id).excluded[0].rule == "stopping"


# -- the version -----------------------------------------------------------------------------------


def newer(flow: Flow, *task_ids: str) -> FlowVersion:
    assert flow.current_version is not None
    definition = FlowDefinition(
        flow_id=flow.flow_id, tasks=tuple(TaskDefinition(task_id=t) for t in task_ids)
    )
    version = FlowVersion.objects.create(
        flow=flow,
        number=2,
        digest="2" * 64,
        definition=to_dict(definition),
        bundle=flow.current_version.bundle,
        created_at=timezone.now(),
    )
    Flow.objects.filter(pk=flow.pk).update(current_version=version)
    return version


def test_the_newest_version_brings_its_tasks_and_sets_aside_what_it_lost(world: World) -> None:
    flow = world.flow("f", chain("a", "b"))
    run_id = world.run(flow)
    world.play(run_id)
    version = newer(flow, "a", "n")
    plan = clear_whole(run_id, run_on_latest_version=True)
    assert (plan.version, [(one.task_id, one.rule) for one in plan.included]) == (
        2,
        [("a", "asked"), ("b", "asked"), ("n", "new")],
    )
    assert world.play(run_id).state == "success"
    assert Run.objects.get(pk=run_id).version_id == version.pk
    assert world.states(run_id) == {"a": "success", "b": "removed", "n": "success"}
    b = TaskInstance.objects.get(run_id=run_id, task_id="b")
    assert (b.filter_code, (b.filter_detail or {})["version"]) == ("removed_from_flow", 2)
    assert nothing_is_hidden()


def test_only_new_adds_what_the_run_does_not_have(world: World) -> None:
    flow = world.flow("f", chain("a"))
    run_id = world.run(flow)
    world.play(run_id)
    newer(flow, "a", "n")
    plan = clear_whole(run_id, only_new=True, dry_run=True)
    assert [(one.task_id, one.id) for one in plan.included] == [("n", None)]
    assert world.states(run_id) == {"a": "success"}
    clear_whole(run_id, only_new=True)
    assert world.play(run_id).state == "success"
    assert [(one.task_id, one.filter_code) for one in world.attempts(run_id)] == [
        ("a", None),
        ("n", None),
    ]
    assert nothing_is_hidden()


# -- plans -----------------------------------------------------------------------------------------


def test_a_preview_changes_nothing_and_is_not_audited(world: World) -> None:
    message = begun(world)
    plan = clear_run(run_id=message.run_id, actor="ada")
    assert (plan.dry_run, plan.worst_case_executions) == (True, 3)
    assert plan.expires_at > timezone.now()
    assert (ti_of(message).state, attempt_of(message).cleared) == ("running", None)
    assert not Audit.objects.exists()


def test_a_plan_is_carried_out_once_as_it_was_shown(world: World) -> None:
    message = begun(world)
    plan = clear_run(run_id=message.run_id, actor="ada", options=Options(only_running=True))
    done = clear_whole(message.run_id, plan_id=plan.plan_id)
    assert (done.hash, done.included, done.options) == (plan.hash, plan.included, plan.options)
    assert ti_of(message).state == "restarting"
    with pytest.raises(Conflict, match="carried out before"):
        clear_whole(message.run_id, plan_id=plan.plan_id)
    entry = Audit.objects.get()
    assert (entry.action, entry.reason, entry.object_id) == (
        "clear",
        "bad data",
        str(message.run_id),
    )
    assert entry.after is not None
    assert entry.after["plan"] == str(plan.plan_id)


def test_a_plan_whose_world_has_moved_is_refused_with_the_difference(world: World) -> None:
    message = begun(world)
    plan = clear_run(run_id=message.run_id, actor="ada")
    world.finish(message)
    with pytest.raises(Conflict, match="no longer holds: 1 task instances") as caught:
        clear_whole(message.run_id, plan_id=plan.plan_id)
    told: Any = caught.value.extra["difference"]
    (one,) = told
    assert (one["task_id"], one["planned"]["state"], one["now"]["state"]) == (
        "a",
        "running",
        "success",
    )
    assert ti_of(message).state == "success"
    assert not Audit.objects.exists()


def test_a_plan_expires_and_belongs_to_what_it_was_made_for(world: World) -> None:
    message = begun(world)
    plan = clear_run(run_id=message.run_id, actor="ada")
    with pytest.raises(NotFound):
        clear(message.ti_id, plan_id=plan.plan_id)
    with pytest.raises(NotFound):
        clear_whole(message.run_id, plan_id=uuid.uuid4())
    ClearPlan.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    with pytest.raises(Conflict, match="expired"):
        clear_whole(message.run_id, plan_id=plan.plan_id)


def test_what_is_frozen_set_aside_or_missing_is_refused(world: World) -> None:
    message = begun(world)
    TaskInstance.objects.filter(pk=message.ti_id).update(held_by=7)
    with pytest.raises(NotAllowed, match="freeze 7 holds it"):
        clear(message.ti_id)
    assert clear_whole(message.run_id).excluded[0].rule == "frozen"
    TaskInstance.objects.filter(pk=message.ti_id).update(held_by=None)
    Run.objects.filter(pk=message.run_id).update(frozen_at=timezone.now())
    for dry_run in (True, False):
        with pytest.raises(NotAllowed, match="is frozen"):
            clear_whole(message.run_id, dry_run=dry_run)
    Run.objects.filter(pk=message.run_id).update(
        frozen_at=None, filter_code="ghost_run", filtered_at=timezone.now(), filter_detail={}
    )
    with pytest.raises(Conflict, match="set aside"):
        clear_whole(message.run_id)
    with pytest.raises(NotFound):
        clear_whole(10**9)
    with pytest.raises(NotFound):
        clear(10**9)


def test_it_needs_a_reason_and_filters_that_do_not_exclude_each_other(world: World) -> None:
    message = begun(world)
    with pytest.raises(InvalidInput, match="Say why"):
        clear(message.ti_id, reason=" ")
    with pytest.raises(InvalidInput, match="exclude each other"):
        clear(message.ti_id, only_failed=True, only_running=True)
    with pytest.raises(InvalidInput, match="at least one"):
        clear()
    assert ti_of(message).state == "running"


# -- races -----------------------------------------------------------------------------------------


def somewhat_later(act: Act) -> Act:
    """Spread over the milliseconds that a statement takes, so that each order comes up."""

    def later(connection: psycopg.Connection[Any]) -> Any:
        time.sleep(random.uniform(0, 0.008))
        return act(connection)

    return later


def clearing(message: Message, *, whole: bool = False) -> Act:
    def act(connection: psycopg.Connection[Any]) -> Any:
        del connection  # operations have Django's own, one a thread
        try:
            return clear_whole(message.run_id) if whole else clear(message.ti_id)
        finally:
            django_connection.close()

    return act


def claims(world: World, message: Message) -> Act:
    return lambda connection: moves.claim(
        connection,
        ti_id=message.ti_id,
        attempt_id=message.attempt_id,
        token=message.lease_token,
        fence=message.fence,
        nonce=uuid.UUID(int=message.attempt_id.int),
        worker_job_id=world.worker,
        hostname="host-1",
        pid=4711,
    )


@pytest.mark.parametrize("whole", [False, True])
def test_against_a_claim_it_is_stopped_or_never_starts(world: World, *, whole: bool) -> None:
    for number in range(ROUNDS):
        message = begun(world, claim=False, run_key=f"c{number}")
        claimed, _ = together(
            [
                somewhat_later(claims(world, message)),
                somewhat_later(clearing(message, whole=whole)),
            ]
        )
        state, one = ti_of(message).state, attempt_of(message)
        if claimed is None:
            assert (state, one.state) == ("none", "ended")
        else:
            assert (state, one.state) == ("restarting", "running")
            assert one.stop_reason == "ada cleared it: bad data"
    assert nothing_is_hidden()


@pytest.mark.parametrize("whole", [False, True])
def test_against_a_report_one_of_them_wins_and_no_result_is_lost(
    world: World, *, whole: bool
) -> None:
    for number in range(ROUNDS):
        message = begun(world, run_key=f"f{number}")
        accepted, _ = together(
            [
                somewhat_later(lambda connection, m=message: report(m, connection)),  # type: ignore[misc]
                somewhat_later(clearing(message, whole=whole)),
            ]
        )
        state, one = ti_of(message).state, attempt_of(message)
        if accepted is None:
            assert (state, one.outcome) == ("restarting", None)
        else:
            assert (state, one.outcome) == ("none", "success"), "set aside, with its result"
            assert one.filter_code is not None
    assert nothing_is_hidden()


def test_against_a_deferral_and_its_fire_nothing_waits_for_ever(world: World) -> None:
    for number in range(ROUNDS):
        message = begun(world, run_key=f"d{number}")
        deferred, _ = together(
            [
                somewhat_later(lambda connection, m=message: world.defer_by(connection, m)),  # type: ignore[misc]
                somewhat_later(clearing(message)),
            ]
        )
        state = ti_of(message).state
        assert state == ("restarting" if deferred is None else "none")
        assert not Trigger.objects.filter(ti_id=message.ti_id, is_waiting=True).exists()
    for number in range(ROUNDS):
        message = begun(world, run_key=f"e{number}")
        trigger_id = world.defer(message)
        together(
            [
                somewhat_later(
                    lambda connection, t=trigger_id: trigger.fire(  # type: ignore[misc]
                        connection,
                        fires=[trigger.Fire(trigger_id=t, state="fired", payload={"event": 1})],
                    )
                ),
                somewhat_later(clearing(message)),
            ]
        )
        ti = ti_of(message)
        assert (ti.state, ti.next_method, ti.attempt_id) == ("none", None, None)
        assert not Trigger.objects.get(pk=trigger_id).is_waiting
    assert nothing_is_hidden()


def test_of_many_clears_at_once_one_acts_and_the_others_find_it_done(world: World) -> None:
    for number in range(ROUNDS):
        flow = Flow.objects.filter(flow_id="g").first() or world.flow("g", chain("a", "b", "c"))
        flow = Flow.objects.select_related("current_version").get(pk=flow.pk)
        run_id = world.run(flow, f"m{number}")
        world.play(run_id)
        tis = list(TaskInstance.objects.filter(run_id=run_id).order_by("-id"))

        def whole(connection: psycopg.Connection[Any], run: int = run_id) -> int:
            del connection
            try:
                return len(clear_whole(run).included)
            finally:
                django_connection.close()

        def some(
            connection: psycopg.Connection[Any], ids: tuple[int, ...] = tuple(t.pk for t in tis)
        ) -> int:
            del connection
            try:
                return len(clear(*ids).included)
            finally:
                django_connection.close()

        did = together([somewhat_later(act) for act in (whole, some, whole, some, whole)])
        assert sorted(did) == [0, 0, 0, 0, 3]
        assert set(world.states(run_id).values()) == {"none"}
        assert world.play(run_id).state == "success"
    assert nothing_is_hidden()


def test_of_many_who_carry_out_one_plan_one_does_and_the_others_are_told_why(world: World) -> None:
    flow = world.flow("g", chain("a", "b"))
    run_id = world.run(flow)
    world.play(run_id)
    plan = clear_run(run_id=run_id, actor="ada")

    def carry_out(connection: psycopg.Connection[Any]) -> str:
        del connection
        try:
            clear_whole(run_id, plan_id=plan.plan_id)
        except Conflict as refused:
            return str(refused)
        finally:
            django_connection.close()
        return "done"

    told = together([carry_out] * 6)
    assert told.count("done") == 1
    refusals = {one for one in told if one != "done"}
    assert all("carried out before" in one or "no longer holds" in one for one in refusals)
    assert Audit.objects.count() == 1


# -- checkpoints -----------------------------------------------------------------------------------


@pytest.mark.parametrize("keeps", [True, False])
def test_checkpoints_stay_unless_it_is_asked_otherwise(world: World, *, keeps: bool) -> None:
    message = begun(world)
    saved = checkpoint.save(
        world.connection,
        ti_id=message.ti_id,
        attempt_id=message.attempt_id,
        nonce=uuid.UUID(int=message.attempt_id.int),
        saves=[checkpoint.Save(scope="task", owner=None, key="page", value=7)],
        progress=None,
        kept=5,
    )
    assert saved is not None
    clear(message.ti_id, keep_checkpoints=keeps)
    row = Checkpoint.objects.get(ti_id=message.ti_id)
    assert (row.scope == "task", row.value, row.saves.count()) == (keeps, 7, 1)


@pytest.mark.parametrize(
    ("asked", "of_flow", "of_installation", "version"),
    [(None, None, False, 1), (None, None, True, 2), (None, False, True, 1), (False, True, True, 1)],
)
def test_the_flow_or_the_installation_says_the_version_where_the_act_does_not(
    world: World,
    settings: Any,
    asked: bool | None,
    of_flow: bool | None,
    of_installation: bool,
    version: int,
) -> None:
    settings.RUN_ON_LATEST_VERSION = of_installation
    flow = world.flow("f", chain("a"))
    run_id = world.run(flow)
    world.tick(run_id)
    world.claim(world.messages[0])
    world.finish(world.messages[0], ok=False)
    world.tick(run_id)
    newest = FlowDefinition(flow_id="f", tasks=chain("a"), run_on_latest_version=of_flow)
    assert flow.current_version is not None
    flow.current_version = FlowVersion.objects.create(
        flow=flow,
        number=2,
        digest="2",
        definition=to_dict(newest),
        bundle=flow.current_version.bundle,
        created_at=timezone.now(),
    )
    flow.save()
    plan = clear_run(
        run_id=run_id,
        actor="ana",
        options=Options(run_on_latest_version=asked),
        reason="again",
        dry_run=False,
    )
    assert plan.options.run_on_latest_version is (version == 2)
    assert Run.objects.get().version.number == version
