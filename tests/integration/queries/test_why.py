"""The facts behind the sentence are those of the rows: each made by the product's own moves."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from scheduler_app.models import Attempt, Flow, Freeze, Job, Lease, Pool, Run, TaskInstance
from scheduler_app.operations.terminate import terminate_task_instance
from scheduler_app.queries import shown
from scheduler_app.queries.scope import EVERYTHING, Scope
from scheduler_app.queries.why import why_of
from scheduler_app.rules.definition import (
    GroupDefinition,
    GroupRetry,
    TaskDefinition,
    TriggerRule,
)
from scheduler_app.rules.errors import NotFound
from scheduler_app.rules.mapping import Argument, Kind, MapOver, Source
from scheduler_app.rules.roles import Role
from scheduler_app.rules.run_retry import RunRetryPolicy
from scheduler_app.rules.why import Why
from scheduler_app.transitions import attempt as moves
from scheduler_app.transitions.executor_event import NewEvent, record_events
from tests import factories
from tests.world import chain

if TYPE_CHECKING:
    from scheduler_app.transitions.attempt import Message
    from tests.world import World


@pytest.fixture
def decided(world: World) -> World:
    """The scheduler that holds the leases, and a worker, have job rows."""
    for kind, job_id in (("scheduler", world.leases.holder), ("worker", world.worker)):
        factories.make_job(
            id=job_id,
            kind=kind,
            hostname="host-9",
            detail={"queues": ["default"], "concurrency": 2} if kind == "worker" else {},
        )
    Job.objects.update(heartbeat_at=shown.CLOCK, progress_at=shown.CLOCK)
    return world


def told(run: int, task_id: str, scope: Scope = EVERYTHING) -> Why:
    return why_of(scope, TaskInstance.objects.get(run_id=run, task_id=task_id).pk)


def begun(world: World, tasks: Any = None, **options: Any) -> tuple[int, Message]:
    """A run whose first task is queued."""
    run = world.run(world.flow("f", tasks or chain("a", "b", "c", **options)))
    world.tick(run)
    (message,), world.messages = world.messages, []
    return run, message


def test_a_run_from_its_queue_to_its_end(decided: World) -> None:
    world = decided
    run = world.run(world.flow("f", chain("a", "b")))
    assert told(run, "a").rule == "max_active_runs"
    world.tick(run)
    (message,), world.messages = world.messages, []
    moves.note_published(world.connection, ages_s={message.attempt_id: 0.0})
    assert told(run, "a").rule == "queued"
    assert "1 worker that listens there" in told(run, "a").sentence
    waits = told(run, "b")
    assert (waits.rule, "It waits for a (queued)" in waits.sentence) == (
        "upstream:all_success",
        True,
    )
    world.claim(message)
    assert told(run, "a").sentence.startswith("Process host-1:4711 executes it since ")
    world.finish(message)
    assert told(run, "a").rule == "success"
    assert told(run, "b").rule == "ready"
    assert "scheduler host-9:" in told(run, "b").sentence


def test_what_failed_and_what_could_not_start_after_it(decided: World) -> None:
    run, message = begun(decided)
    decided.claim(message)
    decided.finish(message, ok=False)
    decided.play(run)
    assert told(run, "a").rule == "failed"
    assert "It never started: a failed, and by its rule all_success" in told(run, "b").sentence
    assert "b could not start after a had failed" in told(run, "c").sentence


def test_who_holds_the_slots_of_a_full_pool(decided: World) -> None:
    world = decided
    Pool.objects.create(name="etl", slots=1)
    tasks = [TaskDefinition(task_id=name, pool="etl") for name in ("x", "y")]
    run = world.run(world.flow("f", tasks))
    world.tick(run)
    view = next(iter(world.ticker._views._views.values()))
    for instance in view.instances.values():
        instance.ready_since = timezone.now() - timedelta(seconds=5)
    world.tick(run)
    waiting = TaskInstance.objects.get(run_id=run, state="scheduled")
    held = "x" if waiting.task_id == "y" else "y"
    answer = why_of(EVERYTHING, waiting.pk)
    assert answer.rule == "pool_full"
    assert f"the slots of pool etl are held by f r1 {held} (1 slot, since" in answer.sentence
    assert "It needs 1 slot of pool 'etl', which has 0 free" in answer.sentence
    Run.objects.filter(pk=run).update(flow=factories.make_flow(flow_id="mine"))
    secret = why_of(Scope(flow_ids=frozenset({"mine"}), sees_shared=False), waiting.pk)
    assert "f r1" not in secret.sentence


def test_losses_kills_deferrals_and_terminations(decided: World) -> None:
    world = decided
    run, message = begun(world, retries=1, retry_delay_s=0)
    world.claim(message)
    moves.lose(
        world.connection, attempt_ids=[message.attempt_id], dead_after_s=0, budget=3, source="t"
    )
    lost = told(run, "a")
    assert (lost.rule, "host-1:4711 was lost" in lost.sentence) == ("worker_lost", True)
    assert "loss 1 of at most 3" in lost.sentence
    world.ticker.forget([run])
    world.tick(run)
    (message,), world.messages = world.messages, []
    world.claim(message)
    world.defer(message, kind="event", event_key="go", detail="Waits for an event.")
    assert "for somebody to send it the event 'go'" in told(run, "a").sentence
    terminate_task_instance(
        ti_id=TaskInstance.objects.get(run_id=run, task_id="a").pk, actor="ada", reason="enough"
    )
    ended = told(run, "a")
    assert ended.rule == "terminated"
    assert ended.sentence.startswith("ada terminated it: enough; it ended at ")


def test_a_kill_from_outside_is_told_with_its_signal(
    decided: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.conf import settings  # noqa: PLC0415 - only here

    monkeypatch.setattr(settings, "EXIT_GRACE_S", 0.0)
    run, message = begun(decided)
    decided.claim(message)
    Attempt.objects.filter(pk=message.attempt_id).update(heartbeat_at=shown.CLOCK)
    record_events(
        decided.connection,
        events=[
            NewEvent(
                attempt_id=message.attempt_id,
                kind="exit_killed",
                source="worker: host-1",
                source_job_id=decided.worker,
                payload={"signal": 9, "signal_name": "SIGKILL", "pid": 4711, "hostname": "host-1"},
            )
        ],
    )
    decided.judge()
    answer = told(run, "a")
    assert answer.rule == "killed_externally"
    assert "Its process host-1:4711 was ended from outside by SIGKILL at" in answer.sentence


def test_a_freeze_is_named_with_who_and_why(decided: World) -> None:
    run, _ = begun(decided)
    freeze = Freeze.objects.create(
        scope_kind="run",
        scope_id=str(run),
        actor="ada",
        reason="look first",
        created_at=timezone.now(),
    )
    TaskInstance.objects.filter(run_id=run).update(held_by=freeze.pk)
    answer = told(run, "a")
    assert answer.rule == "frozen"
    assert "Its run is frozen by ada since" in answer.sentence
    assert f"(freeze {freeze.pk})" in answer.sentence
    TaskInstance.objects.filter(run_id=run).update(held_by=None)
    Flow.objects.update(frozen_at=timezone.now())
    assert told(run, "b").sentence.startswith("Its flow is frozen since ")


def test_a_shard_without_a_scheduler_and_a_queue_without_a_worker(decided: World) -> None:
    run, message = begun(decided)
    moves.note_published(decided.connection, ages_s={message.attempt_id: 0.0})
    Job.objects.filter(kind="worker").update(heartbeat_at=factories.at(0))
    assert told(run, "a").rule == "nobody_listens"
    Lease.objects.update(expires_at=timezone.now())
    assert told(run, "b").rule == "no_lease"


def test_every_row_has_a_sentence_in_at_most_five_statements(decided: World) -> None:
    run, message = begun(decided)
    decided.claim(message)
    decided.finish(message, ok=False)
    decided.play(run)
    for ti in TaskInstance.objects.all():
        with CaptureQueriesContext(connection) as queries:
            assert why_of(EVERYTHING, ti.pk).sentence
        assert len(queries) <= 5
    with pytest.raises(NotFound):
        why_of(EVERYTHING, 10**9)


@pytest.mark.parametrize("state", ["none", "running", "success", "failed", "skipped", "removed"])
@pytest.mark.django_db
def test_a_bare_row_has_one_too(state: str) -> None:
    ti = factories.make_task_instance(state=state)
    assert why_of(EVERYTHING, ti.pk).sentence.endswith(".")


def test_a_failed_task_of_a_run_that_begins_again_says_when_and_why(decided: World) -> None:
    world = decided
    policy = RunRetryPolicy(max_attempts=2, cooldown_s=600)
    run = world.run(world.flow("f", chain("a", "b"), run_retry=policy))
    world.play(run, failing=["a"])
    for task_id in ("a", "b"):
        sentence = told(run, task_id).sentence
        assert "Its run begins again at " in sentence
        assert sentence.endswith("Go 2 of 2 follows because a failed.")


def test_a_mapped_task_that_is_not_expanded_names_what_it_maps_over(decided: World) -> None:
    over = MapOver(
        arguments=(Argument(name="path", source=Source(kind=Kind.RESULT, task_id="paths")),)
    )
    flow = decided.flow(
        "f",
        (
            TaskDefinition(task_id="paths"),
            TaskDefinition(task_id="load", upstream=("paths",), mapped=over),
        ),
    )
    run = decided.run(flow)
    Run.objects.filter(pk=run).update(state="running")
    assert "an instance for each element of paths" in told(run, "load").sentence
    TaskInstance.objects.filter(run_id=run, task_id="load").update(
        state="skipped", is_open=False, stop_reason="What it maps over is empty."
    )
    assert told(run, "load").rule == "mapped_over_nothing"


def test_a_setup_that_is_not_right_before_it_is_named(decided: World) -> None:
    tasks = [
        TaskDefinition(task_id="make", role=Role.SETUP),
        TaskDefinition(task_id="a", upstream=("make",), trigger_rule=TriggerRule.ALWAYS),
        TaskDefinition(task_id="b", upstream=("a",), trigger_rule=TriggerRule.ALL_DONE),
        TaskDefinition(task_id="anyway", upstream=("a",), trigger_rule=TriggerRule.ALWAYS),
        TaskDefinition(task_id="drop", upstream=("make", "b"), role=Role.TEARDOWN),
    ]
    run = decided.run(decided.flow("f", tasks))
    decided.tick(run)
    make = next(one for one in decided.messages if name_of(one) == "make")
    decided.messages.remove(make)
    decided.serve()
    waits = told(run, "b")
    assert (waits.rule, "whatever its rule: make (queued)" in waits.sentence) == ("setup", True)
    decided.claim(make)
    decided.finish(make, ok=False)
    decided.play(run)
    assert (told(run, "b").rule, told(run, "anyway").rule) == ("setup", "success")
    assert "make failed, which it needs whatever its rule all_done" in told(run, "b").sentence


def test_a_teardown_names_what_may_still_use_what_its_setup_made(decided: World) -> None:
    tasks = [
        TaskDefinition(task_id="make", role=Role.SETUP),
        TaskDefinition(task_id="slow", upstream=("make",)),
        TaskDefinition(task_id="last", upstream=("slow",), trigger_rule=TriggerRule.ALWAYS),
        TaskDefinition(
            task_id="drop",
            upstream=("make", "last"),
            role=Role.TEARDOWN,
            trigger_rule=TriggerRule.ALL_DONE_SETUP_SUCCESS,
        ),
    ]
    run = decided.run(decided.flow("f", tasks))
    for _ in range(2):
        decided.tick(run)
        slow = [one for one in decided.messages if name_of(one) == "slow"]
        decided.messages = [one for one in decided.messages if one not in slow]
        decided.serve()
    waits = told(run, "drop")
    assert waits.rule == "scope"
    assert waits.sentence.endswith("between make and itself: slow (queued).")


def test_what_waits_for_a_group_that_is_one_unit_names_it(decided: World) -> None:
    tasks = [
        TaskDefinition(task_id="pay.debit", group="pay"),
        TaskDefinition(task_id="pay.credit", group="pay"),
        TaskDefinition(task_id="tell", upstream=("pay.debit",)),
    ]
    groups = (GroupDefinition(group_id="pay", retry=GroupRetry(max_attempts=1)),)
    run = decided.run(decided.flow("f", tasks, groups=groups))
    decided.tick(run)
    credit = next(one for one in decided.messages if name_of(one) == "pay.credit")
    decided.messages.remove(credit)
    decided.serve()
    waits = told(run, "tell")
    assert (waits.rule, "one unit: pay.credit (queued)" in waits.sentence) == ("group", True)
    decided.claim(credit)
    decided.finish(credit, ok=False)
    decided.play(run)
    assert told(run, "tell").sentence == (
        "It never started: group pay, which is one unit, was given up after pay.credit had failed."
    )


def name_of(message: Message) -> str:
    return TaskInstance.objects.get(pk=message.ti_id).task_id
