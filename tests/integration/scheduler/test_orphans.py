"""Rows that have lost each other are found, by one sweeper however many look, and told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

from scheduler_app.models import Attempt, Counter, ExecutorEvent, Run, TaskInstance
from scheduler_app.processes import database
from scheduler_app.queries.audit_visibility import compare
from scheduler_app.scheduler import orphans
from scheduler_app.transitions.ids import uuid7
from tests.recording import broken_laws
from tests.together import together
from tests.world import World, chain

if TYPE_CHECKING:
    import psycopg

    from scheduler_app.scheduler.leases import Leases
    from scheduler_app.transitions.attempt import Message
    from tests.recording import RecordingConnection

END = (
    "UPDATE attempt SET state = 'ended', is_live = false, outcome = 'lost',"
    " ended_at = clock_timestamp() WHERE is_live"
)


def _heal(world: World) -> set[int]:
    return orphans.heal(world.connection, leases=world.leases, terms=world.leases.terms())


def _queued(world: World) -> Message:
    run_id = world.run(world.flow("f", chain("a", retries=2)))
    return world.tick(run_id).messages[0]


def _count(name: str) -> int:
    return Counter.objects.get(name=name).value


def test_what_is_as_it_should_be_is_left_alone(world: World) -> None:
    message = _queued(world)
    assert _heal(world) == set()
    assert world.claim(message) is not None
    assert _heal(world) == set()
    world.finish(message)
    assert _heal(world) == set()
    assert not ExecutorEvent.objects.exists()


@pytest.mark.parametrize("state", ["queued", "running"])
def test_a_task_whose_attempt_has_ended_is_dispatched_again_in_the_same_try(
    world: World, raw: psycopg.Connection[Any], state: str
) -> None:
    message = _queued(world)
    raw.execute(END)
    raw.execute("UPDATE task_instance SET state = %s, next_method = 'loaded'", [state])
    assert _heal(world) == {message.run_id}
    ti = TaskInstance.objects.get()
    assert (ti.state, ti.try_number, ti.max_tries, ti.next_method) == ("scheduled", 1, 2, "loaded")
    event = ExecutorEvent.objects.get()
    assert (event.verdict, event.verdict_code, event.attempt_id) == (
        "confirmed",
        "orphaned",
        message.attempt_id,
    )
    assert f"attempt {message.attempt_id} ended as lost" in (event.verdict_reason or "")
    assert _count("scheduler_orphaned_tasks_cleared_total") == 1
    assert _heal(world) == set(), "once"
    world.ticker.forget([message.run_id])
    again = world.tick(message.run_id).messages[0]
    attempt = Attempt.objects.get(pk=again.attempt_id)
    assert (attempt.try_number, attempt.dispatch_no) == (1, 2)
    assert [d for one in compare() for d in one.differences] == []


@pytest.mark.parametrize("attempt_id", [None, "unknown"])
def test_a_task_without_any_attempt_is_dispatched_again(
    world: World, raw: psycopg.Connection[Any], attempt_id: str | None
) -> None:
    """A backup was restored without the newest attempts."""
    message = _queued(world)
    raw.execute("UPDATE task_instance SET attempt_id = %s", [uuid7() if attempt_id else None])
    raw.execute("DELETE FROM attempt")
    assert _heal(world) == {message.run_id}
    reason = ExecutorEvent.objects.get().verdict_reason or ""
    assert ("it has none" if attempt_id is None else "has no record") in reason
    world.ticker.forget([message.run_id])
    assert len(world.tick(message.run_id).messages) == 1
    assert world.states(message.run_id) == {"a": "queued"}


def test_a_cleared_task_whose_attempt_has_ended_begins_anew(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    _queued(world)
    raw.execute(END)
    raw.execute("UPDATE task_instance SET state = 'restarting', next_method = 'loaded'")
    assert len(_heal(world)) == 1
    ti = TaskInstance.objects.get()
    assert (ti.state, ti.max_tries, ti.budget_start, ti.next_method) == ("none", 3, 1, None)


def test_an_orphan_that_is_frozen_or_whose_run_has_ended_is_left(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    message = _queued(world)
    raw.execute(END)
    raw.execute("UPDATE task_instance SET held_by = 7")
    assert _heal(world) == set()
    raw.execute("UPDATE task_instance SET held_by = NULL")
    Run.objects.update(is_active=False, state="success", ended_at=timezone.now())
    assert _heal(world) == set()
    Run.objects.update(is_active=True, state="running", ended_at=None)
    assert _heal(world) == {message.run_id}


@pytest.mark.parametrize("claimed", [False, True])
def test_a_live_attempt_that_no_task_waits_for_does_not_keep_its_run_from_ending(
    world: World, raw: psycopg.Connection[Any], settings: Any, claimed: bool
) -> None:
    message = _queued(world)
    if claimed:
        assert world.claim(message) is not None
    raw.execute("UPDATE task_instance SET state = 'success', is_open = false")
    if claimed:
        assert _heal(world) == set(), "it may still be executed"
        settings.HEARTBEAT_DEAD_AFTER_S = 0.0
    assert _heal(world) == {message.run_id}
    attempt = Attempt.objects.get()
    assert (attempt.is_live, attempt.outcome) == (False, "lost" if claimed else "terminated")
    assert "its task is success" in (attempt.outcome_reason or "")
    assert ExecutorEvent.objects.get().verdict_code == "stray"
    world.ticker.forget([message.run_id])
    world.tick(message.run_id)
    assert Run.objects.get().state == "success"


def test_a_row_that_is_locked_is_left_to_who_moves_it(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    message = _queued(world)
    raw.execute(END)
    with database.connect("scheduler") as other, other.transaction():
        other.execute("SELECT 1 FROM task_instance FOR UPDATE")
        assert _heal(world) == set()
    assert _heal(world) == {message.run_id}


def test_of_many_sweepers_one_finds_each_orphan(
    world: World, raw: psycopg.Connection[Any], leases: Leases
) -> None:
    runs = [world.run(world.flow(f"f{n}", chain("a"))) for n in range(6)]
    world.tick(*runs)
    raw.execute(END)
    terms = leases.terms()
    found = together([lambda connection: orphans.heal(connection, leases=leases, terms=terms)] * 5)
    assert sorted(run for one in found for run in one) == sorted(runs), "each once"
    assert ExecutorEvent.objects.count() == len(runs)
    assert _count("scheduler_orphaned_tasks_cleared_total") == len(runs)


def test_healing_proves_the_lease_first_and_keeps_the_lock_order(
    recording: RecordingConnection, leases: Leases, settings: Any
) -> None:
    settings.HEARTBEAT_DEAD_AFTER_S = 0.0
    world = World(recording, leases)
    orphan = _queued(world)
    recording.execute(END)
    stray = world.run(world.flow("g", chain("a")))
    world.tick(stray)
    recording.execute(
        "UPDATE task_instance SET state = 'success', is_open = false WHERE run_id = %s", [stray]
    )
    recording.transactions.clear()
    assert _heal(world) == {orphan.run_id, stray}
    assert broken_laws(recording.transactions, deciding=True) == []
