"""Terminating from every state; and against claims, reports, deferrals, fires, losses and ticks."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection as django_connection
from django.utils import timezone

from scheduler_app.models import Attempt, Audit, Flow, Run, TaskInstance, Trigger
from scheduler_app.operations.terminate import terminate_run, terminate_task_instance
from scheduler_app.queries.audit_visibility import compare
from scheduler_app.rules.definition import TaskDefinition
from scheduler_app.rules.errors import Conflict, InvalidInput, NotAllowed, NotFound
from scheduler_app.rules.states import AttemptOutcome, TaskState
from scheduler_app.transitions import attempt as moves
from scheduler_app.transitions import trigger
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
    flow = flow or world.flow("f", chain("a", "b", "c", retries=retries, retry_delay_s=0))
    run_id = world.run(flow, run_key)
    world.tick(run_id)
    (message,), world.messages = world.messages, []
    if claim:
        assert world.claim(message) is not None
    return message


def end(ti_id: int, **options: Any) -> Any:
    return terminate_task_instance(ti_id=ti_id, actor="ada", reason="bad data", **options)


def state(message: Message) -> str:
    return TaskInstance.objects.get(pk=message.ti_id).state


def attempt_of(message: Message) -> Attempt:
    return Attempt.objects.get(pk=message.attempt_id)


# -- from every state ----------------------------------------------------------------------------


def test_a_running_task_is_asked_and_fails_when_it_has_stopped(world: World) -> None:
    message = begun(world)
    plan = end(message.ti_id)
    (subject,) = plan.included
    assert (subject.state, "stopped on host-1:4711" in subject.effect) == ("running", True)
    one, ti = attempt_of(message), TaskInstance.objects.get(pk=message.ti_id)
    assert (ti.state, one.state) == ("running", "running"), "its process lives"
    assert (one.stop_reason, ti.stop_reason) == ("ada terminated it: bad data",) * 2
    (beat,) = moves.beat(
        world.connection, attempt_ids=[message.attempt_id], worker_job_id=world.worker
    )
    assert (beat.is_wanted, beat.stop_reason) == (True, "ada terminated it: bad data")
    assert moves.finish(
        world.connection,
        ti_id=message.ti_id,
        attempt_id=message.attempt_id,
        nonce=uuid.UUID(int=message.attempt_id.int),
        state=TaskState.FAILED,
        is_open=False,
        outcome=AttemptOutcome.TERMINATED,
    )
    assert (state(message), attempt_of(message).outcome) == ("failed", "terminated")
    assert world.play(message.run_id).state == "failed"


def test_a_queued_task_never_starts(world: World) -> None:
    message = begun(world, claim=False)
    end(message.ti_id)
    one = attempt_of(message)
    assert (state(message), one.state, one.outcome) == ("failed", "ended", "terminated")
    assert one.outcome_reason == "ada terminated it: bad data"
    assert world.claim(message) is None, "its message comes all the same"


def test_a_task_that_waits_for_its_retry_has_no_further_try(world: World) -> None:
    message = begun(world)
    world.finish(message, ok=False, retry_after_s=3600)
    end(message.ti_id)
    ti = TaskInstance.objects.get(pk=message.ti_id)
    assert (ti.state, ti.next_retry_at) == ("failed", None)
    assert attempt_of(message).outcome == "failed", "what it had come to stays"


def test_a_deferred_task_fails_and_its_trigger_is_cancelled(world: World) -> None:
    message = begun(world)
    trigger_id = world.defer(message)
    end(message.ti_id)
    ti = TaskInstance.objects.get(pk=message.ti_id)
    assert (ti.state, ti.next_method, ti.wait) == ("failed", None, None)
    row = Trigger.objects.get(pk=trigger_id)
    assert (row.state, row.is_waiting) == ("cancelled", False)
    assert world.fire(trigger_id) == "late"


def test_a_task_that_waits_for_its_upstream_fails_and_its_upstream_goes_on(world: World) -> None:
    message = begun(world)
    second = TaskInstance.objects.get(run_id=message.run_id, task_id="b")
    end(second.pk)
    world.finish(message)
    assert world.play(message.run_id).state == "failed"
    assert world.states(message.run_id) == {"a": "success", "b": "failed", "c": "upstream_failed"}
    assert Attempt.objects.filter(task_id="b").count() == 0


def test_a_run_is_terminated_with_everything_in_it(world: World) -> None:
    message = begun(world)
    plan = terminate_run(run_id=message.run_id, actor="ada", reason="wrong day")
    assert [(one.task_id, one.state) for one in plan.included] == [
        ("a", "running"),
        ("b", "none"),
        ("c", "none"),
    ]
    assert world.states(message.run_id) == {"a": "running", "b": "failed", "c": "failed"}
    world.tick(message.run_id)
    assert Run.objects.get(pk=message.run_id).is_active, "one of its attempts lives"
    world.finish(message, ok=False, retry_after_s=0)
    run = world.play(message.run_id)
    assert (run.state, world.states(message.run_id)["a"]) == ("failed", "failed")
    again = TaskInstance.objects.get(task_id="b")
    assert again.stop_reason == "ada terminated the run: wrong day"
    assert [one for one in compare() if one.differences] == []


def test_a_run_that_had_not_started_ends_at_once(world: World) -> None:
    flow = world.flow("f", chain("a", "b"))
    run_id = world.run(flow)
    terminate_run(run_id=run_id, actor="ada", reason="not needed")
    run = Run.objects.get(pk=run_id)
    assert (run.state, run.is_active, run.started_at) == ("failed", False, None)
    assert run.state_reason == "ada terminated the run: not needed"
    assert run.ended_at is not None


# -- what it refuses, previews and keeps -----------------------------------------------------------


def test_a_dry_run_says_what_would_follow_and_changes_nothing(world: World) -> None:
    message = begun(world)
    plan = terminate_run(run_id=message.run_id, actor="ada", dry_run=True)
    assert (plan.dry_run, len(plan.included)) == (True, 3)
    assert attempt_of(message).stop_requested_at is None
    assert world.states(message.run_id) == {"a": "running", "b": "none", "c": "none"}
    assert not Audit.objects.exists()


def test_it_is_audited_with_the_states_before_and_after(world: World) -> None:
    message = begun(world, claim=False)
    terminate_run(run_id=message.run_id, actor="ada", reason=" wrong day ")
    entry = Audit.objects.get()
    assert (entry.actor, entry.action, entry.object_kind) == ("ada", "terminate", "run")
    assert (entry.object_id, entry.flow_id, entry.reason) == (str(message.run_id), "f", "wrong day")
    assert entry.before is not None
    assert entry.before["by_state"] == {"queued": 1, "none": 2}
    assert entry.after is not None
    assert set(entry.after["task_instances"].values()) == {"failed"}


def test_asking_again_changes_nothing_and_is_not_audited(world: World) -> None:
    message = begun(world)
    end(message.ti_id)
    plan = end(message.ti_id)
    assert plan.included == ()
    assert "asked to end before" in plan.excluded[0].effect
    assert Audit.objects.count() == 1


def test_what_has_ended_is_frozen_or_missing_is_refused(world: World) -> None:
    message = begun(world)
    TaskInstance.objects.filter(pk=message.ti_id).update(held_by=7)
    with pytest.raises(NotAllowed, match="Freeze 7 holds it"):
        end(message.ti_id)
    plan = terminate_run(run_id=message.run_id, actor="ada", reason="r", dry_run=True)
    assert [one.task_id for one in plan.excluded] == ["a"]
    TaskInstance.objects.filter(pk=message.ti_id).update(held_by=None)
    world.finish(message)
    with pytest.raises(Conflict, match="has ended as success"):
        end(message.ti_id)
    Run.objects.filter(pk=message.run_id).update(frozen_at=timezone.now())
    with pytest.raises(NotAllowed, match="frozen"):
        terminate_run(run_id=message.run_id, actor="ada", reason="r")
    Run.objects.filter(pk=message.run_id).update(frozen_at=None)
    world.play(message.run_id)
    with pytest.raises(Conflict, match="has ended as success"):
        terminate_run(run_id=message.run_id, actor="ada", reason="r")
    for act in (
        partial(terminate_run, run_id=10**9, actor="ada", reason="r"),
        partial(terminate_task_instance, ti_id=10**9, actor="ada", reason="r"),
    ):
        with pytest.raises(NotFound):
            act()


def test_it_needs_a_reason(world: World) -> None:
    message = begun(world)
    with pytest.raises(InvalidInput, match="Say why"):
        terminate_task_instance(ti_id=message.ti_id, actor="ada", reason=" ")
    assert attempt_of(message).stop_requested_at is None


# -- what would keep it open ends it ---------------------------------------------------------------


def deferred(world: World, message: Message) -> None:
    world.defer_by(world.connection, message)


def rescheduled(world: World, message: Message) -> None:
    moves.finish(
        world.connection,
        ti_id=message.ti_id,
        attempt_id=message.attempt_id,
        nonce=uuid.UUID(int=message.attempt_id.int),
        state=TaskState.UP_FOR_RESCHEDULE,
        is_open=True,
        outcome=AttemptOutcome.RESCHEDULED,
        retry_after_s=1,
    )


def failed_with_a_retry(world: World, message: Message) -> None:
    world.finish(message, ok=False, retry_after_s=1)


def lost(world: World, message: Message) -> None:
    assert moves.lose(
        world.connection, attempt_ids=[message.attempt_id], dead_after_s=0, budget=3, source="t"
    )


def handed_back(world: World, message: Message) -> None:
    assert moves.hand_back(
        world.connection,
        attempt_id=message.attempt_id,
        worker_job_id=world.worker,
        reason="its worker stops",
    )


def killed(world: World, message: Message) -> None:
    assert moves.fail_killed(
        world.connection,
        attempt_id=message.attempt_id,
        state=TaskState.UP_FOR_RETRY,
        is_open=True,
        retry_after_s=1,
        reason="killed",
    )


def cleared_and_stopped(world: World, message: Message) -> None:
    TaskInstance.objects.filter(pk=message.ti_id).update(state="restarting")
    assert moves.begin_anew(world.connection, attempt_id=message.attempt_id, reason="cleared")


@pytest.mark.parametrize(
    ("comes_to", "outcome"),
    [
        (deferred, "terminated"),
        (rescheduled, "terminated"),
        (failed_with_a_retry, "failed"),
        (lost, "lost"),
        (handed_back, "lost"),
        (killed, "terminated"),
        (cleared_and_stopped, "terminated"),
    ],
)
def test_whatever_the_attempt_comes_to_nothing_follows(
    world: World, comes_to: Callable[[World, Message], None], outcome: str
) -> None:
    message = begun(world)
    end(message.ti_id)
    comes_to(world, message)
    ti = TaskInstance.objects.get(pk=message.ti_id)
    assert (ti.state, ti.is_open, ti.next_retry_at, ti.next_method) == ("failed", False, None, None)
    assert ti.ended_at is not None
    assert attempt_of(message).outcome == outcome
    assert not Trigger.objects.exists()
    world.tick(message.run_id)
    assert world.messages == []
    assert Run.objects.get(pk=message.run_id).state == "failed"


def test_a_success_that_came_first_counts(world: World) -> None:
    message = begun(world)
    end(message.ti_id)
    world.finish(message)
    assert (state(message), attempt_of(message).outcome) == ("success", "success")


def test_a_dispatch_after_a_clear_begins_without_the_old_request(world: World) -> None:
    message = begun(world, claim=False)
    end(message.ti_id)
    # As a clear does it, with a new try.
    TaskInstance.objects.filter(pk=message.ti_id).update(
        state="none", is_open=True, max_tries=9, ended_at=None
    )
    world.ticker.forget([message.run_id])
    world.tick(message.run_id)
    (again,), world.messages = world.messages, []
    ti = TaskInstance.objects.get(pk=message.ti_id)
    assert (ti.state, ti.stop_requested_at, ti.stop_reason) == ("queued", None, None)
    assert world.claim(again) is not None
    world.finish(again, ok=False, retry_after_s=0)
    assert state(message) == "up_for_retry"


# -- races -----------------------------------------------------------------------------------------


def somewhat_later(act: Act) -> Act:
    """Spread over the milliseconds that a statement takes, so that each order comes up."""

    def later(connection: psycopg.Connection[Any]) -> Any:
        time.sleep(random.uniform(0, 0.004))
        return act(connection)

    return later


def terminating(message: Message) -> Act:
    def act(connection: psycopg.Connection[Any]) -> Any:
        del connection  # operations have Django's own, one a thread
        try:
            return end(message.ti_id)
        except Conflict:
            return None
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


def finishes(message: Message, *, to: TaskState) -> Act:
    return lambda connection: moves.finish(
        connection,
        ti_id=message.ti_id,
        attempt_id=message.attempt_id,
        nonce=uuid.UUID(int=message.attempt_id.int),
        state=to,
        is_open=to is TaskState.UP_FOR_RETRY,
        outcome=AttemptOutcome.SUCCESS if to is TaskState.SUCCESS else AttemptOutcome.FAILED,
        retry_after_s=None if to is TaskState.SUCCESS else 3600.0,
    )


def defers(world: World, message: Message) -> Act:
    return lambda connection: world.defer_by(connection, message)


def fires(trigger_id: int) -> Act:
    return lambda connection: trigger.fire(
        connection,
        fires=[trigger.Fire(trigger_id=trigger_id, state="fired", payload={"event": 1})],
    )


def test_against_a_claim_it_runs_and_is_asked_or_never_runs(world: World) -> None:
    orders = set()
    for number in range(ROUNDS):
        message = begun(world, claim=False, run_key=f"c{number}")
        claimed, _ = together(
            [somewhat_later(claims(world, message)), somewhat_later(terminating(message))]
        )
        one = attempt_of(message)
        if claimed is None:
            assert (state(message), one.state, one.outcome) == ("failed", "ended", "terminated")
        else:
            assert (state(message), one.state) == ("running", "running")
            assert one.stop_reason == "ada terminated it: bad data"
        orders.add(claimed is None)
    assert orders


@pytest.mark.parametrize("to", [TaskState.UP_FOR_RETRY, TaskState.SUCCESS])
def test_against_a_report_no_try_is_left_and_no_result_is_lost(world: World, to: TaskState) -> None:
    for number in range(ROUNDS):
        message = begun(world, run_key=f"f{number}")
        accepted, _ = together(
            [somewhat_later(finishes(message, to=to)), somewhat_later(terminating(message))]
        )
        assert accepted is not None
        expected = "success" if to is TaskState.SUCCESS else "failed"
        assert state(message) == expected, "whichever came first"
        assert TaskInstance.objects.get(pk=message.ti_id).next_retry_at is None


def test_against_a_deferral_it_never_waits_on(world: World) -> None:
    for number in range(ROUNDS):
        message = begun(world, run_key=f"d{number}")
        together(
            [
                somewhat_later(defers(world, message)),
                somewhat_later(terminating(message)),
            ]
        )
        assert state(message) == "failed"
        assert not Trigger.objects.filter(ti_id=message.ti_id, is_waiting=True).exists()


def test_against_a_fire_the_resume_never_runs(world: World) -> None:
    for number in range(ROUNDS):
        message = begun(world, run_key=f"t{number}")
        trigger_id = world.defer(message)
        together([somewhat_later(fires(trigger_id)), somewhat_later(terminating(message))])
        assert state(message) == "failed"
        assert not Trigger.objects.get(pk=trigger_id).is_waiting
        world.tick(message.run_id)
        assert world.messages == []


def test_against_everything_at_once_a_run_ends_and_nothing_runs_on(world: World) -> None:
    """Ticks, claims, reports and deferrals go on in many threads while the run is terminated."""
    tasks = [TaskDefinition(task_id=f"t{n}", retries=5, retry_delay_s=0) for n in range(24)]
    flow = world.flow("wide", tasks)
    for number in range(3):
        run_id = world.run(flow, f"w{number}")
        world.tick(run_id)
        messages, world.messages = world.messages, []
        gate = threading.Event()

        def worker(message: Message, gate: threading.Event = gate) -> Act:
            def act(connection: psycopg.Connection[Any]) -> Any:
                gate.wait(10)
                time.sleep(random.uniform(0, 0.02))
                if claims(world, message)(connection) is None:
                    return "refused"
                time.sleep(random.uniform(0, 0.02))
                if random.random() < 0.5:
                    return world.defer_by(connection, message)
                return finishes(message, to=TaskState.UP_FOR_RETRY)(connection)

            return act

        def ender(
            connection: psycopg.Connection[Any],
            run: int = run_id,
            gate: threading.Event = gate,
        ) -> Any:
            del connection
            gate.set()
            time.sleep(random.uniform(0, 0.03))
            try:
                return terminate_run(run_id=run, actor="ada", reason="all of it")
            finally:
                django_connection.close()

        together([*(worker(message) for message in messages), ender])
        assert set(world.states(run_id).values()) == {"failed"}
        assert not Attempt.objects.filter(run_id=run_id, is_live=True).exists()
        assert not Trigger.objects.filter(run_id=run_id, is_waiting=True).exists()
        world.ticker.forget([run_id])
        world.tick(run_id)
        assert world.messages == []
        assert Run.objects.get(pk=run_id).state == "failed"
    assert [one for one in compare() if one.differences] == []
