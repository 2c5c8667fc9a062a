"""Ticks against a real database: what is issued, marked and ended, and under which laws."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import (
    Attempt,
    FlowVersion,
    LeaseEvent,
    Pool,
    Run,
    RunAttempt,
    TaskInstance,
)
from scheduler_app.processes import database
from scheduler_app.rules.definition import TaskDefinition, TriggerRule
from scheduler_app.rules.errors import Fenced
from scheduler_app.scheduler.leases import Leases
from scheduler_app.transitions.attempt import lose
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.lease import acquire
from tests.recording import broken_laws
from tests.world import World, chain

if TYPE_CHECKING:
    import psycopg

    from tests.recording import RecordingConnection


def test_a_chain_runs_to_success_one_attempt_a_task(world: World) -> None:
    run_id = world.run(world.flow("f", chain("a", "b", "c")))
    run = world.play(run_id)
    assert run.state == "success"
    assert run.ended_at is not None
    assert [a.task_id for a in world.attempts(run_id)] == ["a", "b", "c"]
    assert all(a.is_accepted and a.filter_code is None for a in world.attempts(run_id))
    assert RunAttempt.objects.get(run_id=run_id).state == "success"


def test_every_attempt_carries_the_lease_token_and_a_growing_fence(world: World) -> None:
    run_id = world.run(world.flow("f", chain("a", "b")))
    world.play(run_id)
    attempts = world.attempts(run_id)
    assert {a.lease_token for a in attempts} == {world.leases.terms()[3]}
    assert attempts[0].fence is not None
    assert attempts[1].fence is not None
    assert attempts[0].fence < attempts[1].fence


def test_a_failed_task_fails_what_is_downstream_and_the_run(world: World) -> None:
    run_id = world.run(world.flow("f", chain("a", "b", "c")))
    run = world.play(run_id, failing=["a"])
    assert run.state == "failed"
    assert world.states(run_id) == {"a": "failed", "b": "upstream_failed", "c": "upstream_failed"}


def test_a_task_that_wants_a_failure_is_skipped_without_one(world: World) -> None:
    alarm = TaskDefinition(task_id="alarm", upstream=("a",), trigger_rule=TriggerRule.ONE_FAILED)
    run_id = world.run(world.flow("f", (*chain("a"), alarm)))
    run = world.play(run_id)
    assert run.state == "success"
    assert world.states(run_id) == {"a": "success", "alarm": "skipped"}


def test_a_retry_sets_the_first_attempt_aside_with_its_reason(world: World) -> None:
    run_id = world.run(world.flow("f", chain("a", retries=1)))
    world.tick(run_id)
    first = world.messages[0]
    assert world.claim(first) is not None
    world.finish(first, ok=False, retry_after_s=0.0)
    world.messages = []
    world.tick(run_id)
    (second,) = world.messages
    old, new = world.attempts(run_id)
    assert (old.filter_code, old.superseded_by) == ("superseded_by_retry", str(new.pk))
    assert old.filter_detail is not None
    assert (old.filter_detail["try_number"], old.filter_detail["new_try_number"]) == (1, 2)
    assert (new.try_number, new.resume_index, new.dispatch_no) == (2, 0, 1)
    assert second.fence > first.fence


def test_a_retry_that_is_not_due_is_not_issued_and_its_time_is_told(world: World) -> None:
    run_id = world.run(world.flow("f", chain("a", retries=1)))
    world.tick(run_id)
    assert world.claim(world.messages[0]) is not None
    world.finish(world.messages[0], ok=False, retry_after_s=60.0)
    outcome = world.tick(run_id)
    assert outcome.messages == []
    assert 50 < outcome.retry_in_s[run_id] <= 60


def test_a_lost_worker_makes_a_new_dispatch_of_the_same_try(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    run_id = world.run(world.flow("f", chain("a")))
    world.tick(run_id)
    assert world.claim(world.messages[0]) is not None
    lost = lose(
        raw,
        attempt_ids=[world.messages[0].attempt_id],
        dead_after_s=0.0,
        budget=3,
        source="test",
    )
    assert [row["state"] for row in lost] == ["scheduled"]
    world.tick(run_id)
    old, new = world.attempts(run_id)
    assert (old.outcome, old.filter_code) == ("lost", "lost_worker")
    assert (new.try_number, new.resume_index, new.dispatch_no) == (1, 0, 2)


def test_losses_beyond_the_infrastructure_budget_fail_the_task(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    run_id = world.run(world.flow("f", chain("a")))
    for _ in range(3):
        world.messages = []
        world.tick(run_id)
        assert world.claim(world.messages[0]) is not None
        ids = [world.messages[0].attempt_id]
        lose(raw, attempt_ids=ids, dead_after_s=0.0, budget=2, source="test")
    assert world.states(run_id) == {"a": "failed"}


def test_a_run_does_not_end_while_an_attempt_is_live(world: World) -> None:
    run_id = world.run(world.flow("f", chain("a")))
    world.tick(run_id)
    assert world.claim(world.messages[0]) is not None
    world.tick(run_id)
    assert Run.objects.get(pk=run_id).state == "running"


def test_the_pool_bounds_what_is_issued_and_the_others_say_why(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    raw.execute("UPDATE pool SET slots = 2")
    fan = [TaskDefinition(task_id=f"t{i}") for i in range(5)]
    run_id = world.run(world.flow("f", fan))
    outcome = world.tick(run_id)
    assert len(outcome.messages) == 2
    assert outcome.waiting_runs == {run_id}
    for view in world.ticker._views._views.values():
        for instance in view.instances.values():
            if instance.ready_since is not None:
                instance.ready_since = instance.ready_since.replace(year=2020)
    world.tick(run_id)
    waits = TaskInstance.objects.filter(run_id=run_id, state="scheduled")
    assert waits.count() == 3
    assert {ti.wait and ti.wait["code"] for ti in waits} == {"pool_full"}


def test_higher_priority_goes_first_when_there_is_room_for_one(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    raw.execute("UPDATE pool SET slots = 1")
    tasks = [TaskDefinition(task_id="low"), TaskDefinition(task_id="high", priority=5)]
    run_id = world.run(world.flow("f", tasks))
    world.tick(run_id)
    assert [a.task_id for a in world.attempts(run_id)] == ["high"]


def test_an_unknown_pool_holds_its_task_and_nothing_else(world: World) -> None:
    tasks = [TaskDefinition(task_id="a"), TaskDefinition(task_id="b", pool="nowhere")]
    run_id = world.run(world.flow("f", tasks))
    world.tick(run_id)
    assert [a.task_id for a in world.attempts(run_id)] == ["a"]


def test_max_active_runs_keeps_later_runs_queued_until_one_ends(world: World) -> None:
    flow = world.flow("f", chain("a"), max_active_runs=1)
    first, second = world.run(flow, "r1"), world.run(flow, "r2")
    outcome = world.tick(first, second)
    assert outcome.queued_runs == {"f": {second}}
    assert Run.objects.get(pk=second).state == "queued"
    world.serve()
    world.tick(first)
    world.tick(second)
    assert Run.objects.get(pk=second).state == "running"


def test_max_active_tasks_bounds_one_run(world: World) -> None:
    fan = [TaskDefinition(task_id=f"t{i}") for i in range(6)]
    run_id = world.run(world.flow("f", fan, max_active_tasks=4))
    assert len(world.tick(run_id).messages) == 4
    assert len(world.tick(run_id).messages) == 0


def test_no_more_deliveries_wait_in_a_queue_than_its_workers_can_soon_take(world: World) -> None:
    fan = [TaskDefinition(task_id=f"t{i}") for i in range(100)]
    run_id = world.run(world.flow("f", fan, max_active_tasks=100))
    world.queue_slots = {"default": 15}
    assert len(world.tick(run_id).messages) == 30


def test_a_held_task_instance_is_not_issued(world: World, raw: psycopg.Connection[Any]) -> None:
    run_id = world.run(world.flow("f", chain("a")))
    raw.execute("UPDATE task_instance SET held_by = 1 WHERE run_id = %s", [run_id])
    assert world.tick(run_id).messages == []


def test_a_frozen_run_and_a_frozen_flow_are_left_alone(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    run_id = world.run(world.flow("f", chain("a")))
    raw.execute("UPDATE run SET frozen_at = clock_timestamp() WHERE id = %s", [run_id])
    assert world.tick(run_id).messages == []
    raw.execute("UPDATE run SET frozen_at = NULL WHERE id = %s", [run_id])
    raw.execute("UPDATE flow SET frozen_at = clock_timestamp()")
    assert world.tick(run_id).messages == []


def test_a_second_tick_over_the_same_rows_issues_nothing(world: World) -> None:
    run_id = world.run(world.flow("f", chain("a")))
    world.tick(run_id)
    world.ticker.forget([run_id])
    assert world.tick(run_id).messages == []
    assert Attempt.objects.count() == 1


def test_two_schedulers_that_hold_the_same_rows_in_mind_issue_one_attempt(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    run_id = world.run(world.flow("f", chain("a")))
    # The other one read the run before and decides from memory.
    twin = World(raw, world.leases)
    fan = world.run(world.flow("g", [TaskDefinition(task_id=f"t{i}") for i in range(3)]), "r2")
    world.tick(run_id, fan)
    twin.tick(run_id, fan)
    assert Attempt.objects.count() == 4


def test_a_deposed_scheduler_writes_nothing_and_its_refused_write_is_recorded(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    run_id = world.run(world.flow("f", chain("a")))
    terms = world.leases.terms()
    raw.execute("UPDATE lease SET expires_at = clock_timestamp() - interval '1 s'")
    taken = acquire(raw, holder=uuid7(), want=16, ttl_s=60)
    assert all(taken[shard] == terms[shard] + 1 for shard in terms)
    with pytest.raises(Fenced) as refused:
        world.tick(run_id)
    assert Attempt.objects.count() == 0
    world.leases.refused(raw, refused.value, terms, "tick")
    event = LeaseEvent.objects.filter(kind="fenced_write", shard=3).get()
    assert event.detail["sentence"] == f"token {terms[3]} < {terms[3] + 1}"
    assert world.leases.terms() == {}


def test_a_take_over_waits_for_no_one_and_skips_a_shard_that_is_being_decided(
    raw: psycopg.Connection[Any], world: World
) -> None:
    """The tick holds its proof; an expired lease cannot change hands under it."""
    raw.execute("UPDATE lease SET expires_at = clock_timestamp() - interval '1 s'")
    with database.connect("scheduler") as other:
        with raw.transaction():
            world.leases.prove(raw, world.leases.terms())
            assert acquire(other, holder=uuid7(), want=16, ttl_s=60) == {}
        assert len(acquire(other, holder=uuid7(), want=16, ttl_s=60)) == 16


def test_a_proof_that_waited_behind_a_take_over_sees_it(
    raw: psycopg.Connection[Any], world: World
) -> None:
    terms = world.leases.terms()
    outcome: list[BaseException | None] = []

    def decide() -> None:
        with database.connect("scheduler") as connection:
            try:
                with connection.transaction():
                    world.leases.prove(connection, terms)
                outcome.append(None)
            except Fenced as error:
                outcome.append(error)

    raw.execute("UPDATE lease SET expires_at = clock_timestamp() - interval '1 s'")
    with raw.transaction():
        acquire(raw, holder=uuid7(), want=16, ttl_s=60)
        thread = threading.Thread(target=decide)
        thread.start()
        time.sleep(0.2)  # long enough for the proof to be waiting for the row
        assert outcome == []
    thread.join(timeout=5)
    assert isinstance(outcome[0], Fenced)


def test_renewal_passes_while_a_proof_is_held(raw: psycopg.Connection[Any], world: World) -> None:
    with raw.transaction():
        world.leases.prove(raw, world.leases.terms())
        with database.connect("lease") as other:
            world.leases._renew_once(other)
    assert len(world.leases.terms()) == 16


def test_a_loop_without_progress_gives_its_leases_up(raw: psycopg.Connection[Any]) -> None:
    stalled = Leases(holder=uuid7(), ttl_s=3, renew_interval_s=0.1, deadline_s=0.3)
    stalled.balance(raw, dead_after_s=60)
    assert len(stalled.terms()) == 16
    stalled.start()
    deadline = time.monotonic() + 10
    while stalled.terms() and time.monotonic() < deadline:
        time.sleep(0.05)
    # Trust ends first, the demotion follows at the next renewal.
    while not LeaseEvent.objects.filter(kind="demoted").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    stalled.stop(None)
    assert stalled.terms() == {}
    assert LeaseEvent.objects.filter(kind="demoted", shard=0).get().detail["why"]


def test_ticks_take_locks_in_order_prove_first_and_are_short(
    recording: RecordingConnection, leases: Leases
) -> None:
    world = World(recording, leases)
    fan = [TaskDefinition(task_id=f"t{i}") for i in range(20)]
    last = TaskDefinition(task_id="last", upstream=tuple(t.task_id for t in fan))
    run_id = world.run(world.flow("f", [*fan, last], max_active_tasks=100))
    recording.transactions.clear()
    for _ in range(10):
        world.messages = []
        world.tick(run_id)
        recorded = list(recording.transactions)
        recording.transactions.clear()
        assert broken_laws(recorded, deciding=True) == []
        for message in world.messages:
            world.claim(message)
            world.finish(message)
        recorded = list(recording.transactions)
        recording.transactions.clear()
        assert broken_laws(recorded, deciding=False) == []
    assert Run.objects.get(pk=run_id).state == "success"


def test_a_step_of_a_known_run_takes_six_statements_and_so_do_many(
    recording: RecordingConnection, leases: Leases
) -> None:
    world = World(recording, leases)
    flow = world.flow("f", chain("a", "b"), max_active_runs=10)
    run_ids = [world.run(flow, f"r{i}") for i in range(5)]
    world.tick(*run_ids)
    world.serve()
    for decided in (run_ids[:1], run_ids[1:]):
        recording.transactions.clear()
        world.tick(*decided)
        (transaction,) = recording.transactions
        # Proof, pools, runs, what moved, what is taken, dispatch.
        assert len(transaction.statements) == 6, transaction.statements
    world.serve()
    recording.transactions.clear()
    world.tick(*run_ids)
    (transaction,) = recording.transactions
    assert len(transaction.statements) == 5, transaction.statements
    assert set(Run.objects.values_list("state", flat=True)) == {"success"}


def test_of_runs_that_end_together_each_has_its_own_end(world: World) -> None:
    flow = world.flow("f", chain("a"))
    good, bad, live = (world.run(flow, key) for key in ("good", "bad", "live"))
    world.tick(good, bad, live)
    for message in world.messages:
        world.claim(message)
        if message.run_id != live:
            world.finish(message, ok=message.run_id == good)
    outcome = world.tick(good, bad, live)
    assert outcome.ended_flows == {"f"}
    assert outcome.is_retry_due, "one failed"
    assert not outcome.is_schedule_free, "none of them was the schedule's"
    for run_id, state in ((good, "success"), (bad, "failed"), (live, "running")):
        run = Run.objects.get(pk=run_id)
        assert (run.state, run.ended_at is None) == (state, run_id == live)
        assert RunAttempt.objects.get(run_id=run_id).state == state


@pytest.mark.parametrize(
    ("run", "ok", "is_schedule_free", "is_retry_due"),
    [
        ({}, True, False, False),
        ({"run_type": "scheduled"}, True, True, False),
        ({}, False, False, True),
        ({"run_attempt": 2}, True, False, True),
    ],
)
def test_the_end_of_a_run_says_what_may_go_on_by_it(
    world: World, run: dict[str, Any], ok: bool, is_schedule_free: bool, is_retry_due: bool
) -> None:
    run_id = world.run(world.flow("f", chain("a")))
    Run.objects.filter(pk=run_id).update(**run)
    RunAttempt.objects.filter(run_id=run_id).update(number=run.get("run_attempt", 1))
    world.tick(run_id)
    world.serve(failing=() if ok else ("a",))
    outcome = world.tick(run_id)
    assert Run.objects.get(pk=run_id).state == ("success" if ok else "failed")
    assert (outcome.is_schedule_free, outcome.is_retry_due) == (is_schedule_free, is_retry_due)


def test_a_run_that_got_another_version_is_decided_by_it_at_the_next_tick(world: World) -> None:
    run_id = world.run(world.flow("f", chain("a", "b")))
    world.tick(run_id)
    world.serve()
    newer = FlowVersion.objects.get()
    newer.definition["tasks"][1]["pool"] = "narrow"
    newer.pk, newer.number, newer.digest = None, 2, "1" * 64
    newer.save()
    Pool.objects.create(name="narrow", slots=0)
    TaskInstance.objects.filter(run_id=run_id, task_id="b").update(pool="narrow")
    Run.objects.filter(pk=run_id).update(version=newer)
    assert world.tick(run_id).again == {run_id}
    assert world.tick(run_id).messages == []
    assert TaskInstance.objects.get(run_id=run_id, task_id="b").state == "none"
    Pool.objects.filter(name="narrow").update(slots=1)
    assert len(world.tick(run_id).messages) == 1
