"""Deferral and resume against a real database: one winner, one resume, the same try."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from scheduler_app.models import Attempt, Counter, ExternalEvent, TaskInstance, Trigger
from scheduler_app.processes import database
from scheduler_app.rules import values
from scheduler_app.transitions.attempt import lose
from scheduler_app.transitions.executor_event import NewEvent, record_events
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.job import beat_job, end_job, start_job
from scheduler_app.transitions.trigger import (
    Fire,
    claim_triggers,
    fire,
    fire_due,
    note_blocked,
    record_external_event,
    release_triggers,
    watched_by,
)
from tests.recording import broken_laws
from tests.world import World, chain

if TYPE_CHECKING:
    from scheduler_app.transitions.attempt import Message
    from tests.recording import RecordingConnection


def _ti(message: Message) -> TaskInstance:
    return TaskInstance.objects.get(pk=message.ti_id)


@pytest.fixture
def running(world: World) -> Message:
    """A claimed attempt of a task with one retry."""
    run_id = world.run(world.flow("f", chain("a", retries=1, retry_delay_s=0)))
    world.tick(run_id)
    assert world.claim(world.messages[0]) is not None
    return world.messages.pop()


def _resume(world: World, message: Message) -> Any:
    """The next attempt of the same task, dispatched and claimed: message and claim."""
    world.tick(message.run_id)
    resumed = world.messages.pop()
    claim = world.claim(resumed)
    assert claim is not None
    return resumed, claim


def test_a_deferral_ends_the_attempt_and_leaves_a_trigger(world: World, running: Message) -> None:
    trigger_id = world.defer(running, timeout_s=60)
    attempt = Attempt.objects.get(pk=running.attempt_id)
    assert (attempt.state, attempt.outcome, attempt.is_accepted) == ("ended", "deferred", True)
    assert (attempt.is_live, attempt.filter_code) == (False, None)
    ti = _ti(running)
    assert (ti.state, ti.is_open, ti.attempt_id) == ("deferred", True, running.attempt_id)
    assert (ti.next_method, ti.next_kwargs) == ("resumed", {"kwargs": {"n": 1}})
    assert ti.wait is not None
    assert ti.wait["code"] == "deferred"
    trigger = Trigger.objects.get(pk=trigger_id)
    assert (trigger.ti_id, trigger.run_id, trigger.shard) == (ti.pk, ti.run_id, ti.shard)
    assert (trigger.try_number, trigger.resume_index) == (1, 0)
    assert trigger.timeout_at is not None
    assert trigger.timeout_at - trigger.created_at == timedelta(seconds=60)
    assert trigger.wake_at == trigger.timeout_at


def test_a_deferred_task_keeps_its_run_open_and_is_not_dispatched(
    world: World, running: Message
) -> None:
    world.defer(running)
    outcome = world.tick(running.run_id)
    assert outcome.messages == []
    assert outcome.ended_flows == set()


def test_a_second_report_of_a_deferred_attempt_changes_nothing(
    world: World, running: Message
) -> None:
    world.defer(running)
    with pytest.raises(AssertionError, match="not accepted"):
        world.defer(running)
    with pytest.raises(AssertionError, match="not accepted"):
        world.finish(running)
    assert Trigger.objects.count() == 1


def test_a_fire_resumes_the_same_try_in_a_new_attempt(world: World, running: Message) -> None:
    trigger_id = world.defer(running)
    assert world.fire(trigger_id, {"rows": 3}) == "moved"
    ti = _ti(running)
    assert (ti.state, ti.resume_index, ti.try_number) == ("scheduled", 1, 1)
    assert (ti.attempt_id, ti.wait) == (running.attempt_id, None)
    resumed, claim = _resume(world, running)
    assert (claim.try_number, claim.resume_index, claim.dispatch_no) == (1, 1, 1)
    assert claim.next_method == "resumed"
    assert claim.next_kwargs == {"kwargs": {"n": 1}, "event": {"rows": 3}}
    first = Attempt.objects.get(pk=running.attempt_id)
    assert (first.filter_code, first.superseded_by) == (
        "superseded_by_resume",
        str(resumed.attempt_id),
    )
    assert resumed.fence > running.fence
    world.finish(resumed)
    ti.refresh_from_db()
    assert (ti.state, ti.next_method, ti.next_kwargs) == ("success", None, None)
    trigger = Trigger.objects.get(pk=trigger_id)
    assert (trigger.state, trigger.is_waiting) == ("fired", False)
    assert trigger.ended_at is not None


def test_a_resume_uses_no_retry_and_a_failed_resume_retries_from_the_start(
    world: World, running: Message
) -> None:
    world.fire(world.defer(running))
    resumed, claim = _resume(world, running)
    assert claim.max_tries == 1
    world.finish(resumed, ok=False, retry_after_s=0)
    again, claim = _resume(world, resumed)
    assert (claim.try_number, claim.resume_index) == (2, 0)
    assert (claim.next_method, claim.next_kwargs) == (None, None)
    world.finish(again)
    assert world.tick(running.run_id).ended_flows == {"f"}


def test_a_lost_resume_is_dispatched_again_with_what_it_resumes_with(
    world: World, running: Message
) -> None:
    world.fire(world.defer(running), "e")
    resumed, _ = _resume(world, running)
    lost = lose(
        world.connection,
        attempt_ids=[resumed.attempt_id],
        dead_after_s=-1,
        budget=3,
        source="test",
    )
    assert [row["attempt_id"] for row in lost] == [resumed.attempt_id]
    _, claim = _resume(world, resumed)
    assert (claim.try_number, claim.resume_index, claim.dispatch_no) == (1, 1, 2)
    assert (claim.next_method, claim.next_kwargs["event"]) == ("resumed", "e")
    assert Attempt.objects.get(pk=resumed.attempt_id).filter_code == "lost_worker"


def test_a_task_may_defer_many_times_in_one_try(world: World, running: Message) -> None:
    message = running
    for number in range(20):
        assert world.fire(world.defer(message, next_method=f"m{number}"), number) == "moved"
        message, claim = _resume(world, message)
        assert (claim.try_number, claim.resume_index) == (1, number + 1)
        assert (claim.next_method, claim.next_kwargs["event"]) == (f"m{number}", number)
    world.finish(message)
    world.tick(running.run_id)
    attempts = world.attempts(running.run_id)
    assert len(attempts) == 21
    assert sum(a.is_accepted for a in attempts) == 21
    assert [a.filter_code for a in attempts] == ["superseded_by_resume"] * 20 + [None]


def test_only_the_first_fire_counts(world: World, running: Message) -> None:
    trigger_id = world.defer(running)
    assert world.fire(trigger_id, "first") == "moved"
    assert world.fire(trigger_id, "second") == "late"
    _, claim = _resume(world, running)
    assert claim.next_kwargs["event"] == "first"
    assert world.fire(trigger_id, "third") == "late"
    assert _ti(running).state == "running"


def test_a_late_fire_does_not_wake_the_next_deferral(world: World, running: Message) -> None:
    old = world.defer(running)
    world.fire(old)
    resumed, _ = _resume(world, running)
    new = world.defer(resumed)
    assert world.fire(old, "stale") == "late"
    assert _ti(running).state == "deferred"
    assert world.fire(new, "fresh") == "moved"


def test_a_trigger_whose_task_waits_no_longer_is_cancelled(world: World, running: Message) -> None:
    trigger_id = world.defer(running)
    TaskInstance.objects.filter(pk=running.ti_id).update(state="success", is_open=False)
    assert world.fire(trigger_id) == "over"
    trigger = Trigger.objects.get(pk=trigger_id)
    assert (trigger.state, trigger.is_waiting) == ("cancelled", False)
    assert _ti(running).state == "success"


def _race(*acts: Callable[[psycopg.Connection[Any]], Any]) -> list[Any]:
    """What each act returned; all started together, each on a connection of its own."""
    barrier = threading.Barrier(len(acts))
    answers: list[Any] = [None] * len(acts)

    def run(place: int) -> None:
        with database.connect("scheduler") as connection:
            barrier.wait(5)
            answers[place] = acts[place](connection)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return answers


def _until_known(trigger_ids: list[int], sender: str) -> Callable[[psycopg.Connection[Any]], Any]:
    def act(connection: psycopg.Connection[Any]) -> list[str]:
        known: list[str] = []
        wanted = trigger_ids
        while wanted:
            fired = fire(
                connection,
                fires=[
                    Fire(trigger_id=one, state="fired", payload={"event": sender}) for one in wanted
                ],
            )
            known += [one.what for one in fired if one.what != "again"]
            wanted = [one.trigger_id for one in fired if one.what == "again"]
        return known

    return act


def test_triggers_that_several_senders_saw_fire_once_each(world: World) -> None:
    run_id = world.run(world.flow("f", [chain(f"t{n}")[0] for n in range(20)]))
    world.queue_slots = {"default": 50}
    world.tick(run_id)
    trigger_ids = []
    for message in world.messages:
        assert world.claim(message) is not None
        trigger_ids.append(world.defer(message))
    backwards = list(reversed(trigger_ids))
    answers = _race(
        _until_known(trigger_ids, "one"),
        _until_known(backwards, "two"),
        _until_known(trigger_ids[10:] + trigger_ids[:10], "three"),
    )
    moved = [what for answer in answers for what in answer]
    assert moved.count("moved") == 20
    assert moved.count("late") == 40
    assert set(TaskInstance.objects.values_list("state", "resume_index")) == {("scheduled", 1)}
    assert Counter.objects.get(name="triggers_succeeded_total").value == 20


def test_a_fire_that_meets_a_locked_task_is_told_to_come_again(
    world: World, running: Message
) -> None:
    trigger_id = world.defer(running)
    with database.connect("worker") as other, other.transaction():
        other.execute("SELECT 1 FROM task_instance FOR NO KEY UPDATE")
        assert world.fire(trigger_id) == "again"
    assert world.fire(trigger_id) == "moved"


def test_timers_fire_when_they_are_due_and_not_before(world: World) -> None:
    run_id = world.run(world.flow("f", chain("a") + chain("b") + chain("c")))
    world.tick(run_id)
    kinds = {"kind": "time", "classpath": "scheduler_app.authoring.triggers:TimeTrigger"}
    past = datetime(2026, 1, 1, tzinfo=UTC)
    waits: list[dict[str, Any]] = [{"due_at": past}, {"due_after_s": 0}, {"due_after_s": 3600}]
    for message, wait in zip(world.messages, waits, strict=True):
        world.claim(message)
        world.defer(message, **kinds, **wait)
    done = fire_due(world.connection, limit=10)
    assert [one.what for one in done.fired] == ["moved", "moved"]
    assert done.next_in_s is not None
    assert 3590 < done.next_in_s <= 3600
    assert fire_due(world.connection, limit=10).fired == []
    ti = TaskInstance.objects.get(task_id="a")
    assert ti.next_kwargs is not None
    assert values.decode(ti.next_kwargs["event"]) == past
    assert world.states(run_id) == {"a": "scheduled", "b": "scheduled", "c": "deferred"}


def test_a_look_at_what_is_due_is_bounded_and_says_that_there_is_more(world: World) -> None:
    run_id = world.run(world.flow("f", [chain(f"t{n}")[0] for n in range(5)]))
    world.tick(run_id)
    for message in world.messages:
        world.claim(message)
        world.defer(message, kind="time", due_after_s=0)
    done = fire_due(world.connection, limit=3)
    assert (len(done.fired), done.is_full) == (3, True)
    done = fire_due(world.connection, limit=3)
    assert (len(done.fired), done.is_full) == (2, False)


def test_a_deferral_that_is_over_its_time_resumes_with_that_error(
    world: World, running: Message
) -> None:
    trigger_id = world.defer(running, timeout_s=0)
    (fired,) = fire_due(world.connection, limit=10).fired
    assert (fired.what, fired.state) == ("moved", "timed_out")
    assert world.fire(trigger_id) == "late"
    _, claim = _resume(world, running)
    assert claim.next_kwargs == {"kwargs": {"n": 1}, "error": {"kind": "timeout", "after_s": 0}}


def test_a_timer_due_before_its_time_limit_fires_however_late_it_is_looked_at(
    world: World, running: Message
) -> None:
    world.defer(running, kind="time", due_at=datetime(2026, 1, 1, tzinfo=UTC), timeout_s=0)
    (fired,) = fire_due(world.connection, limit=10).fired
    assert fired.state == "fired"


def test_what_fires_while_frozen_is_kept_and_let_through_at_the_thaw(
    world: World, running: Message
) -> None:
    trigger_id = world.defer(running, timeout_s=0)
    TaskInstance.objects.filter(pk=running.ti_id).update(held_by=1)
    assert fire_due(world.connection, limit=10).fired == [], "its clock stands still"
    assert world.fire(trigger_id, "kept") == "kept"
    assert world.fire(trigger_id, "second") == "late", "the first counts"
    assert (_ti(running).state, _ti(running).resume_index) == ("deferred", 0)
    trigger = Trigger.objects.get(pk=trigger_id)
    assert (trigger.state, trigger.is_waiting) == ("fired", True)
    assert fire_due(world.connection, limit=10).fired == []
    TaskInstance.objects.filter(pk=running.ti_id).update(held_by=None)
    (fired,) = fire_due(world.connection, limit=10).fired
    assert (fired.what, fired.state) == ("moved", "fired")
    _, claim = _resume(world, running)
    assert claim.next_kwargs["event"] == "kept"
    assert fire_due(world.connection, limit=10).fired == []


def test_an_event_for_a_waiting_task_finds_its_trigger(world: World, running: Message) -> None:
    trigger_id = world.defer(running, kind="event", event_key="go")
    fire_due(world.connection, limit=10)
    with world.connection.transaction():
        _, found = record_external_event(
            world.connection, ti_id=running.ti_id, key="other", payload=1, actor="anna"
        )
        assert found is None
        event_id, found = record_external_event(
            world.connection, ti_id=running.ti_id, key="go", payload={"ok": True}, actor="anna"
        )
        assert found == trigger_id
        (fired,) = fire(
            world.connection,
            fires=[
                Fire(
                    trigger_id=found,
                    state="fired",
                    payload={"event": {"ok": True}},
                    event_id=event_id,
                )
            ],
        )
    assert fired.what == "moved"
    assert ExternalEvent.objects.get(pk=event_id).trigger_id == trigger_id
    assert ExternalEvent.objects.get(key="other").trigger_id is None


def test_an_event_that_comes_before_its_deferral_is_kept_and_taken_once(
    world: World, running: Message
) -> None:
    for payload in ("early", "second"):
        with world.connection.transaction():
            _, found = record_external_event(
                world.connection, ti_id=running.ti_id, key="go", payload=payload, actor="anna"
            )
        assert found is None
    world.defer(running, kind="event", event_key="go")
    (fired,) = fire_due(world.connection, limit=10).fired
    assert fired.what == "moved"
    resumed, claim = _resume(world, running)
    assert claim.next_kwargs["event"] == "early"
    assert [e.trigger_id for e in ExternalEvent.objects.order_by("id")] == [fired.trigger_id, None]
    world.defer(resumed, kind="event", event_key="go")
    fire_due(world.connection, limit=10)
    _, claim = _resume(world, resumed)
    assert claim.next_kwargs["event"] == "second"


@pytest.mark.parametrize("attempt", range(5))
def test_an_event_that_races_its_deferral_is_never_lost(
    world: World, running: Message, attempt: int
) -> None:
    def send(connection: psycopg.Connection[Any]) -> None:
        with connection.transaction():
            event_id, found = record_external_event(
                connection, ti_id=running.ti_id, key="go", payload=1, actor="anna"
            )
            if found is not None:
                fire(
                    connection,
                    fires=[
                        Fire(
                            trigger_id=found,
                            state="fired",
                            payload={"event": 1},
                            event_id=event_id,
                        )
                    ],
                )

    def wait(connection: psycopg.Connection[Any]) -> None:
        world.defer_by(connection, running, kind="event", event_key="go")

    acts = [send, wait, lambda connection: fire_due(connection, limit=10)]
    _race(*acts[attempt % 3 :], *acts[: attempt % 3])
    fire_due(world.connection, limit=10)
    assert _ti(running).state == "scheduled"
    assert ExternalEvent.objects.get().trigger_id is not None


def _triggerer(raw: psycopg.Connection[Any]) -> Any:
    job_id = uuid7()
    start_job(raw, job_id=job_id, kind="triggerer", name="", hostname="host-1", pid=1, detail={})
    return job_id


def _watched(world: World, number: int) -> list[int]:
    run_id = world.run(world.flow("f", [chain(f"t{n}")[0] for n in range(number)]))
    world.queue_slots = {"default": 50}
    world.tick(run_id)
    for message in world.messages:
        world.claim(message)
    return [world.defer(message) for message in world.messages]


def test_triggerers_share_the_watched_triggers(world: World, raw: psycopg.Connection[Any]) -> None:
    trigger_ids = set(_watched(world, 10))
    one, two = _triggerer(raw), _triggerer(raw)
    first = claim_triggers(raw, job_id=one, limit=4, dead_after_s=10)
    second = claim_triggers(raw, job_id=two, limit=100, dead_after_s=10)
    assert (len(first), len(second)) == (4, 6)
    assert {c.trigger_id for c in first + second} == trigger_ids
    assert {(c.flow_id, c.classpath, c.bundle_digest) for c in first} == {
        ("f", "flow:Watched", "0" * 64)
    }
    assert claim_triggers(raw, job_id=one, limit=100, dead_after_s=10) == []
    assert watched_by(raw, job_id=one) == {c.trigger_id for c in first}


def test_timers_and_external_events_need_nobody_to_watch_them(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    run_id = world.run(world.flow("f", chain("a") + chain("b")))
    world.tick(run_id)
    for message in world.messages:
        world.claim(message)
    world.defer(world.messages[0], kind="time", due_after_s=60)
    world.defer(world.messages[1], kind="event", event_key="go")
    assert claim_triggers(raw, job_id=_triggerer(raw), limit=10, dead_after_s=10) == []


def test_what_a_dead_triggerer_watched_is_taken_over(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    _watched(world, 3)
    dead, heir = _triggerer(raw), _triggerer(raw)
    claim_triggers(raw, job_id=dead, limit=10, dead_after_s=10)
    # Its side thread goes on beating; its loop does not get on.
    raw.execute("UPDATE job SET progress_at = progress_at - interval '1 min' WHERE id = %s", [dead])
    beat_job(raw, job_id=dead, progressed=False)
    assert len(claim_triggers(raw, job_id=heir, limit=10, dead_after_s=10)) == 3
    assert watched_by(raw, job_id=dead) == frozenset()


def test_what_an_ended_or_forgotten_triggerer_watched_is_taken_over(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    _watched(world, 4)
    ended, forgotten, heir = _triggerer(raw), uuid7(), _triggerer(raw)
    claim_triggers(raw, job_id=ended, limit=2, dead_after_s=10)
    claim_triggers(raw, job_id=forgotten, limit=2, dead_after_s=10)
    end_job(raw, job_id=ended)
    assert len(claim_triggers(raw, job_id=heir, limit=10, dead_after_s=10)) == 4


def test_what_a_triggerer_gives_up_is_free_at_once(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    trigger_ids = _watched(world, 3)
    one, two = _triggerer(raw), _triggerer(raw)
    claim_triggers(raw, job_id=one, limit=10, dead_after_s=10)
    world.fire(trigger_ids[0])
    assert release_triggers(raw, job_id=one) == 2
    claimed = claim_triggers(raw, job_id=two, limit=10, dead_after_s=10)
    assert {c.trigger_id for c in claimed} == set(trigger_ids[1:])


def test_racing_triggerers_never_watch_the_same_trigger(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    trigger_ids = _watched(world, 40)

    def claims(connection: psycopg.Connection[Any]) -> set[int]:
        job_id = _triggerer(connection)
        got: set[int] = set()
        for _ in range(20):
            new = claim_triggers(connection, job_id=job_id, limit=5, dead_after_s=10)
            got |= {c.trigger_id for c in new}
        return got

    answers = _race(claims, claims, claims)
    assert sum(len(answer) for answer in answers) == 40
    assert set().union(*answers) == set(trigger_ids)


def test_blocks_of_a_trigger_are_counted(world: World, running: Message) -> None:
    trigger_id = world.defer(running)
    assert note_blocked(world.connection, trigger_id=trigger_id) == 1
    assert note_blocked(world.connection, trigger_id=trigger_id) == 2
    assert Counter.objects.get(name="triggers_blocked_main_thread_total").value == 2


def test_the_exit_of_a_deferring_attempt_is_stale_whenever_it_arrives(
    world: World, running: Message
) -> None:
    trigger_id = world.defer(running)
    steps: list[Callable[[], Any]] = [
        lambda: None,  # still deferred
        lambda: world.fire(trigger_id),  # scheduled
        lambda: world.tick(running.run_id),  # queued
        lambda: world.claim(world.messages[-1]),  # running after resume
        lambda: world.finish(world.messages[-1]),  # ended
    ]
    for number, step in enumerate(steps):
        step()
        before = _ti(running)
        event = NewEvent(
            attempt_id=running.attempt_id,
            kind="exit_success",
            source="worker: host-1",
            dedupe_key=f"exit:{number}",
        )
        record_events(world.connection, events=[event])
        assert world.judge() == set()
        after = _ti(running)
        assert (after.state, after.attempt_id) == (before.state, before.attempt_id)
    rows = world.connection.execute(
        "SELECT verdict, verdict_code, filter_code FROM executor_event ORDER BY id"
    ).fetchall()
    assert rows == [("ignored", "stale_after_defer", "stale_after_defer")] * 5
    assert _ti(running).state == "success"


def test_deferral_fire_and_claim_keep_the_order_of_locks(
    recording: RecordingConnection, world: World, running: Message
) -> None:
    lawful = World(recording, world.leases)
    trigger_id = lawful.defer(running, timeout_s=0)
    with recording.transaction():
        record_external_event(recording, ti_id=running.ti_id, key="go", payload=1, actor="anna")
    claim_triggers(recording, job_id=_triggerer(recording), limit=10, dead_after_s=10)
    lawful.fire(trigger_id)
    fire_due(recording, limit=10)
    release_triggers(recording, job_id=uuid7())
    assert broken_laws(recording.transactions, deciding=False) == []
    locked = [transaction.first_locks() for transaction in recording.transactions]
    assert ["task_instance", "attempt", "trigger"] in locked, "the deferral"
    assert ["task_instance", "trigger"] in locked, "the fire"
