"""What people and services do about run retries, guards and reviews."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections

from scheduler_app.models import (
    Audit,
    AutomaticAction,
    Guard,
    Incident,
    Review,
    Run,
    RunAttempt,
    TaskInstance,
)
from scheduler_app.operations.clear import clear_run, clear_task_instances
from scheduler_app.operations.guards import set_guard
from scheduler_app.operations.retry_run import cancel_retry, retry_run
from scheduler_app.operations.reviews import approve_review, dismiss_review
from scheduler_app.rules.clear import Options
from scheduler_app.rules.errors import Conflict, HeldForReview, InvalidInput, NotFound
from scheduler_app.rules.guards import GuardLimits
from scheduler_app.rules.run_retry import RunRetryPolicy
from scheduler_app.scheduler.run_retries import begin_due
from scheduler_app.scheduler.versions import Versions
from tests.world import chain

if TYPE_CHECKING:
    from tests.world import World

WHY: dict[str, Any] = {"actor": "ana", "reason": "the disk has room again"}


def failed(world: World, *, policy: RunRetryPolicy | None = None, **options: Any) -> int:
    """A run whose second task failed."""
    run_id = world.run(world.flow("f", chain("a", "b"), run_retry=policy, **options))
    world.play(run_id, failing=["b"])
    return run_id


def begin(world: World) -> set[int]:
    moved, _ = begin_due(
        world.connection, leases=world.leases, terms=world.leases.terms(), versions=Versions()
    )
    return moved


# -- retry now, cancel ------------------------------------------------------------------------


def test_a_retry_now_is_the_one_that_was_waited_for(world: World) -> None:
    run_id = failed(world, policy=RunRetryPolicy(max_attempts=2, cooldown_s=600))
    plan = retry_run(run_id=run_id, dry_run=True, actor="ana")
    assert [one.task_id for one in plan.included] == ["b"]
    retry_run(run_id=run_id, plan_id=plan.plan_id, **WHY)
    run = Run.objects.get(pk=run_id)
    assert (run.state, run.run_attempt, run.retry_count, run.retry_at) == ("queued", 2, 1, None)
    newest = RunAttempt.objects.get(run_id=run_id, number=2)
    assert (newest.cause, newest.actor, newest.reason) == (
        "run_retry",
        "ana",
        "the disk has room again",
    )
    run = world.play(run_id, failing=["b"])
    assert run.retry_reason == "Go 2 of 2 failed: its policy allows no other."
    assert Audit.objects.get(action="retry").actor == "ana"


def test_past_the_cap_a_person_may_have_one_more_go_and_the_policy_none(world: World) -> None:
    run_id = failed(world, policy=RunRetryPolicy(max_attempts=1))
    retry_run(run_id=run_id, **WHY)
    run = world.play(run_id, failing=["b"])
    assert (run.run_attempt, run.retry_count, run.retry_at) == (2, 0, None)
    assert begin(world) == set()


def test_a_run_without_a_policy_repeats_what_failed(world: World) -> None:
    run_id = failed(world)
    retry_run(run_id=run_id, **WHY)
    assert world.states(run_id) == {"a": "success", "b": "none"}


def test_only_a_failed_run_is_retried(world: World) -> None:
    run_id = world.run(world.flow("f", chain("a")))
    with pytest.raises(Conflict, match="is queued: only a failed run"):
        retry_run(run_id=run_id, **WHY)
    with pytest.raises(NotFound):
        retry_run(run_id=999_999, **WHY)
    with pytest.raises(InvalidInput, match="Say why"):
        retry_run(run_id=failed_again(world), actor="ana", reason=" ")


def failed_again(world: World) -> int:
    run_id = world.run(world.flow("g", chain("a")))
    world.play(run_id, failing=["a"])
    return run_id


def test_a_cancelled_retry_does_not_come(world: World) -> None:
    run_id = failed(world, policy=RunRetryPolicy(max_attempts=3))
    cancel_retry(run_id=run_id, actor="ana", dry_run=True)
    assert Run.objects.get(pk=run_id).retry_at is not None
    cancel_retry(run_id=run_id, **WHY)
    run = Run.objects.get(pk=run_id)
    assert (run.state, run.retry_at) == ("failed", None)
    assert run.retry_reason == "ana cancelled its retry: the disk has room again"
    assert begin(world) == set()
    with pytest.raises(Conflict, match="nothing is to cancel"):
        cancel_retry(run_id=run_id, **WHY)
    assert Audit.objects.filter(action="cancel_retry").count() == 1


def test_a_clear_by_a_person_gives_the_policy_its_whole_budget_again(world: World) -> None:
    run_id = failed(world, policy=RunRetryPolicy(max_attempts=2))
    begin(world)
    world.play(run_id, failing=["b"])
    assert Run.objects.get(pk=run_id).retry_count == 1
    clear_run(run_id=run_id, dry_run=False, **WHY)
    run = Run.objects.get(pk=run_id)
    assert (run.retry_count, run.retry_reason) == (0, "")
    run = world.play(run_id, failing=["b"])
    assert run.retry_reason == "Go 2 of 2 follows because b failed."


def test_a_clear_by_a_service_gives_the_policy_nothing(world: World) -> None:
    run_id = failed(world, policy=RunRetryPolicy(max_attempts=2))
    begin(world)
    world.play(run_id, failing=["b"])
    clear_run(run_id=run_id, dry_run=False, automated=True, **WHY)
    run = world.play(run_id, failing=["b"])
    assert (run.retry_count, run.retry_at) == (1, None)


def test_a_clear_while_the_run_waits_takes_the_place_of_its_retry(world: World) -> None:
    run_id = failed(world, policy=RunRetryPolicy(max_attempts=3))
    ti = TaskInstance.objects.get(run_id=run_id, task_id="b")
    clear_task_instances(ti_ids=[ti.pk], dry_run=False, **WHY)
    run = Run.objects.get(pk=run_id)
    assert (run.state, run.run_attempt, run.retry_at, run.retry_count) == ("queued", 1, None, 0)
    assert begin(world) == set()


# -- guards and reviews -----------------------------------------------------------------------


def guarded(world: World, **limits: Any) -> int:
    return failed(world, guards=GuardLimits(**limits))


def test_a_service_clears_as_long_as_no_guard_stops_it(world: World) -> None:
    run_id = guarded(world, actions_max=1)
    clear_run(run_id=run_id, dry_run=False, automated=True, actor="robot", reason="alert 7")
    done = AutomaticAction.objects.get()
    assert (done.kind, done.run_id, done.task_instance_count, done.actor) == (
        "clear",
        run_id,
        2,
        "robot",
    )
    world.play(run_id, failing=["b"])
    with pytest.raises(HeldForReview, match="waits for a person in review") as held:
        clear_run(run_id=run_id, dry_run=False, automated=True, actor="robot", reason="alert 8")
    run = Run.objects.get(pk=run_id)
    assert (run.state, run.run_attempt) == ("failed", 2), "nothing was cleared"
    review = Review.objects.get(pk=str(held.value.extra["review"]))
    assert (review.guard, review.action, review.asked_by, review.reason, review.state) == (
        "actions_max",
        "clear",
        "robot",
        "alert 8",
        "open",
    )
    assert Incident.objects.get(kind="review_waits").resolved_at is None
    assert AutomaticAction.objects.count() == 1


def test_people_pass_every_guard(world: World) -> None:
    run_id = guarded(world, actions_max=0, task_instances_max=0)
    clear_run(run_id=run_id, dry_run=False, **WHY)
    assert Run.objects.get(pk=run_id).run_attempt == 2
    assert not AutomaticAction.objects.exists()


def test_the_blast_radius_counts_what_one_action_touches(world: World) -> None:
    run_id = guarded(world, task_instances_max=1)
    asked: dict[str, Any] = {"dry_run": False, "automated": True, "actor": "r", "reason": "x"}
    with pytest.raises(HeldForReview, match="would touch 2 task instances"):
        clear_run(run_id=run_id, **asked)
    clear_run(run_id=run_id, options=Options(only_failed=True), **asked)
    assert Run.objects.get(pk=run_id).run_attempt == 2


def test_the_same_request_again_is_one_review(world: World) -> None:
    run_id = guarded(world, actions_max=0)
    for _ in range(3):
        with pytest.raises(HeldForReview):
            clear_run(run_id=run_id, dry_run=False, automated=True, actor="r", reason="x")
    review = Review.objects.get()
    assert review.times == 3
    assert review.last_at is not None
    ti = TaskInstance.objects.get(run_id=run_id, task_id="b")
    with pytest.raises(HeldForReview):
        clear_task_instances(ti_ids=[ti.pk], dry_run=False, automated=True, actor="r", reason="x")
    assert Review.objects.count() == 2, "another request is another review"


def held(world: World, run_id: int) -> int:
    with pytest.raises(HeldForReview) as error:
        clear_run(
            run_id=run_id,
            options=Options(only_failed=True),
            note="by the robot",
            dry_run=False,
            automated=True,
            actor="robot",
            reason="alert 7",
        )
    number: Any = error.value.extra["review"]
    return int(number)


def test_an_approved_review_is_carried_out_with_what_was_asked_for(world: World) -> None:
    run_id = guarded(world, actions_max=0)
    number = held(world, run_id)
    plan = approve_review(review_id=number, actor="ana", dry_run=True)
    assert [one.task_id for one in plan.included] == ["b"]
    assert Review.objects.get().state == "open"
    approve_review(review_id=number, plan_id=plan.plan_id, **WHY)
    run = Run.objects.get(pk=run_id)
    assert (run.state, run.run_attempt, run.note) == ("queued", 2, "by the robot")
    review = Review.objects.get()
    assert (review.state, review.decided_by, review.note) == (
        "approved",
        "ana",
        "the disk has room again",
    )
    assert review.outcome == {"plan": str(plan.plan_id), "task_instances": 1, "run_attempt": 2}
    assert Incident.objects.get(kind="review_waits").resolved_at is not None
    assert {one.action for one in Audit.objects.all()} == {"clear", "approve"}
    with pytest.raises(Conflict, match="was approved by ana"):
        approve_review(review_id=number, **WHY)


def test_a_dismissed_review_changes_nothing(world: World) -> None:
    run_id = guarded(world, actions_max=0)
    number = held(world, run_id)
    with pytest.raises(InvalidInput, match="Say why"):
        dismiss_review(review_id=number, actor="ana", reason="")
    dismiss_review(review_id=number, **WHY)
    assert Review.objects.get().state == "dismissed"
    assert Run.objects.get(pk=run_id).run_attempt == 1
    with pytest.raises(Conflict, match="was dismissed by ana"):
        approve_review(review_id=number, **WHY)
    assert held(world, run_id) != number, "asked for again, it is a review of its own"


def test_a_plan_of_a_review_that_the_world_left_behind_is_refused(world: World) -> None:
    run_id = guarded(world, actions_max=0)
    number = held(world, run_id)
    plan = approve_review(review_id=number, actor="ana", dry_run=True)
    clear_run(run_id=run_id, dry_run=False, **WHY)
    world.play(run_id, failing=["a"])
    with pytest.raises(Conflict, match="no longer holds") as moved:
        approve_review(review_id=number, plan_id=plan.plan_id, **WHY)
    assert moved.value.extra["difference"]
    assert Review.objects.get().state == "open"
    again = approve_review(review_id=number, actor="ana", dry_run=True)
    assert {one.task_id for one in again.included} == {"a", "b"}
    approve_review(review_id=number, plan_id=again.plan_id, **WHY)
    assert Run.objects.get(pk=run_id).run_attempt == 3


def test_at_the_cap_an_approval_is_one_more_go(world: World) -> None:
    run_id = failed(world, policy=RunRetryPolicy(max_attempts=1))
    number = Review.objects.get().pk
    approve_review(review_id=number, **WHY)
    run = Run.objects.get(pk=run_id)
    assert (run.state, run.run_attempt, run.retry_count) == ("queued", 2, 0)
    world.play(run_id, failing=["b"])
    assert Review.objects.filter(state="open").exclude(pk=number).count() == 1


def test_of_two_who_decide_at_once_one_does(world: World) -> None:
    run_id = guarded(world, actions_max=0)
    number = held(world, run_id)
    start = threading.Barrier(4)
    outcome: list[str] = []

    def decide(name: str) -> None:
        try:
            start.wait(60)
            approve_review(review_id=number, actor=name, reason="go")
            outcome.append("done")
        except Conflict:
            outcome.append("refused")
        finally:
            connections.close_all()

    threads = [threading.Thread(target=decide, args=(f"p{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(outcome) == ["done", "refused", "refused", "refused"]
    assert Run.objects.get(pk=run_id).run_attempt == 2


def test_a_storm_of_automatic_clears_stops_at_the_cap(world: World) -> None:
    flow = world.flow("f", chain("a"), guards=GuardLimits(actions_max=25, window_s=3600))
    runs = [world.run(flow, f"r{n}") for n in range(40)]
    for run_id in runs:
        Run.objects.filter(pk=run_id).update(
            state="failed", is_active=False, ended_at="2026-01-01T00:00Z"
        )
    TaskInstance.objects.update(
        state="failed", is_open=False, try_number=1, ended_at="2026-01-01T00:00Z"
    )
    done: list[int] = []
    stopped: list[int] = []
    start = threading.Barrier(10)

    def storm(first: int) -> None:
        try:
            start.wait(60)
            for n in range(100):
                run_id = runs[(first + n) % len(runs)]
                try:
                    plan = clear_run(
                        run_id=run_id, dry_run=False, automated=True, actor="r", reason="x"
                    )
                    if plan.included:
                        done.append(run_id)
                except HeldForReview:
                    stopped.append(run_id)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=storm, args=(4 * n,)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert len(done) == 25
    assert len(set(done)) == 25
    assert AutomaticAction.objects.count() == 25
    assert Run.objects.filter(run_attempt=2).count() == 25
    assert Review.objects.filter(state="open").count() == len(set(stopped)) == 15


def test_an_operator_sets_limits_and_the_kill_switch_and_is_audited(world: World) -> None:
    run_id = failed(world)
    set_guard(limits={"actions_max": 1, "cooldown_s": 5}, flow_id="f", **WHY)
    set_guard(limits={"cooldown_s": None}, flow_id="f", **WHY)
    row = Guard.objects.get()
    assert (row.actions_max, row.cooldown_s, row.actor) == (1, None, "ana")
    set_guard(is_stopped=True, **WHY)
    with pytest.raises(HeldForReview, match="ana stopped automatic actions everywhere"):
        clear_run(run_id=run_id, dry_run=False, automated=True, actor="r", reason="x")
    set_guard(is_stopped=False, **WHY)
    clear_run(run_id=run_id, dry_run=False, automated=True, actor="r", reason="x")
    verbs = list(Audit.objects.order_by("id").values_list("action", flat=True))
    assert verbs == ["set_guard", "set_guard", "stop_automation", "start_automation", "clear"]
    first = Audit.objects.order_by("id").first()
    assert first is not None
    assert first.after is not None
    assert (first.object_id, first.after["actions_max"]) == ("f:any", 1)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"kind": "dance"}, "'dance' is none of"),
        ({"limits": {"colour": 1}}, "no such limit"),
        ({"limits": {"cooldown_s": -1}}, "a number of seconds"),
        ({"limits": {"window_s": 0}}, "a number of seconds"),
        ({"limits": {"actions_max": 1.5}}, "a whole number"),
        ({"limits": {"runs_max": -1}}, "a whole number"),
        ({"limits": {"runs_max": True}}, "a whole number"),
    ],
)
@pytest.mark.usefixtures("transactional_db")
def test_a_guard_that_makes_no_sense_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        set_guard(**WHY, **given)
    assert not Guard.objects.exists()
    with pytest.raises(NotFound):
        set_guard(flow_id="nobody", is_stopped=True, **WHY)
