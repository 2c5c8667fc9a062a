"""Orphans: executions whose scheduler or worker is gone, adopted or given up."""

from __future__ import annotations

import os
import signal
import threading
import urllib.error
import urllib.request
import uuid
from typing import TYPE_CHECKING, Any

from scheduler_app.models import Attempt, TakeOverItem, TaskInstance
from scheduler_app.operations.clear import clear_task_instances
from scheduler_app.scheduler.take_over import take_over
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.job import beat_job, start_job
from tests.replays import saying
from tests.replays.flows import noted, open_gate, running_attempt
from tests.stack import wait_for
from tests.world import World, chain

if TYPE_CHECKING:
    import psycopg

    from scheduler_app.scheduler.leases import Leases
    from tests.stack import Stack


def test_b039_a_crash_between_publishing_and_noting_it_executes_once(
    world: World, raw: psycopg.Connection[Any], leases: Leases
) -> None:
    """Published, the scheduler dies before it notes so; the next one publishes the same attempt.

    Nothing that the broker hands out needs to be stored: the claim itself notes worker, fence and
    publication, and the second message finds the door closed.
    """
    run_id = world.run(world.flow("f", chain("a")))
    world.tick(run_id)
    sent_before_the_crash = world.messages.pop()
    assert Attempt.objects.get().published_at is None
    take_over(raw, leases=leases, new_terms=leases.terms())
    (sent_again,) = saying.republish(raw, world)
    assert sent_again == sent_before_the_crash, "the same attempt under the same fence"
    assert world.claim(sent_before_the_crash) is not None
    claimed = Attempt.objects.get()
    assert (claimed.fence, claimed.hostname) == (sent_again.fence, "host-1")
    assert claimed.published_at is not None
    nonce = uuid.uuid4()
    assert world.claim(sent_again, nonce) is None
    assert saying.refuse_delivery(raw, world, sent_again, nonce) == "duplicate_delivery"
    assert saying.republish(raw, world) == [], "and it is never reset while it runs"
    world.finish(sent_before_the_crash)
    world.tick(run_id)
    assert saying.outcomes(run_id) == [("success", 1, 0, 1)]
    saying.assert_nothing_hidden()


def test_b041_a_scheduler_that_drains_while_its_health_is_asked_resets_nothing(
    stack: Stack, gate: str
) -> None:
    """SIGTERM, health polled all the while, a replacement starts: what runs goes on."""
    runs = [stack.trigger("holds", conf={"gate": gate}) for _ in range(2)]
    attempts = [running_attempt(stack, run, "held") for run in runs]
    (scheduler,) = stack.job_pids("scheduler")
    stopped = threading.Event()

    def poll() -> None:
        while not stopped.wait(0.05):
            try:
                urllib.request.urlopen(f"{stack.url}/healthz", timeout=5).close()
            except (urllib.error.URLError, OSError):
                continue

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        os.kill(scheduler, signal.SIGTERM)
        wait_for(
            "another scheduler holds every shard",
            lambda: (
                (pids := stack.job_pids("scheduler"))
                and scheduler not in pids
                and not stack.rows(
                    "SELECT 1 FROM lease l LEFT JOIN job j ON j.id = l.holder"
                    " WHERE j.pid IS DISTINCT FROM %s",
                    pids[-1],
                )
            ),
            within_s=90,
        )
        open_gate(stack, gate)
        for run in runs:
            assert stack.wait_for_run(run, within_s=90)["state"] == "success"
    finally:
        stopped.set()
        thread.join()
    for run, attempt in zip(runs, attempts, strict=True):
        (only,) = stack.attempts(run)
        assert only["id"] == attempt["id"]
        assert noted(stack, run) == ["held start", "held end"]
    released = stack.rows(
        "SELECT 1 FROM lease_event e JOIN job j ON j.id = e.holder"
        " WHERE e.kind = 'released' AND j.pid = %s",
        scheduler,
    )
    assert released, "its leases were given up, not left to run out"
    stack.assert_nothing_hidden()


def test_b043_a_task_cleared_while_worker_and_scheduler_were_dead_begins_anew(
    world: World, raw: psycopg.Connection[Any], leases: Leases, dead_soon: None
) -> None:
    """Cleared while it ran, so it is *restarting*; nobody is left to stop it: one sweep is enough."""
    saying.start_worker(raw, world)
    run_id = world.run(world.flow("f", chain("a", retries=1)))
    world.tick(run_id)
    first = world.messages.pop()
    assert world.claim(first) is not None
    saying.silence(raw)
    clear_task_instances(
        ti_ids=[first.ti_id], actor="ana", reason="everything was dead", dry_run=False
    )
    assert world.states(run_id) == {"a": "restarting"}, "its old execution is to be stopped first"
    take_over(raw, leases=leases, new_terms=leases.terms())
    assert saying.lose(raw, world) == {run_id}
    assert world.states(run_id) == {"a": "none"}
    world.tick(run_id)
    second = world.messages.pop()
    assert second.attempt_id != first.attempt_id
    assert world.claim(second) is not None
    world.finish(second)
    assert world.states(run_id) == {"a": "success"}
    old = Attempt.objects.get(pk=first.attempt_id)
    assert (old.outcome, old.filter_code) == ("lost", "superseded_by_clear")
    saying.assert_nothing_hidden()
    ti = TaskInstance.objects.get()
    assert ti.infra_losses == 0, "a clear begins with a whole budget"


def test_b045_a_rescue_follows_silence_and_not_age_and_says_so(
    world: World, raw: psycopg.Connection[Any], dead_soon: None
) -> None:
    """Run 2 is orphaned, run 3 completes, run 2 is rescued: late, with the reason in its record.

    A long task that beats is never rescued, however old it is. There is no switch per task that
    leaves an orphan lying: it would be a run that never ends. What protects a target from old data
    is the fence, which is higher for the rescued execution of its task than for the lost one; a
    target that must not go back in time compares ``ctx.logical_date``.
    """
    saying.start_worker(raw, world)
    flow = world.flow("f", chain("a"))
    old, new = world.run(flow, "run-2"), world.run(flow, "run-3")
    world.tick(old)
    orphan = world.messages.pop()
    assert world.claim(orphan) is not None
    raw.execute(
        "UPDATE attempt SET issued_at = issued_at - interval '30 days',"
        " started_at = started_at - interval '30 days',"
        " heartbeat_at = clock_timestamp() + interval '1 minute'"
    )
    assert saying.lose(raw, world) == set(), "it is old and beats"
    world.play(new)
    raw.execute(
        "UPDATE attempt SET heartbeat_at = clock_timestamp() - interval '1 hour'"
        " WHERE state = 'running'"
    )
    saying.silence(raw)
    assert saying.lose(raw, world) == {old}
    lost = Attempt.objects.get(pk=orphan.attempt_id)
    assert lost.outcome == "lost"
    assert "no heartbeat since" in (lost.outcome_reason or "")
    world.tick(old)
    rescued = world.messages.pop()
    assert rescued.fence > orphan.fence
    assert world.claim(rescued) is not None
    world.finish(rescued)
    assert saying.outcomes(old) == [("lost", 1, 0, 1), ("success", 1, 0, 2)]
    saying.assert_nothing_hidden()


def test_b047_a_worker_that_comes_back_under_the_same_name_does_not_own_what_it_lost(
    world: World, raw: psycopg.Connection[Any], leases: Leases, dead_soon: None
) -> None:
    """Worker w1 dies in the middle of a task, another process registers as w1 on the same host.

    The new one beats for itself; its name and even its pid are the old one's, its id is not.
    """
    dead, reborn = world.worker, uuid7()
    start_job(raw, job_id=dead, kind="worker", name="w1", hostname="host-1", pid=1, detail={})
    run_id = world.run(world.flow("f", chain("a")))
    world.tick(run_id)
    orphan = world.messages.pop()
    assert world.claim(orphan) is not None
    saying.silence(raw)
    start_job(raw, job_id=reborn, kind="worker", name="w1", hostname="host-1", pid=1, detail={})
    beat_job(raw, job_id=reborn, progressed=True)
    take_over(raw, leases=leases, new_terms=leases.terms())
    assert TakeOverItem.objects.count() == 1
    assert saying.lose(raw, world) == {run_id}
    assert Attempt.objects.get(pk=orphan.attempt_id).worker_job_id == dead
    world.tick(run_id)
    world.worker = reborn
    world.serve()
    world.tick(run_id)
    assert saying.outcomes(run_id) == [("lost", 1, 0, 1), ("success", 1, 0, 2)]
    saying.assert_nothing_hidden()
