"""Stuck in queued or scheduled. (B031 and B035: ``tests/integration/scheduler/test_replays.py``.)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler_app.models import Attempt, ExecutorEvent
from scheduler_app.operations.clear import clear_task_instances
from scheduler_app.transitions.attempt import note_published
from scheduler_app.transitions.ids import uuid7
from tests.replays import saying
from tests.world import World, chain

if TYPE_CHECKING:
    import psycopg


def test_b033_a_lost_completion_event_does_not_stand_in_the_way_of_a_clear(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    """Nobody ever told that the execution ended; cleared, the task runs again at once.

    And when the event comes after all, hours later, it is of an attempt that was replaced.
    """
    run_id = world.run(world.flow("f", chain("a")))
    world.tick(run_id)
    first = world.messages.pop()
    assert world.claim(first) is not None
    world.finish(first)
    world.tick(run_id)
    assert not ExecutorEvent.objects.exists()
    clear_task_instances(ti_ids=[first.ti_id], actor="ana", reason="once more", dry_run=False)
    world.tick(run_id)
    second = world.messages.pop()
    assert world.claim(second) is not None
    saying.say(raw, first.attempt_id, "exit_success")
    world.judge()
    assert saying.verdicts(first.attempt_id) == [
        ("exit_success", "stale_superseded", "stale_superseded")
    ]
    assert world.states(run_id) == {"a": "running"}
    world.finish(second)
    assert world.states(run_id) == {"a": "success"}
    saying.assert_nothing_hidden()


def test_b037_what_a_worker_had_taken_and_not_started_when_it_died_is_sent_to_another(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    """The broker has forgotten it, the worker is gone: the same attempt, and nobody has to act."""
    saying.start_worker(raw, world)
    run_id = world.run(world.flow("f", chain("a")))
    world.tick(run_id)
    taken = world.messages.pop()
    note_published(raw, ages_s={taken.attempt_id: 0.0})
    saying.silence(raw)
    assert saying.republish(raw, world) == [], "not before its time"
    raw.execute("UPDATE attempt SET published_at = published_at - interval '1 hour'")
    (again,) = saying.republish(raw, world)
    assert again == taken
    world.worker = uuid7()
    saying.start_worker(raw, world)
    assert world.claim(again) is not None
    world.finish(again)
    world.tick(run_id)
    attempt = Attempt.objects.get()
    assert (attempt.outcome, attempt.publish_count, attempt.try_number) == ("success", 2, 1)
    assert attempt.worker_job_id == world.worker
    saying.assert_nothing_hidden()
