"""Defer and resume races, and the triggerer."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Attempt, ExecutorEvent, Job, TaskInstance, Trigger
from scheduler_app.operations.clear import clear_task_instances
from scheduler_app.operations.freeze import freeze
from scheduler_app.operations.thaw import thaw
from scheduler_app.queries import health
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules.states import TaskState
from scheduler_app.transitions import trigger
from scheduler_app.transitions.attempt import beat, fail_killed
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.job import start_job
from tests.replays import saying
from tests.together import together
from tests.world import World, chain

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from scheduler_app.transitions.attempt import Message

DUE_MAX = 100


def test_b011_an_exit_read_while_the_resume_is_queued_makes_no_second_execution(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    """The stale event comes in the queued state, three times; the resumed part runs once."""
    run_id = world.run(world.flow("f", chain("a", retries=2)))
    world.tick(run_id)
    first = world.messages.pop()
    assert world.claim(first) is not None
    world.fire(world.defer(first))
    world.tick(run_id)
    assert world.states(run_id) == {"a": "queued"}
    for _ in range(3):
        saying.say(raw, first.attempt_id, "exit_success")
        world.judge()
        world.tick(run_id)
    assert world.states(run_id) == {"a": "queued"}
    (second,) = world.messages
    assert world.claim(second) is not None
    assert world.claim(second, uuid.uuid4()) is None, "a doubled delivery executes nothing"
    world.finish(second)
    world.tick(run_id)
    assert saying.outcomes(run_id) == [("deferred", 1, 0, 1), ("success", 1, 1, 1)]
    assert set(saying.verdicts(first.attempt_id)) == {
        ("exit_success", "stale_after_defer", "stale_after_defer")
    }
    saying.assert_nothing_hidden()


def test_b013_a_fire_before_the_exit_was_noticed_is_not_refused_and_never_lost(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    """Nobody has told that the first execution is over; the resume is dispatched all the same.

    No executor keeps a list of tasks that it thinks are running: each dispatch is an attempt of its
    own, so nothing of the old one stands in the way of the new one.
    """
    run_id = world.run(world.flow("f", chain("a")))
    world.tick(run_id)
    first = world.messages.pop()
    assert world.claim(first) is not None
    world.fire(world.defer(first))
    world.tick(run_id)
    second = world.messages.pop()
    assert world.claim(second) is not None, "by the same worker, whose child has not ended yet"
    saying.say(raw, first.attempt_id, "exit_success")
    world.judge()
    world.finish(second)
    world.tick(run_id)
    assert saying.outcomes(run_id) == [("deferred", 1, 0, 1), ("success", 1, 1, 1)]


def test_b015_events_that_come_while_their_triggers_are_registered_resume_each_task_once(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    """Six tasks hand over while the event of each is sent, twice: each resumes exactly once."""
    count = 6
    run_id = world.run(world.flow("f", [task for i in range(count) for task in chain(f"t{i}")]))
    world.tick(run_id)
    first, world.messages = world.messages, []
    assert len(first) == count
    for message in first:
        assert world.claim(message) is not None

    def hand_over(message: Message) -> Callable[[psycopg.Connection[Any]], Any]:
        return lambda c: world.defer_by(c, message, kind="event", event_key="go")

    def send(ti_id: int) -> Callable[[psycopg.Connection[Any]], None]:
        def act(connection: psycopg.Connection[Any]) -> None:
            with connection.transaction():
                event_id, waiting = trigger.record_external_event(
                    connection, ti_id=ti_id, key="go", payload=7, actor="tests"
                )
            if waiting is not None:
                trigger.fire(
                    connection,
                    fires=[
                        trigger.Fire(
                            trigger_id=waiting,
                            state="fired",
                            payload={"event": 7},
                            event_id=event_id,
                        )
                    ],
                )

        return act

    acts: list[Callable[[psycopg.Connection[Any]], Any]] = []
    for message in first:
        acts += [
            hand_over(message),
            send(message.ti_id),
            send(message.ti_id),
        ]
    together(acts)
    for _ in range(3):  # what came before its trigger is found by the triggerers' look
        together([lambda c: trigger.fire_due(c, limit=DUE_MAX)] * 2)
    assert set(world.states(run_id).values()) == {"scheduled"}
    assert set(Trigger.objects.values_list("state", "is_waiting")) == {("fired", False)}
    assert Trigger.objects.count() == count, "nobody waits a second time"
    world.tick(run_id)
    assert len(world.messages) == count
    world.serve()
    world.tick(run_id)
    assert (
        sorted(TaskInstance.objects.values_list("state", "resume_index"))
        == [("success", 1)] * count
    )
    saying.assert_nothing_hidden()


def test_b017_a_triggerer_whose_loop_stands_still_is_unhealthy_and_loses_its_triggers(
    world: World, raw: psycopg.Connection[Any], dead_soon: None
) -> None:
    """It still beats, from another thread, but its loop gets on no more: progress decides.

    (A loop that is blocked for real, and the trigger that blocks it named and isolated:
    ``tests/integration/triggerer/test_service.py``.)
    """
    blocked, other = uuid7(), uuid7()
    for job_id in (blocked, other):
        start_job(raw, job_id=job_id, kind="triggerer", name="", hostname="h", pid=1, detail={})
    run_id = world.run(world.flow("f", chain("a")))
    world.tick(run_id)
    first = world.messages.pop()
    assert world.claim(first) is not None
    trigger_id = world.defer(first)
    taken = trigger.claim_triggers(raw, job_id=blocked, limit=10, dead_after_s=20)
    assert [one.trigger_id for one in taken] == [trigger_id]
    assert trigger.claim_triggers(raw, job_id=other, limit=10, dead_after_s=20) == []

    Job.objects.filter(pk=other).delete()
    raw.execute("UPDATE job SET progress_at = progress_at - interval '60 seconds'")
    (component,) = [one for one in health.health(EVERYTHING).components if one.kind == "triggerer"]
    assert component.alive == 1, "its process lives"
    assert not component.is_healthy, "and does not get on"

    start_job(raw, job_id=other, kind="triggerer", name="", hostname="h", pid=2, detail={})
    taken = trigger.claim_triggers(raw, job_id=other, limit=10, dead_after_s=20)
    assert [one.trigger_id for one in taken] == [trigger_id], "taken over"
    assert trigger.watched_by(raw, job_id=blocked) == frozenset()
    assert world.fire(trigger_id, "from the new one") == "moved"
    assert world.fire(trigger_id, "late, from the old one") == "late"
    ti = TaskInstance.objects.get(run_id=run_id)
    assert (ti.state, ti.resume_index) == ("scheduled", 1)
    assert ti.next_kwargs is not None
    assert ti.next_kwargs["event"] == "from the new one"


def test_b019_a_worker_that_sees_its_task_deferred_before_its_child_ended_kills_nothing(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    """The child takes 20 s to end after the deferral was committed; its worker beats meanwhile."""
    saying.start_worker(raw, world)
    run_id = world.run(world.flow("f", chain("a")))
    world.tick(run_id)
    message = world.messages.pop()
    assert world.claim(message) is not None
    trigger_id = world.defer(message)
    (answer,) = beat(raw, attempt_ids=[message.attempt_id], worker_job_id=world.worker)
    assert (answer.is_wanted, answer.state, answer.stop_reason) == (False, "ended", None)
    # The worst that its worker may do then: ask it to stop, and kill what is still there.
    assert (
        fail_killed(
            raw,
            attempt_id=message.attempt_id,
            state=TaskState.FAILED,
            is_open=False,
            retry_after_s=None,
            reason="Killed by its worker.",
        )
        is None
    )
    saying.say(raw, message.attempt_id, "exit_killed", age_s=20)
    world.judge()
    assert world.states(run_id) == {"a": "deferred"}
    event = ExecutorEvent.objects.get()
    assert event.filter_code == "stale_after_defer"
    assert Attempt.objects.get().outcome == "deferred"
    world.fire(trigger_id)
    world.tick(run_id)
    world.serve()
    world.tick(run_id)
    assert saying.outcomes(run_id) == [("deferred", 1, 0, 1), ("success", 1, 1, 1)]
    saying.assert_nothing_hidden()


@pytest.mark.parametrize("state", ["deferred", "scheduled", "queued", "running", "success"])
def test_whatever_is_said_of_a_deferring_attempt_is_stale_in_every_state(
    world: World, raw: psycopg.Connection[Any], state: str
) -> None:
    """The kind of all of these, for each witness and each state that the task may be in by then."""
    run_id = world.run(world.flow("f", chain("a", retries=1)))
    world.tick(run_id)
    first = world.messages.pop()
    assert world.claim(first) is not None
    trigger_id = world.defer(first)
    steps: list[Callable[[], Any]] = [
        lambda: None,
        lambda: world.fire(trigger_id),
        lambda: world.tick(run_id),
        lambda: world.claim(world.messages[0]),
        lambda: world.finish(world.messages[0]),
    ]
    for step in steps:
        step()
        if world.states(run_id) == {"a": state}:
            break
    kinds = ("exit_success", "exit_failed", "exit_killed", "worker_lost", "handed_back")
    for kind in kinds:
        saying.say(raw, first.attempt_id, kind)
    world.judge()
    assert world.states(run_id) == {"a": state}
    assert saying.verdicts(first.attempt_id) == [
        (kind, "stale_after_defer", "stale_after_defer") for kind in kinds
    ]
    saying.assert_nothing_hidden()


def test_the_exit_of_a_deferring_execution_that_is_read_after_a_clear_moves_nothing(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    """B011 once more, where a person cleared the task before its exit was noticed."""
    run_id = world.run(world.flow("f", chain("a", retries=1)))
    world.tick(run_id)
    (first,), world.messages = world.messages, []
    assert world.claim(first) is not None
    world.defer(first)
    clear_task_instances(ti_ids=[first.ti_id], actor="ana", reason="r", dry_run=False)
    world.tick(run_id)
    (anew,), world.messages = world.messages, []
    saying.say(raw, first.attempt_id, "exit_success")
    assert world.claim(anew) is not None
    saying.say(raw, first.attempt_id, "exit_killed")
    world.judge()
    assert world.states(run_id) == {"a": "running"}
    assert {code for _, code, _ in saying.verdicts(first.attempt_id)} <= {
        "stale_after_defer",
        "stale_superseded",
    }
    world.finish(anew)
    assert world.play(run_id).state == "success"
    assert len(world.attempts(run_id)) == 2
    saying.assert_nothing_hidden()


def test_the_exit_of_a_deferring_execution_that_comes_in_a_freeze_is_judged_after_it(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    """It waits for the thaw with what fired meanwhile; then the resume runs, once."""
    run_id = world.run(world.flow("f", chain("a")))
    world.tick(run_id)
    (first,), world.messages = world.messages, []
    assert world.claim(first) is not None
    trigger_id = world.defer(first)
    freeze(scope_kind="run", scope_id=run_id, actor="ana", reason="look")
    saying.say(raw, first.attempt_id, "exit_success")
    assert world.fire(trigger_id, "came") == "kept"
    world.judge()
    assert saying.verdicts(first.attempt_id)[0][1] is None, "not judged while it is frozen"
    thaw(scope_kind="run", scope_id=run_id, actor="ana", reason="seen")
    trigger.fire_due(raw, limit=DUE_MAX)
    world.tick(run_id)
    (resumed,), world.messages = world.messages, []
    world.judge()
    assert [code for _, code, _ in saying.verdicts(first.attempt_id)] == ["stale_after_defer"]
    assert world.claim(resumed) is not None
    world.finish(resumed)
    assert world.play(run_id).state == "success"
    assert [one.resume_index for one in world.attempts(run_id)] == [0, 1]
    saying.assert_nothing_hidden()
