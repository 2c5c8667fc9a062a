"""Pending events against a real database: one verdict each, and the move that follows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, LiteralString
from uuid import UUID

import psycopg
import pytest

from scheduler_app.models import Attempt, Counter, ExecutorEvent
from scheduler_app.scheduler import sweep
from scheduler_app.transitions.attempt import beat
from scheduler_app.transitions.executor_event import NewEvent, record_events
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.job import end_job, start_job
from tests.recording import broken_laws
from tests.world import World, chain

if TYPE_CHECKING:
    from scheduler_app.scheduler.leases import Leases
    from scheduler_app.transitions.attempt import Message
    from tests.recording import RecordingConnection


@pytest.fixture
def running(world: World, raw: psycopg.Connection[Any]) -> Message:
    """A claimed attempt of a task with one retry, on a live worker."""
    start_job(raw, job_id=world.worker, kind="worker", name="", hostname="host-1", pid=1, detail={})
    run_id = world.run(world.flow("f", chain("a", retries=1, retry_delay_s=0)))
    world.tick(run_id)
    assert world.claim(world.messages[0]) is not None
    return world.messages[0]


def _say(
    raw: psycopg.Connection[Any],
    attempt_id: UUID,
    kind: str,
    *,
    age_s: float = 60,
    job_id: UUID | None = None,
    pid: int = 4711,
) -> None:
    event = NewEvent(
        attempt_id=attempt_id,
        kind=kind,
        source="worker: host-1",
        source_job_id=job_id,
        payload={"hostname": "host-1", "pid": pid},
        dedupe_key=f"{kind}:{attempt_id}",
    )
    assert record_events(raw, events=[event]) == 1
    # As if it had come earlier; what a witness said cannot be changed, so the guard is lifted.
    with raw.transaction():
        raw.execute("ALTER TABLE executor_event DISABLE TRIGGER executor_event_is_judged_once")
        raw.execute(
            "UPDATE executor_event SET received_at = received_at - make_interval(secs => %s)"
            " WHERE verdict = 'pending'",
            [age_s],
        )
        raw.execute("ALTER TABLE executor_event ENABLE TRIGGER executor_event_is_judged_once")


def test_a_child_that_died_without_a_report_fails_its_task_and_uses_a_retry(
    world: World, raw: psycopg.Connection[Any], running: Message
) -> None:
    _say(raw, running.attempt_id, "exit_killed")
    assert world.judge() == {running.run_id}
    assert world.states(running.run_id) == {"a": "up_for_retry"}
    attempt = Attempt.objects.get(pk=running.attempt_id)
    assert (attempt.outcome, attempt.is_accepted) == ("terminated", False)
    event = ExecutorEvent.objects.get()
    assert (event.verdict, event.verdict_code) == ("confirmed", "killed_externally")
    assert Counter.objects.get(name="scheduler_tasks_killed_externally_total").value == 1
    assert world.judge() == set(), "judged once"


def test_a_second_delivery_that_died_before_its_claim_fails_no_healthy_task(
    world: World, raw: psycopg.Connection[Any], running: Message
) -> None:
    # Doubled by the carrier; its child was killed before the other delivery claimed.
    _say(raw, running.attempt_id, "exit_killed", job_id=world.worker, pid=4712)
    assert world.judge() == set()
    assert world.states(running.run_id) == {"a": "running"}
    event = ExecutorEvent.objects.get()
    assert (event.verdict, event.filter_code) == ("refused", "duplicate_delivery")
    assert "host-1:4711" in (event.verdict_reason or "")


def test_the_child_that_claimed_is_known_by_its_worker_and_process(
    world: World, raw: psycopg.Connection[Any], running: Message
) -> None:
    _say(raw, running.attempt_id, "exit_killed", job_id=world.worker)
    assert world.judge() == {running.run_id}
    assert ExecutorEvent.objects.get().verdict_code == "killed_externally"


def test_a_report_that_comes_while_an_event_is_judged_is_what_the_verdict_tells(
    world: World,
    raw: psycopg.Connection[Any],
    leases: Leases,
    running: Message,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _say(raw, running.attempt_id, "exit_killed")
    prove = leases.prove

    def report_first(connection: psycopg.Connection[Any], terms: dict[int, int]) -> None:
        prove(connection, terms)
        world.finish(running)

    monkeypatch.setattr(leases, "prove", report_first)
    world.judge()
    assert world.states(running.run_id) == {"a": "success"}
    assert ExecutorEvent.objects.get().verdict_code == "late_after_terminal"


@pytest.mark.parametrize(
    ("meanwhile", "verdict"),
    [
        ("UPDATE task_instance SET held_by = 7", "pending"),
        (
            "UPDATE executor_event SET verdict = 'ignored', verdict_code = 'stale_superseded',"
            " judged_at = clock_timestamp()",
            "ignored",
        ),
    ],
    ids=["frozen", "judged by another scheduler"],
)
def test_what_happens_while_an_event_is_judged_counts(
    world: World,
    raw: psycopg.Connection[Any],
    leases: Leases,
    running: Message,
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: LiteralString,
    verdict: str,
) -> None:
    _say(raw, running.attempt_id, "exit_killed")
    prove = leases.prove

    def move_first(connection: psycopg.Connection[Any], terms: dict[int, int]) -> None:
        prove(connection, terms)
        connection.execute(meanwhile)

    monkeypatch.setattr(leases, "prove", move_first)
    assert world.judge() == set()
    assert world.states(running.run_id) == {"a": "running"}
    assert ExecutorEvent.objects.get().verdict == verdict


def test_an_event_of_a_worker_that_is_gone_waits_until_its_attempt_is_silent_too(
    world: World, raw: psycopg.Connection[Any], running: Message, settings: Any
) -> None:
    end_job(raw, job_id=world.worker)
    beat(raw, attempt_ids=[running.attempt_id], worker_job_id=world.worker)
    _say(raw, running.attempt_id, "exit_killed")
    assert world.judge() == set()
    assert ExecutorEvent.objects.get().verdict == "pending", "nothing is lost yet"
    settings.HEARTBEAT_DEAD_AFTER_S = 0.0
    assert world.judge() == {running.run_id}
    assert world.states(running.run_id) == {"a": "scheduled"}
    judged = ExecutorEvent.objects.get(kind="exit_killed")
    assert (judged.verdict, judged.verdict_code) == ("confirmed", "worker_lost")


def test_a_child_that_just_died_is_given_time_for_its_report(
    world: World, raw: psycopg.Connection[Any], running: Message
) -> None:
    _say(raw, running.attempt_id, "exit_killed", age_s=0)
    assert world.judge() == set()
    assert ExecutorEvent.objects.get().verdict == "pending"
    world.finish(running)
    world.judge()
    assert ExecutorEvent.objects.get().verdict_code == "late_after_terminal"
    assert world.states(running.run_id) == {"a": "success"}


def test_the_heartbeat_sweep_leaves_a_witnessed_end_to_the_verdict(
    world: World, raw: psycopg.Connection[Any], running: Message
) -> None:
    """The beats of a killed child stop too: it must not be taken for a lost worker."""
    raw.execute(
        "UPDATE attempt SET started_at = started_at - interval '1 hour', heartbeat_at = NULL"
    )
    _say(raw, running.attempt_id, "exit_killed", age_s=0)
    terms = world.leases.terms()
    silent = sweep._running(raw, terms, 0.0)
    assert silent == []
    assert sweep.lose_silent(raw, leases=world.leases, terms=terms) == set()
    assert world.states(running.run_id) == {"a": "running"}


def test_a_success_that_nobody_reported_is_never_granted_by_an_exit(
    world: World, raw: psycopg.Connection[Any], running: Message
) -> None:
    _say(raw, running.attempt_id, "exit_success")
    world.judge()
    assert world.states(running.run_id) == {"a": "up_for_retry"}


def test_an_exit_that_agrees_with_the_report_is_confirmed(
    world: World, raw: psycopg.Connection[Any], running: Message
) -> None:
    world.finish(running)
    _say(raw, running.attempt_id, "exit_success")
    world.judge()
    event = ExecutorEvent.objects.get()
    assert (event.verdict, event.filter_code) == ("confirmed", None)


def test_an_event_of_a_replaced_attempt_is_ignored_with_both_ids(
    world: World, raw: psycopg.Connection[Any], running: Message
) -> None:
    world.finish(running, ok=False, retry_after_s=0.0)
    world.messages = []
    world.tick(running.run_id)
    _say(raw, running.attempt_id, "exit_failed")
    world.judge()
    event = ExecutorEvent.objects.get()
    assert (event.verdict, event.filter_code) == ("ignored", "stale_superseded")
    assert str(world.messages[0].attempt_id) in (event.verdict_reason or "")


def test_an_event_of_an_attempt_that_nobody_issued_is_a_ghost_and_has_a_row(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    stranger = uuid7()
    _say(raw, stranger, "exit_success")
    world.judge()
    event = ExecutorEvent.objects.get()
    assert (event.verdict, event.filter_code) == ("ghost", "ghost_no_record")
    assert Attempt.objects.get(pk=stranger).filter_code == "ghost_no_record"


def test_events_of_a_held_task_wait_for_the_thaw(
    world: World, raw: psycopg.Connection[Any], running: Message
) -> None:
    raw.execute("UPDATE task_instance SET held_by = 7")
    _say(raw, running.attempt_id, "exit_killed")
    assert world.judge() == set()
    raw.execute("UPDATE task_instance SET held_by = NULL")
    assert world.judge() == {running.run_id}


def test_a_verdict_cannot_be_changed_and_an_event_not_deleted(
    world: World, raw: psycopg.Connection[Any], running: Message
) -> None:
    world.finish(running)
    _say(raw, running.attempt_id, "exit_success")
    world.judge()
    with pytest.raises(psycopg.errors.RaiseException, match="judged already"):
        raw.execute("UPDATE executor_event SET verdict = 'ignored'")
    with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
        raw.execute("DELETE FROM executor_event")


def test_judging_proves_the_lease_first_and_keeps_the_lock_order(
    recording: RecordingConnection, leases: Leases
) -> None:
    world = World(recording, leases)
    start_job(
        recording, job_id=world.worker, kind="worker", name="", hostname="h", pid=1, detail={}
    )
    run_id = world.run(world.flow("f", chain("a", retries=1)))
    world.tick(run_id)
    world.claim(world.messages[0])
    _say(recording, world.messages[0].attempt_id, "exit_killed")
    recording.transactions.clear()
    assert world.judge() == {run_id}
    assert broken_laws(recording.transactions, deciding=True) == []
