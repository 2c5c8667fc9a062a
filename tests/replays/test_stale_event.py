"""Stale and late executor events, and terminal states that somebody overwrote."""

from __future__ import annotations

import os
import signal
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import Permission

from scheduler_app.models import Attempt, ExecutorEvent, TaskInstance
from scheduler_app.operations.record_executor_event import Statement, record_executor_event
from scheduler_app.rules.states import AttemptOutcome, TaskState
from scheduler_app.transitions.attempt import fail_killed
from scheduler_app.worker import report
from tests.replays import saying
from tests.replays.flows import noted, running_attempt
from tests.stack import wait_for
from tests.world import World, chain

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg
    from django.contrib.auth.models import User
    from django.test import Client

    from tests.stack import Stack
    from tests.workshop import Workshop


@pytest.mark.parametrize("names", ["the attempt", "task and try"])
def test_b001_an_exit_read_when_the_resume_runs_changes_no_state(
    world: World, raw: psycopg.Connection[Any], settings: Any, names: str
) -> None:
    """Deferred, fired, resumed and running; only now is the exit of the deferring execution read."""
    settings.EXIT_GRACE_S = 0.0
    run_id = world.run(world.flow("f", chain("a", retries=1)))
    world.tick(run_id)
    first = world.messages.pop()
    assert world.claim(first) is not None
    world.fire(world.defer(first))
    world.tick(run_id)
    second = world.messages.pop()
    assert world.claim(second) is not None
    if names == "the attempt":
        saying.say(raw, first.attempt_id, "exit_success")
    else:
        record_executor_event(
            Statement(flow_id="f", run_id="r1", task_id="a", try_number=1, state="success"),
            actor="executor",
        )
    world.judge()
    (event,) = ExecutorEvent.objects.all()
    assert (event.verdict, event.filter_code) == ("ignored", "stale_after_defer")
    assert event.verdict_reason
    assert world.states(run_id) == {"a": "running"}
    world.finish(second)
    assert world.states(run_id) == {"a": "success"}
    world.tick(run_id)
    assert saying.outcomes(run_id) == [("deferred", 1, 0, 1), ("success", 1, 1, 1)]
    saying.assert_nothing_hidden()


def test_b003_an_executor_that_says_success_of_what_never_started_makes_no_success(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    """Hundreds of times. The attempt is published again, as after the queued timeout, and runs once.

    The event is confirmed as *never claimed* and stays in view: somebody has to look after an
    executor that says such things.
    """
    run_id = world.run(world.flow("f", chain("a")))
    world.tick(run_id)
    message = world.messages.pop()
    saying.say(raw, message.attempt_id, "exit_success", times=500)
    while ExecutorEvent.objects.filter(verdict="pending").exists():
        world.judge()
    assert world.states(run_id) == {"a": "queued"}
    assert set(saying.verdicts(message.attempt_id)) == {("exit_success", "never_claimed", None)}
    (again,) = saying.republish(raw, world)
    assert again.attempt_id == message.attempt_id, "the same attempt, once"
    assert world.claim(message) is not None
    assert world.claim(again, uuid.uuid4()) is None, "one execution"
    world.finish(message)
    world.tick(run_id)
    assert saying.outcomes(run_id) == [("success", 1, 0, 1)]


def test_b003_by_task_and_try_it_makes_no_success_either(world: World, settings: Any) -> None:
    """An executor that lost it without a deferral: the task is retried, and nothing succeeded."""
    settings.EXIT_GRACE_S = 0.0
    run_id = world.run(world.flow("f", chain("a", retries=1)))
    world.tick(run_id)
    for _ in range(5):
        record_executor_event(
            Statement(flow_id="f", run_id="r1", task_id="a", try_number=1, state="success"),
            actor="executor",
        )
        world.judge()
    assert world.states(run_id) == {"a": "up_for_retry"}
    assert saying.outcomes(run_id) == [("terminated", 1, 0, 1)], "one retry for all of them"
    assert world.claim(world.messages.pop()) is None, "and its message finds a closed door"


@pytest.mark.parametrize(
    ("attempt_id", "status"),
    [("garbage", 400), ("", 400), ("a" * 10_000, 400), (str(uuid.uuid4()), 201)],
    ids=["malformed", "empty", "huge", "never issued"],
)
def test_b005_a_completion_with_a_garbage_fence_is_answered_once_and_for_all(
    api: Client, ana: User, world: World, attempt_id: str, status: int
) -> None:
    """At once, with an error that a client does not retry, and nothing is written.

    A well-formed id that nobody issued is taken down: it is the trace of a ghost.
    """
    ana.user_permissions.add(Permission.objects.get(codename="add_executorevent"))
    run_id = world.run(world.flow("f", chain("a")))
    world.tick(run_id)
    body = {"flow_id": "f", "run_id": "r1", "task_id": "a", "try_number": 1, "state": "success"}
    began = time.monotonic()
    answer = api.post(
        "/api/v1/executor-events/", {**body, "attempt_id": attempt_id}, "application/json"
    )
    assert time.monotonic() - began < 5, "well under a second on a machine that is not busy"
    assert answer.status_code == status, answer.content
    if status == 400:
        assert "attempt_id" in answer.content.decode()
        assert not ExecutorEvent.objects.exists()
    world.judge()
    assert world.states(run_id) == {"a": "queued"}
    assert set(ExecutorEvent.objects.values_list("verdict", flat=True)) <= {"ghost"}


def test_b005_a_report_with_another_nonce_or_fence_is_taken_down_and_changes_nothing(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    """The worker that sends it has its answer and does not send it again."""
    run_id = world.run(world.flow("f", chain("a")))
    world.tick(run_id)
    message = world.messages.pop()
    forged = type(message)(
        attempt_id=message.attempt_id,
        ti_id=message.ti_id,
        run_id=run_id,
        fence=message.fence + 1000,
        lease_token=message.lease_token,
        queue=message.queue,
    )
    assert world.claim(forged) is None
    assert saying.refuse_delivery(raw, world, forged, uuid.uuid4()) == "fenced_stale_leader"
    assert world.claim(message) is not None
    for _ in range(2):
        sent = report.send(
            raw,
            report.Report(
                ti_id=message.ti_id,
                attempt_id=str(message.attempt_id),
                nonce=str(uuid.uuid4()),
                state=TaskState.SUCCESS,
                is_open=False,
                outcome=AttemptOutcome.SUCCESS,
                retry_after_s=None,
            ),
            source="worker: host-2",
            job_id=world.worker,
        )
        assert sent is None
    world.judge()
    assert world.states(run_id) == {"a": "running"}
    late = [v for v in saying.verdicts(message.attempt_id) if v[0] == "late_report"]
    assert late
    assert {code for _, _, code in late} == {"stale_superseded"}
    world.finish(message)
    assert world.states(run_id) == {"a": "success"}


def test_b007_a_worker_that_comes_late_to_a_closed_attempt_executes_nothing(
    workshop: Workshop, tmp_path: Path
) -> None:
    """Given up before anybody claimed it; then its delivery reaches a worker after all."""
    sink = tmp_path / "sink"
    message = workshop.issue_one(
        f"""
        from scheduler_app.authoring import flow, task

        @task
        def t():
            open({str(sink)!r}, "w").close()

        @flow
        def f():
            t()
        """
    )
    moved = fail_killed(
        workshop.connection,
        attempt_id=message.attempt_id,
        from_state=TaskState.QUEUED,
        state=TaskState.FAILED,
        is_open=False,
        retry_after_s=None,
        reason="Nobody started it in time.",
    )
    assert moved is not None
    assert workshop.deliver(message).what == "refused"
    assert not sink.exists(), "no user code"
    assert workshop.ti(message).state == "failed"
    (event,) = workshop.events(message)
    assert (event.verdict, event.filter_code) == ("refused", "refused_superseded")
    assert event.verdict_reason
    saying.assert_nothing_hidden()


def test_b009_a_child_killed_by_the_kernel_fails_its_try_and_calls_back_once(
    stack: Stack, gate: str
) -> None:
    """Killed with signal 9 in each of two tries: a retry, then failed, each with one callback."""
    run = stack.trigger("holds", conf={"gate": gate})
    for tries in (1, 2):
        attempt = running_attempt(stack, run, "held", starts=tries)
        os.kill(attempt["pid"], signal.SIGKILL)
    assert stack.wait_for_run(run, within_s=120)["state"] == "failed"
    tries_made = [p for p in stack.attempts(run) if p["kind"] == "task"]
    assert [(p["outcome"], p["try_number"]) for p in tries_made] == [
        ("terminated", 1),
        ("terminated", 2),
    ]
    for attempt in tries_made:
        (event,) = [e for e in stack.events(attempt["id"]) if e["kind"] == "exit_killed"]
        assert event["verdict_code"] == "killed_externally"
        assert event["payload"]["signal_name"] == "SIGKILL"
    ti = stack.row("SELECT state FROM task_instance WHERE run_id = %s", run["id"])
    assert ti == {"state": "failed"}
    wait_for_callbacks(stack, run)
    assert sorted(noted(stack, run)) == ["held on_failure", "held on_retry"] + ["held start"] * 2
    stack.assert_nothing_hidden()


def wait_for_callbacks(stack: Stack, run: dict[str, Any]) -> None:
    """Every callback of the run is over."""
    wait_for(
        "the callbacks end",
        lambda: not [p for p in stack.attempts(run) if p["kind"] == "callback" and p["is_live"]],
        within_s=60,
    )


def test_a_terminal_state_is_never_overwritten_by_an_event(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    """The kind of all of these: whatever is said of an attempt that ended, it stays as it ended."""
    run_id = world.run(world.flow("f", chain("a", "b")))
    world.play(run_id, failing=["b"])
    before = sorted(TaskInstance.objects.values_list("id", "state", "ended_at"))
    for attempt in Attempt.objects.all():
        for kind in ("exit_success", "exit_failed", "exit_killed", "worker_lost"):
            saying.say(raw, attempt.pk, kind)
    world.judge()
    assert not ExecutorEvent.objects.filter(verdict="pending").exists()
    assert sorted(TaskInstance.objects.values_list("id", "state", "ended_at")) == before
    saying.assert_nothing_hidden()
