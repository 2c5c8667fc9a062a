"""Freezing and thawing: what is held in each state, what goes on, and that nothing starts in between."""

from __future__ import annotations

import random
import threading
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection as django_connection
from django.utils import timezone

from scheduler_app.models import (
    Attempt,
    Audit,
    ExecutorEvent,
    Flow,
    Freeze,
    Pool,
    Run,
    TaskInstance,
    Trigger,
)
from scheduler_app.operations.freeze import freeze
from scheduler_app.operations.terminate import terminate_run
from scheduler_app.operations.thaw import thaw
from scheduler_app.rules.definition import TaskDefinition
from scheduler_app.rules.errors import Conflict, InvalidInput, NotAllowed, NotFound
from scheduler_app.rules.states import AttemptOutcome, TaskState
from scheduler_app.scheduler import sweep
from scheduler_app.scheduler.thaw import thaw_due
from scheduler_app.transitions import attempt as moves
from scheduler_app.transitions import trigger
from scheduler_app.transitions.freeze import TURN, take_turn
from scheduler_app.worker.refuse import Delivery, read_facts, record_refusal, refusal_code
from tests import factories
from tests.together import together
from tests.world import chain

if TYPE_CHECKING:
    import psycopg

    from scheduler_app.transitions.attempt import Message
    from tests.world import World


def begun(world: World, *, claim: bool = True, run_key: str = "r1", **options: Any) -> Message:
    """The first task of a run of two is queued, or runs."""
    flow = Flow.objects.select_related("current_version").filter(flow_id="f").first()
    flow = flow or world.flow("f", chain("a", "b", **{"retries": 2, **options}))
    run_id = world.run(flow, run_key)
    world.tick(run_id)
    (message,), world.messages = world.messages, []
    if claim:
        assert world.claim(message) is not None
    return message


def hold(kind: str, scope_id: Any = "", **options: Any) -> Any:
    return freeze(scope_kind=kind, scope_id=scope_id, actor="ada", reason="look first", **options)


def go_on(kind: str, scope_id: Any = "", **options: Any) -> Any:
    return thaw(scope_kind=kind, scope_id=scope_id, actor="ada", reason="looked", **options)


def ti_of(message: Message) -> TaskInstance:
    return TaskInstance.objects.get(pk=message.ti_id)


def stopped(world: World, message: Message) -> None:
    """The worker reports that it stopped the execution, as it was asked to."""
    assert moves.finish(
        world.connection,
        ti_id=message.ti_id,
        attempt_id=message.attempt_id,
        nonce=uuid.UUID(int=message.attempt_id.int),
        state=TaskState.FAILED,
        is_open=False,
        outcome=AttemptOutcome.TERMINATED,
        reason="stopped",
    )


# -- what is held, and goes on -------------------------------------------------------------------


def test_what_runs_ends_and_what_would_follow_waits(world: World) -> None:
    message = begun(world)
    plan = hold("run", message.run_id)
    assert [(one.task_id, one.state) for one in plan.included] == [("a", "running"), ("b", "none")]
    world.finish(message)
    assert world.states(message.run_id) == {"a": "success", "b": "none"}
    assert Attempt.objects.get(pk=message.attempt_id).is_accepted, "the report is stored at once"
    for _ in range(3):
        world.tick(message.run_id)
    assert world.messages == [], "nothing follows"
    go_on("run", message.run_id)
    assert not TaskInstance.objects.filter(held_by__isnull=False).exists()
    assert world.play(message.run_id).state == "success"


def test_a_run_whose_last_task_ends_in_a_freeze_ends_after_the_thaw(world: World) -> None:
    message = begun(world)
    world.finish(message)
    world.tick(message.run_id)
    (last,), world.messages = world.messages, []
    assert world.claim(last)
    hold("run", message.run_id)
    world.finish(last)
    world.tick(message.run_id)
    assert Run.objects.get(pk=message.run_id).state == "running"
    go_on("run", message.run_id)
    world.tick(message.run_id)
    assert Run.objects.get(pk=message.run_id).state == "success"


def test_a_task_that_ends_under_its_own_freeze_lets_the_next_go_after_the_thaw(
    world: World,
) -> None:
    """The scheduler's picture of the run has the ended task: it must see that nothing holds it now."""
    message = begun(world)
    hold("task_instance", message.ti_id)
    world.finish(message)
    world.tick(message.run_id)
    world.tick(message.run_id)
    assert world.messages == []
    go_on("task_instance", message.ti_id)
    assert world.play(message.run_id).state == "success"


def test_a_queued_task_is_refused_and_the_same_attempt_comes_again(world: World) -> None:
    message = begun(world, claim=False)
    moves.note_published(world.connection, ages_s={message.attempt_id: 0.0})
    hold("run", message.run_id)
    assert world.claim(message) is None
    delivery = Delivery(
        attempt_id=message.attempt_id,
        ti_id=message.ti_id,
        fence=message.fence,
        token=message.lease_token,
        identity="here",
        nonce=uuid.uuid4(),
    )
    facts = read_facts(world.connection, delivery)
    code = refusal_code(delivery, facts)
    assert code == "refused_frozen"
    record_refusal(
        world.connection,
        delivery=delivery,
        code=code,
        facts=facts,
        identity="here",
        source="worker: host-1",
        job_id=world.worker,
        hostname="host-1",
        pid=1,
    )
    event = ExecutorEvent.objects.get(attempt_id=message.attempt_id)
    assert (event.verdict, event.filter_code) == ("refused", "refused_frozen")
    terms = world.leases.terms()
    assert sweep.unpublished(world.connection, terms=terms, older_than_s=0) == []
    go_on("run", message.run_id)
    assert ti_of(message).state == "queued"
    again = sweep.unpublished(world.connection, terms=terms, older_than_s=0)
    assert again == [message], "the same attempt, published again"
    assert world.claim(message)
    assert ti_of(message).try_number == 1, "no retry was used"


def test_a_retry_has_the_rest_of_its_delay_left(world: World) -> None:
    message = begun(world)
    world.finish(message, ok=False, retry_after_s=100)
    due = ti_of(message).next_retry_at
    hold("task_instance", message.ti_id)
    held_at = ti_of(message).held_at
    assert due is not None
    assert held_at is not None
    TaskInstance.objects.filter(pk=message.ti_id).update(
        held_at=held_at - timedelta(hours=1),
        ended_at=held_at - timedelta(hours=2),
        next_retry_at=due - timedelta(hours=1),
    )
    go_on("task_instance", message.ti_id)
    now = ti_of(message).next_retry_at
    assert now is not None
    assert timedelta(0) <= now - due < timedelta(seconds=30), "an hour in the ice is no time"


def test_a_retry_decided_in_a_freeze_waits_from_the_decision_on(world: World) -> None:
    message = begun(world)
    hold("task_instance", message.ti_id)
    TaskInstance.objects.filter(pk=message.ti_id).update(
        held_at=timezone.now() - timedelta(hours=1)
    )
    world.finish(message, ok=False, retry_after_s=0)
    world.tick(message.run_id)
    assert world.messages == []
    go_on("task_instance", message.ti_id)
    due = ti_of(message).next_retry_at
    assert due is not None
    assert due < timezone.now() + timedelta(seconds=30), "not an hour later"
    TaskInstance.objects.filter(pk=message.ti_id).update(next_retry_at=timezone.now())
    world.tick(message.run_id)
    (again,) = world.messages
    assert Attempt.objects.get(pk=again.attempt_id).try_number == 2


def test_a_trigger_stands_still_and_what_fired_is_let_through(world: World) -> None:
    message = begun(world)
    trigger_id = world.defer(message)
    hold("flow", "f")
    assert world.fire(trigger_id, event=7) == "kept"
    assert ti_of(message).state == "deferred"
    trigger.fire_due(world.connection, limit=10)
    assert ti_of(message).state == "deferred", "not before the thaw"
    go_on("flow", "f")
    trigger.fire_due(world.connection, limit=10)
    ti = ti_of(message)
    assert (ti.state, ti.resume_index) == ("scheduled", 1)
    assert ti.next_kwargs is not None
    assert ti.next_kwargs["event"] == 7
    assert world.play(message.run_id).state == "success"


def test_the_clocks_of_a_waiting_trigger_are_shifted(world: World) -> None:
    message = begun(world)
    trigger_id = world.defer(message)
    base = timezone.now()
    before = {"due_at": base, "timeout_at": base + timedelta(seconds=9), "wake_at": base}
    Trigger.objects.filter(pk=trigger_id).update(
        **before, created_at=base - timedelta(hours=2), kind="time"
    )
    hold("run", message.run_id)
    TaskInstance.objects.filter(pk=message.ti_id).update(held_at=base - timedelta(hours=1))
    trigger.fire_due(world.connection, limit=10)
    assert ti_of(message).state == "deferred", "due, but frozen"
    go_on("run", message.run_id)
    row = Trigger.objects.get(pk=trigger_id)
    for name, was in before.items():
        shift = getattr(row, name) - was
        assert timedelta(hours=1) <= shift < timedelta(hours=1, minutes=1), name


def test_events_are_judged_in_order_after_the_thaw(world: World) -> None:
    message = begun(world)
    # Its worker lives: what ended without a report was killed.
    factories.make_job(id=world.worker, kind="worker", heartbeat_at=timezone.now())
    hold("run", message.run_id)
    now = timezone.now() - timedelta(hours=1)
    for number, kind in enumerate(("exit_failed", "worker_lost")):
        ExecutorEvent.objects.create(
            attempt_id=message.attempt_id,
            ti_id=message.ti_id,
            run_id=message.run_id,
            task_id="a",
            map_index=-1,
            shard=3,
            kind=kind,
            source="test",
            payload={},
            dedupe_key=f"e{number}",
            received_at=now,
            verdict="pending",
        )
    world.judge()
    assert set(ExecutorEvent.objects.values_list("verdict", flat=True)) == {"pending"}
    go_on("run", message.run_id)
    world.judge()
    verdicts = list(ExecutorEvent.objects.order_by("id").values_list("verdict", flat=True))
    assert "pending" not in verdicts
    assert ti_of(message).state == "up_for_retry", "the first decided, the second came too late"


# -- hard ------------------------------------------------------------------------------------


def test_a_hard_freeze_stops_what_runs_and_it_begins_again_in_the_same_try(world: World) -> None:
    message = begun(world, retries=0)
    plan = hold("run", message.run_id, mode="hard")
    assert plan.stopped_count == 1
    (beat,) = moves.beat(
        world.connection, attempt_ids=[message.attempt_id], worker_job_id=world.worker
    )
    assert beat.stop_reason == f"ada froze run {message.run_id}: look first"
    stopped(world, message)
    ti, one = ti_of(message), Attempt.objects.get(pk=message.attempt_id)
    assert (ti.state, ti.is_open, ti.ended_at is None or ti.is_open) == ("scheduled", True, True)
    assert (one.state, one.outcome, one.is_accepted) == ("ended", "terminated", False)
    world.tick(message.run_id)
    assert world.messages == []
    go_on("run", message.run_id)
    assert world.play(message.run_id).state == "success"
    again = Attempt.objects.filter(ti_id=message.ti_id).latest("fence")
    assert (again.try_number, again.dispatch_no, again.is_accepted) == (1, 2, True)


def test_a_hard_frozen_resumed_task_resumes_once_more(world: World) -> None:
    message = begun(world)
    assert world.fire(world.defer(message), event=7) == "moved"
    world.tick(message.run_id)
    (resumed,), world.messages = world.messages, []
    assert world.claim(resumed)
    hold("task_instance", message.ti_id, mode="hard")
    stopped(world, resumed)
    go_on("task_instance", message.ti_id)
    world.tick(message.run_id)
    (again,) = world.messages
    claim = world.claim(again)
    assert claim is not None
    assert claim.next_method == "resumed"
    assert claim.next_kwargs is not None
    assert claim.next_kwargs["event"] == 7
    assert (claim.try_number, claim.resume_index) == (1, 1)


def test_a_hard_frozen_execution_that_is_killed_uses_no_retry_also_after_the_thaw(
    world: World,
) -> None:
    message = begun(world, retries=0)
    hold("run", message.run_id, mode="hard")
    go_on("run", message.run_id)
    with world.connection.transaction():
        assert moves.fail_killed(
            world.connection,
            attempt_id=message.attempt_id,
            state=TaskState.FAILED,
            is_open=False,
            retry_after_s=None,
            reason="killed",
        )
    assert ti_of(message).state == "scheduled"
    assert world.play(message.run_id).state == "success"


def test_what_a_hard_frozen_execution_still_reports_counts(world: World) -> None:
    message = begun(world)
    hold("run", message.run_id, mode="hard")
    world.finish(message)
    assert ti_of(message).state == "success"


def test_hard_over_drain_stops_what_runs(world: World) -> None:
    message = begun(world)
    hold("run", message.run_id)
    with pytest.raises(Conflict, match="frozen already"):
        hold("run", message.run_id)
    assert hold("run", message.run_id, mode="hard").stopped_count == 1
    assert len(go_on("run", message.run_id).freeze_ids) == 2, "one thaw ends both"
    assert ti_of(message).held_by is None


# -- scopes and overlaps -------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "scope_id"), [("flow", "f"), ("shard", 3), ("all", "")])
def test_wide_freezes_hold_runs_that_are_there_and_runs_that_come(
    world: World, kind: str, scope_id: Any
) -> None:
    message = begun(world, claim=False)
    hold(kind, scope_id)
    assert world.claim(message) is None
    late = world.run(Flow.objects.get(pk="f"), "late")
    world.tick(late, message.run_id)
    assert world.messages == []
    assert Run.objects.get(pk=late).frozen_at is not None
    go_on(kind, scope_id)
    assert not Flow.objects.filter(frozen_at__isnull=False).exists()
    assert not Run.objects.filter(frozen_at__isnull=False).exists()
    assert world.claim(message)
    world.finish(message)
    assert [world.play(run).state for run in (message.run_id, late)] == ["success"] * 2


def test_the_other_freeze_goes_on_holding(world: World) -> None:
    message = begun(world, claim=False)
    run = hold("run", message.run_id)
    flow = hold("flow", "f")
    assert ti_of(message).held_by == run.freeze_id
    plan = go_on("run", message.run_id)
    assert (plan.released_count, plan.kept_count) == (0, 2)
    assert ti_of(message).held_by == flow.freeze_id
    assert Run.objects.get(pk=message.run_id).frozen_at is not None
    assert world.claim(message) is None
    go_on("flow", "f")
    assert ti_of(message).held_by is None
    assert world.claim(message)


def test_a_narrower_freeze_outlives_a_wider_one(world: World) -> None:
    message = begun(world, claim=False)
    hold("all")
    mine = hold("task_instance", message.ti_id)
    go_on("all")
    assert ti_of(message).held_by == mine.freeze_id
    assert Run.objects.get(pk=message.run_id).frozen_at is None
    assert world.claim(message) is None


# -- pools ---------------------------------------------------------------------------------------


def test_frozen_queued_tasks_hold_no_slot_and_the_thaw_waits_for_room(world: World) -> None:
    Pool.objects.create(name="one", slots=1)
    first = begun(world, claim=False, pool="one")
    hold("run", first.run_id)
    second = begun(world, pool="one", run_key="r2")
    plan = go_on("run", first.run_id)
    assert (plan.released_count, plan.waiting_count) == (1, 1)
    assert world.claim(first) is None, "the slot is taken"
    terms = world.leases.terms()
    assert thaw_due(world.connection, leases=world.leases, terms=terms) == set()
    assert world.claim(first) is None
    world.finish(second)
    assert thaw_due(world.connection, leases=world.leases, terms=terms) == {first.run_id}
    assert world.claim(first)


# -- time, words, refusals -----------------------------------------------------------------------


def test_a_freeze_with_an_end_thaws_by_itself(world: World) -> None:
    message = begun(world, claim=False)
    plan = hold("run", message.run_id, until=timezone.now() + timedelta(hours=1))
    terms = world.leases.terms()
    assert thaw_due(world.connection, leases=world.leases, terms=terms) == set()
    Freeze.objects.filter(pk=plan.freeze_id).update(until_at=timezone.now())
    assert thaw_due(world.connection, leases=world.leases, terms=terms) == {message.run_id}
    assert world.claim(message)
    told = Audit.objects.get(action="thaw")
    assert told.before is not None
    assert (told.actor, told.before["freezes"]) == ("scheduler", [plan.freeze_id])


def test_it_is_audited_with_before_and_after(world: World) -> None:
    message = begun(world)
    plan = hold("run", message.run_id)
    told = Audit.objects.get(action="freeze")
    assert (told.actor, told.reason, told.object_id) == ("ada", "look first", str(message.run_id))
    assert told.before == {"freezes": [], "by_state": {"running": 1, "none": 1}}
    assert told.after is not None
    assert told.after["freeze"] == plan.freeze_id
    go_on("run", message.run_id)
    thawed = Audit.objects.get(action="thaw").after
    assert thawed is not None
    assert thawed["released"] == 2


def test_a_dry_run_changes_nothing(world: World) -> None:
    message = begun(world)
    plan = freeze(scope_kind="run", scope_id=message.run_id, actor="ada", dry_run=True, mode="hard")
    assert (plan.held_count, plan.stopped_count, plan.freeze_id) == (2, 1, None)
    assert not Freeze.objects.exists()
    assert Attempt.objects.get(pk=message.attempt_id).stop_reason is None
    hold("run", message.run_id)
    assert (
        thaw(scope_kind="run", scope_id=message.run_id, actor="ada", dry_run=True).released_count
        == 2
    )
    assert ti_of(message).held_by is not None
    assert Audit.objects.count() == 1


def test_what_cannot_be_frozen_or_thawed_is_said(world: World) -> None:
    message = begun(world)
    with pytest.raises(NotFound):
        hold("run", 999)
    with pytest.raises(NotFound):
        hold("flow", "none")
    with pytest.raises(NotFound):
        hold("shard", 99)
    with pytest.raises(InvalidInput):
        hold("galaxy", 1)
    with pytest.raises(InvalidInput):
        hold("run", message.run_id, mode="warm")
    with pytest.raises(InvalidInput):
        hold("run", message.run_id, until=timezone.now() - timedelta(seconds=1))
    with pytest.raises(InvalidInput):
        freeze(scope_kind="run", scope_id=message.run_id, actor="ada")
    with pytest.raises(Conflict, match="nothing to thaw"):
        go_on("run", message.run_id)
    hold("flow", "f")
    with pytest.raises(Conflict, match="flow f"):
        go_on("task_instance", message.ti_id)
    with pytest.raises(NotAllowed):
        terminate_run(run_id=message.run_id, actor="ada", reason="no")


# -- races ---------------------------------------------------------------------------------------

STARTED_WHILE_FROZEN = """
SELECT count(*) FROM attempt p JOIN run r ON r.id = p.run_id JOIN "freeze" z
    ON p.started_at > z.created_at AND p.started_at < coalesce(z.ended_at, 'infinity')
   AND (z.scope_kind = 'all' OR z.scope_kind = 'flow' AND z.scope_id = r.flow_id
        OR z.scope_kind = 'run' AND z.scope_id = r.id::text
        OR z.scope_kind = 'task_instance' AND z.scope_id = p.ti_id::text)
"""
ISSUED_WHILE_FROZEN = STARTED_WHILE_FROZEN.replace("started_at", "issued_at")


def test_nothing_starts_or_is_issued_inside_a_freeze(  # noqa: C901 - four kinds of threads
    world: World,
) -> None:
    """Threads freeze, thaw, make runs, tick, claim, report, defer and fire as fast as they can."""
    tasks = [TaskDefinition(task_id=f"t{n}", retries=1) for n in range(6)]
    flow = world.flow("f", tasks, max_active_runs=100)
    runs = [world.run(flow, f"r{n}") for n in range(4)]
    over = threading.Event()
    messages: list[Message] = []
    done = {"claims": 0, "refused": 0, "freezes": 0, "thaws": 0, "fires": 0}

    def person(seed: int) -> Any:
        def act(_: psycopg.Connection[Any]) -> None:
            chance = random.Random(seed)
            try:
                for _turn in range(25):
                    kind = chance.choice(["run", "flow", "all", "task_instance"])
                    scope_id: Any = {"run": chance.choice(runs), "flow": "f", "all": ""}.get(kind)
                    if scope_id is None:
                        scope_id = chance.choice(
                            list(TaskInstance.objects.values_list("id", flat=True))
                        )
                    verb = chance.choice([hold, go_on])
                    try:
                        verb(
                            kind,
                            scope_id,
                            **({} if verb is go_on else {"mode": chance.choice(["drain", "hard"])}),
                        )
                        done["freezes" if verb is hold else "thaws"] += 1
                    except Conflict:
                        continue
            finally:
                django_connection.close()

        return act

    def scheduler(connection: psycopg.Connection[Any]) -> None:
        number = 0
        while not over.is_set():
            number += 1
            if number % 5 == 0 and len(runs) < 30:
                runs.append(world.run(flow, f"x{number}"))
            world.tick(*runs)
            taken, world.messages = world.messages, []
            messages.extend(taken)
            trigger.fire_due(connection, limit=50)

    def worker(seed: int) -> Any:
        def act(connection: psycopg.Connection[Any]) -> None:
            chance = random.Random(seed)
            while not over.is_set():
                if not messages:
                    over.wait(0.005)
                    continue
                message = chance.choice(messages)
                claim = moves.claim(
                    connection,
                    ti_id=message.ti_id,
                    attempt_id=message.attempt_id,
                    token=message.lease_token,
                    fence=message.fence,
                    nonce=uuid.UUID(int=message.attempt_id.int),
                    worker_job_id=world.worker,
                    hostname="h",
                    pid=seed,
                )
                if claim is None:
                    done["refused"] += 1
                    continue
                done["claims"] += 1
                if chance.random() < 0.3:
                    world.defer_by(connection, message)
                    waiting = list(
                        Trigger.objects.filter(is_waiting=True).values_list("id", flat=True)[:5]
                    )
                    for trigger_id in waiting:
                        trigger.fire(
                            connection,
                            fires=[
                                trigger.Fire(
                                    trigger_id=trigger_id, state="fired", payload={"event": 1}
                                )
                            ],
                        )
                        done["fires"] += 1
                else:
                    moves.finish(
                        connection,
                        ti_id=message.ti_id,
                        attempt_id=message.attempt_id,
                        nonce=uuid.UUID(int=message.attempt_id.int),
                        state=TaskState.SUCCESS,
                        is_open=False,
                        outcome=AttemptOutcome.SUCCESS,
                    )
            django_connection.close()

        return act

    people = [threading.Thread(target=person(seed), args=(None,)) for seed in range(3)]

    def crowd(_: psycopg.Connection[Any]) -> None:
        try:
            for one in people:
                one.start()
            for one in people:
                one.join()
        finally:
            over.set()

    together([crowd, scheduler, worker(1), worker(2)])
    assert min(done["freezes"], done["thaws"], done["claims"], done["refused"]) > 0, done
    with world.connection.cursor() as cursor:
        for question in (STARTED_WHILE_FROZEN, ISSUED_WHILE_FROZEN):
            cursor.execute(question)
            assert cursor.fetchone() == (0,), done
    # Thawed, everything comes to its end: nothing was dropped.
    for row in Freeze.objects.filter(ended_at__isnull=True):
        try:
            go_on(row.scope_kind, row.scope_id)
        except Conflict:
            continue
    assert not TaskInstance.objects.filter(held_by__isnull=False).exists()


def test_freezes_take_turns(world: World) -> None:
    def try_turn(connection: psycopg.Connection[Any]) -> Any:
        return connection.execute("SELECT pg_try_advisory_xact_lock(%s)", [TURN]).fetchone()

    with world.connection.transaction():
        take_turn(world.connection)
        assert together([try_turn]) == [(False,)]
    assert together([try_turn]) == [(True,)]


# -- one task of a run, with all of its instances --------------------------------------------------


@pytest.fixture
def mapped(world: World) -> int:
    """A run whose task ``a`` has three instances, one of which has ended, and whose ``b`` has one."""
    flow = world.flow("f", chain("a", "b"))
    run_id = world.run(flow, "r1")
    TaskInstance.objects.filter(run_id=run_id, task_id="a").delete()
    factories.make_mapped(Run.objects.get(pk=run_id), "a", success=1, none=2)
    return run_id


def test_a_task_of_a_run_is_held_with_all_instances_that_have_not_ended(mapped: int) -> None:
    plan = hold("task", f"{mapped}:a")
    assert (plan.held_count, plan.run_count) == (2, 1)
    assert [one.map_index for one in plan.included] == [1, 2]
    held = TaskInstance.objects.filter(held_by=plan.freeze_id)
    assert sorted(held.values_list("map_index", flat=True)) == [1, 2]
    assert Run.objects.get(pk=mapped).frozen_at is None, "the rest of the run goes on"
    with pytest.raises(Conflict, match="is frozen already"):
        hold("task", f"{mapped}:a")
    assert go_on("task", f"{mapped}:a").released_count == 2
    assert not held.exists()
    assert set(Audit.objects.values_list("object_kind", "object_id")) == {("task", f"{mapped}:a")}


def test_an_instance_stays_held_while_a_freeze_of_its_task_or_of_itself_does(mapped: int) -> None:
    one = TaskInstance.objects.get(run_id=mapped, map_index=1)
    hold("task_instance", one.pk)
    of_task = hold("task", f"{mapped}:a")
    assert go_on("task_instance", one.pk).kept_count == 1
    one.refresh_from_db()
    assert one.held_by == of_task.freeze_id
    hold("task_instance", one.pk)
    assert go_on("task", f"{mapped}:a").kept_count == 1
    assert TaskInstance.objects.filter(held_by__isnull=False).count() == 1


def test_what_is_no_task_of_a_run_cannot_be_frozen(mapped: int) -> None:
    for scope_id, error in (
        ("a", InvalidInput),
        (f"{mapped}:nobody", NotFound),
        ("999999:a", NotFound),
    ):
        with pytest.raises(error):
            hold("task", scope_id)
    TaskInstance.objects.filter(run_id=mapped, task_id="a").update(state="success", is_open=False)
    with pytest.raises(Conflict, match="has ended"):
        hold("task", f"{mapped}:a")


def test_the_time_under_a_freeze_of_a_task_counts_for_its_instances_alone(mapped: int) -> None:
    hold("task", f"{mapped}:a")
    Freeze.objects.update(created_at=timezone.now() - timedelta(seconds=60))
    ids = {
        ti.task_id: ti.pk for ti in TaskInstance.objects.filter(run_id=mapped).order_by("map_index")
    }
    with django_connection.cursor() as cursor:
        for task_id, least, most in (("a", 59, 400), ("b", 0, 0)):
            cursor.execute(
                "SELECT frozen_seconds('f', %s, %s, 3, now() - interval '1 hour', clock_timestamp())",
                [mapped, ids[task_id]],
            )
            assert least <= cursor.fetchone()[0] <= most
