"""Run retries against a real database: when they wait, when they begin, and when they keep out."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import (
    Attempt,
    Audit,
    AutomaticAction,
    Counter,
    Guard,
    Incident,
    Review,
    Run,
    RunAttempt,
    TaskInstance,
)
from scheduler_app.operations.freeze import freeze
from scheduler_app.operations.terminate import terminate_run, terminate_task_instance
from scheduler_app.operations.thaw import thaw
from scheduler_app.processes import database
from scheduler_app.rules.definition import TaskDefinition, TriggerRule
from scheduler_app.rules.errors import Fenced
from scheduler_app.rules.guards import GuardLimits
from scheduler_app.rules.run_retry import RunRetryPolicy
from scheduler_app.scheduler.leases import Leases
from scheduler_app.scheduler.run_retries import begin_due, resolve_overtaken
from scheduler_app.scheduler.versions import Versions
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.lease import acquire
from tests.recording import broken_laws
from tests.world import World, chain

if TYPE_CHECKING:
    import psycopg

    from scheduler_app.models import Flow
    from tests.recording import RecordingConnection


def retrying(world: World, *tasks: TaskDefinition, **policy: Any) -> Flow:
    """A flow whose failed runs are begun again, at once unless told otherwise."""
    options = {"guards": policy.pop("guards", None)}
    asked = RunRetryPolicy(**{"max_attempts": 3, **policy})
    return world.flow("f", tasks or chain("a", "b"), run_retry=asked, **options)


def begin(world: World) -> set[int]:
    """One sweep of the scheduler."""
    moved, _ = begin_due(
        world.connection, leases=world.leases, terms=world.leases.terms(), versions=Versions()
    )
    return moved


def goes(run_id: int) -> list[tuple[int, str, str, bool]]:
    """The run attempts: number, cause, state, and whether set aside."""
    return [
        (one.number, one.cause, one.state, one.filter_code is not None)
        for one in RunAttempt.objects.filter(run_id=run_id).order_by("number")
    ]


def test_a_failed_run_waits_for_its_next_run_attempt_and_says_why(world: World) -> None:
    run_id = world.run(retrying(world, cooldown_s=600))
    run = world.play(run_id, failing=["a"])
    assert run.state == "failed"
    assert run.ended_at is not None
    assert run.retry_at is not None
    assert 595 < (run.retry_at - run.ended_at).total_seconds() < 660
    assert run.retry_reason == "Go 2 of 3 follows because a failed."
    assert begin(world) == set(), "it is not due yet"


def test_it_is_the_same_run_with_its_run_attempts_listed(world: World) -> None:
    run_id = world.run(retrying(world))
    world.play(run_id, failing=["b"])
    assert begin(world) == {run_id}
    run = Run.objects.get(pk=run_id)
    assert (run.state, run.run_attempt, run.retry_count, run.retry_at) == ("queued", 2, 1, None)
    assert world.states(run_id) == {"a": "success", "b": "none"}, "what succeeded is kept"
    run = world.play(run_id)
    assert run.state == "success"
    assert goes(run_id) == [(1, "created", "failed", True), (2, "run_retry", "success", False)]
    first, second = RunAttempt.objects.filter(run_id=run_id).order_by("number")
    assert first.outcome_reason == "b failed."
    assert second.reason == "Go 2 of 3: b failed."
    entry = Audit.objects.get(action="retry")
    assert (entry.actor, entry.object_id) == ("policy", str(run_id))
    assert AutomaticAction.objects.get().run_id == run_id
    assert Counter.objects.get(name="scheduler_run_retries_total").value == 1


def test_two_branches_that_fail_at_once_begin_one_run_attempt(world: World) -> None:
    both = [TaskDefinition(task_id="left"), TaskDefinition(task_id="right")]
    run_id = world.run(retrying(world, *both))
    run = world.play(run_id, failing=["left", "right"])
    assert run.retry_reason == "Go 2 of 3 follows because left, right failed."
    assert begin(world) == {run_id}
    assert begin(world) == set()
    assert Run.objects.get(pk=run_id).run_attempt == 2


def test_a_run_attempt_waits_for_siblings_that_run_on(world: World) -> None:
    both = [TaskDefinition(task_id="bad"), TaskDefinition(task_id="slow")]
    run_id = world.run(retrying(world, *both))
    world.tick(run_id)
    by_task = {TaskInstance.objects.get(pk=m.ti_id).task_id: m for m in world.messages}
    for message in by_task.values():
        world.claim(message)
    world.finish(by_task["bad"], ok=False)
    world.tick(run_id)
    run = Run.objects.get(pk=run_id)
    assert (run.state, run.retry_at) == ("running", None)
    assert begin(world) == set()
    world.finish(by_task["slow"])
    world.tick(run_id)
    assert begin(world) == {run_id}
    assert world.states(run_id) == {"bad": "none", "slow": "success"}


def test_siblings_are_stopped_where_the_policy_asks_for_it(world: World) -> None:
    tasks = [
        TaskDefinition(task_id="bad"),
        TaskDefinition(task_id="slow"),
        TaskDefinition(task_id="waiting", upstream=("slow",)),
    ]
    run_id = world.run(retrying(world, *tasks, siblings="stop"))
    world.tick(run_id)
    by_task = {TaskInstance.objects.get(pk=m.ti_id).task_id: m for m in world.messages}
    for message in by_task.values():
        world.claim(message)
    world.tick(run_id)
    assert not Attempt.objects.filter(stop_requested_at__isnull=False).exists()
    world.finish(by_task["bad"], ok=False)
    world.tick(run_id)
    stopped = Attempt.objects.get(pk=by_task["slow"].attempt_id)
    assert stopped.stop_reason == "Its run is retried: bad failed, and nothing can mend that."
    assert world.states(run_id)["waiting"] == "failed", "what has not started never does"
    world.finish(by_task["slow"], ok=False)
    world.tick(run_id)
    run = Run.objects.get(pk=run_id)
    assert run.state == "failed"
    assert run.retry_reason == "Go 2 of 3 follows because bad failed."
    assert begin(world) == {run_id}
    assert set(world.states(run_id).values()) == {"none"}


def test_a_failure_that_the_flow_forgives_stops_no_sibling(world: World) -> None:
    tasks = [
        TaskDefinition(task_id="bad"),
        TaskDefinition(task_id="slow"),
        TaskDefinition(task_id="end", upstream=("bad", "slow"), trigger_rule=TriggerRule.ALL_DONE),
    ]
    run_id = world.run(retrying(world, *tasks, siblings="stop"))
    run = world.play(run_id, failing=["bad"])
    assert run.state == "success"
    assert run.retry_at is None
    assert not Attempt.objects.filter(stop_requested_at__isnull=False).exists()


def test_at_the_cap_the_run_stays_failed_with_an_alert_and_a_review(world: World) -> None:
    run_id = world.run(retrying(world, max_attempts=3))
    for _ in range(2):
        world.play(run_id, failing=["a"])
        assert begin(world) == {run_id}
    run = world.play(run_id, failing=["a"])
    assert (run.state, run.run_attempt, run.retry_count, run.retry_at) == ("failed", 3, 2, None)
    assert run.retry_reason == "Go 3 of 3 failed: its policy allows no other."
    assert begin(world) == set()
    review = Review.objects.get()
    assert (review.guard, review.action, review.object_id) == (
        "attempts_max",
        "run_retry",
        str(run_id),
    )
    assert review.state == "open"
    incident = Incident.objects.get(kind="review_waits")
    assert incident.resolved_at is None
    assert "Go 3 of 3 failed" in incident.message


def test_each_scope_takes_up_what_it_says(world: World) -> None:
    seen = {}
    for scope in ("failed", "all", "from_checkpoint"):
        flow = world.flow(
            f"f-{scope}",
            chain("a", "b"),
            run_retry=RunRetryPolicy(max_attempts=2, scope=scope),
        )
        run_id = world.run(flow)
        world.play(run_id, failing=["b"])
        assert begin(world) == {run_id}
        seen[scope] = world.states(run_id)
    assert seen == {
        "failed": {"a": "success", "b": "none"},
        "all": {"a": "none", "b": "none"},
        "from_checkpoint": {"a": "none", "b": "none"},
    }


@pytest.mark.parametrize("what", ["run", "task_instance"])
def test_what_a_person_terminated_is_not_retried(world: World, what: str) -> None:
    run_id = world.run(retrying(world))
    world.tick(run_id)
    if what == "run":
        terminate_run(run_id=run_id, actor="ana", reason="wrong date")
    else:
        ti = TaskInstance.objects.get(run_id=run_id, task_id="a")
        terminate_task_instance(ti_id=ti.pk, actor="ana", reason="wrong date")
    world.messages.clear()
    run = world.play(run_id)
    assert (run.state, run.retry_at) == ("failed", None)
    assert run.retry_reason.startswith("Not retried: ana terminated")
    assert begin(world) == set()
    assert not Review.objects.exists()


def test_only_what_the_policy_names_is_retried(world: World) -> None:
    outcome = {}
    for kind, bases in (("ConnectionResetError", ["OSError", "Exception"]), ("ValueError", [])):
        flow = world.flow(
            f"f-{kind}", chain("a"), run_retry=RunRetryPolicy(max_attempts=2, on=("OSError",))
        )
        run_id = world.run(flow)
        world.tick(run_id)
        world.serve(failing=["a"])
        Attempt.objects.filter(run_id=run_id).update(
            error={"type": kind, "message": "m", "traceback": "", "bases": bases}
        )
        outcome[kind] = world.play(run_id).retry_reason
    assert outcome == {
        "ConnectionResetError": "Go 2 of 2 follows because a failed.",
        "ValueError": "Not retried: a failed otherwise than its policy retries on.",
    }


def test_a_freeze_stops_the_clock_of_a_waiting_run(world: World) -> None:
    run_id = world.run(retrying(world, cooldown_s=0.2))
    world.play(run_id, failing=["a"])
    freeze(scope_kind="run", scope_id=run_id, actor="ana", reason="look first")
    before = Run.objects.get(pk=run_id)
    world.connection.execute("SELECT pg_sleep(0.3)")
    assert begin(world) == set(), "it is due, and frozen"
    thaw(scope_kind="run", scope_id=run_id, actor="ana", reason="go on")
    after = Run.objects.get(pk=run_id)
    assert before.retry_at is not None
    assert after.retry_at is not None
    assert (after.retry_at - before.retry_at).total_seconds() >= 0.3
    world.connection.execute("SELECT pg_sleep(0.25)")
    assert begin(world) == {run_id}


def test_a_frozen_flow_begins_no_run_attempt(world: World) -> None:
    run_id = world.run(retrying(world))
    world.play(run_id, failing=["a"])
    freeze(scope_kind="flow", scope_id="f", actor="ana", reason="look first")
    assert begin(world) == set()
    thaw(scope_kind="flow", scope_id="f", actor="ana", reason="go on")
    world.connection.execute("SELECT pg_sleep(0.05)")
    assert begin(world) == {run_id}


def test_six_sweepers_at_once_begin_one_run_attempt(world: World) -> None:
    run_id = world.run(retrying(world, max_attempts=5))
    world.play(run_id, failing=["a"])
    begun: list[int] = []
    start = threading.Barrier(6)

    def sweep() -> None:
        with database.connect("scheduler") as own:
            start.wait(60)
            moved, _ = begin_due(
                own, leases=world.leases, terms=world.leases.terms(), versions=Versions()
            )
            begun.extend(moved)

    threads = [threading.Thread(target=sweep) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    run = Run.objects.get(pk=run_id)
    assert begun == [run_id]
    assert (run.run_attempt, run.retry_count) == (2, 1)
    assert AutomaticAction.objects.count() == 1


def test_a_leader_that_lost_its_lease_begins_nothing(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    run_id = world.run(retrying(world))
    world.play(run_id, failing=["a"])
    terms = world.leases.terms()
    raw.execute("UPDATE lease SET expires_at = clock_timestamp() - interval '1 s'")
    with raw.transaction():
        acquire(raw, holder=uuid7(), want=16, ttl_s=60)
    with pytest.raises(Fenced):
        begin_due(raw, leases=world.leases, terms=terms, versions=Versions())
    assert Run.objects.get(pk=run_id).run_attempt == 1


def test_the_transactions_of_a_run_retry_keep_the_laws(recording: RecordingConnection) -> None:
    held = Leases(holder=uuid7(), ttl_s=60, renew_interval_s=12, deadline_s=40)
    held.balance(recording, dead_after_s=60)
    world = World(recording, held)
    both = [TaskDefinition(task_id="bad"), TaskDefinition(task_id="slow")]
    run_id = world.run(retrying(world, *both, max_attempts=2, siblings="stop"))
    world.tick(run_id)
    for message in world.messages:
        world.claim(message)
    for message in world.messages:
        world.finish(message, ok=False)
        recording.transactions.clear()
        world.tick(run_id)
        assert broken_laws(list(recording.transactions), deciding=True) == []
    world.messages.clear()
    recording.transactions.clear()
    assert begin(world) == {run_id}
    assert broken_laws(list(recording.transactions), deciding=True) == []
    world.tick(run_id)
    world.serve(failing=["bad"])
    recording.transactions.clear()
    world.tick(run_id)
    assert Review.objects.count() == 1, "the last run attempt failed too"
    assert broken_laws(list(recording.transactions), deciding=True) == []


def test_a_guard_lets_the_run_wait_for_a_person(world: World) -> None:
    flow = retrying(world, max_attempts=9, guards=GuardLimits(actions_max=1, window_s=3600))
    first, second = world.run(flow, "r1"), world.run(flow, "r2")
    world.play(first, failing=["a"])
    world.play(second, failing=["a"])
    assert begin(world) == {first, second}
    runs = {run.run_key: run for run in Run.objects.all()}
    assert (runs["r1"].run_attempt, runs["r2"].run_attempt) == (2, 1)
    assert runs["r2"].retry_at is None
    review = Review.objects.get()
    assert (review.guard, review.object_id) == ("actions_max", str(second))
    assert runs["r2"].retry_reason.startswith(f"Waits for a person in review {review.pk}: ")
    assert runs["r2"].retry_count == 0, "what did not happen is not counted"
    assert AutomaticAction.objects.count() == 1


def test_the_kill_switch_holds_every_run_attempt(world: World) -> None:
    run_id = world.run(retrying(world))
    world.play(run_id, failing=["a"])
    Guard.objects.create(
        is_stopped=True, actor="ana", reason="the target is down", updated_at="2026-01-01T00:00Z"
    )
    assert begin(world) == {run_id}
    assert Run.objects.get(pk=run_id).run_attempt == 1
    assert Review.objects.get().summary == (
        "ana stopped automatic actions everywhere: the target is down"
    )


def test_a_review_that_the_world_overtook_is_resolved(world: World) -> None:
    run_id = world.run(retrying(world, max_attempts=1))
    world.play(run_id, failing=["a"])
    review = Review.objects.get()
    asked: dict[str, Any] = {"leases": world.leases, "terms": world.leases.terms()}
    assert not resolve_overtaken(world.connection, **asked)
    Run.objects.filter(pk=run_id).update(run_attempt=2)
    assert resolve_overtaken(world.connection, **asked)
    review.refresh_from_db()
    assert review.state == "resolved"
    assert "run attempt 2" in review.note
    assert Incident.objects.get(kind="review_waits").resolved_at is not None
