"""Faults that operators of other schedulers reported, replayed; each test carries the report's id."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from scheduler_app.models import Attempt, Flow, FlowVersion, Incident, Run
from scheduler_app.scheduler import sweep
from scheduler_app.scheduler.create_runs import create_due_runs
from scheduler_app.transitions.attempt import note_published
from tests.world import World, chain

if TYPE_CHECKING:
    import psycopg


class Carrier:
    """A broker, which stands at the process's edge; by default one that forgot everything."""

    carrier = "celery"

    def __init__(self, depth: int = 0) -> None:
        self.depth = depth
        self.published: list[Any] = []

    def publish(self, messages: Any, *, identity: str) -> frozenset[Any]:
        """Takes everything."""
        del identity
        self.published += messages
        return frozenset(m.attempt_id for m in messages)

    def queue_depth(self, queue: str) -> int:
        """As many deliveries wait in every queue."""
        del queue
        return self.depth

    def waiting(self, queue: str, *, limit: int) -> None:
        """Shows nothing."""
        del queue, limit

    def close(self) -> None:
        """Nothing to close."""


def test_b035_a_flow_that_vanished_takes_no_room_from_others_and_its_runs_go_on(
    world: World,
) -> None:
    """35 runs are queued, the flow's definition is deleted, another flow is triggered.

    The other flow runs at once; the queued runs go on from their stored version within their limits.
    """
    gone = world.flow("gone", chain("a"), max_active_runs=2)
    runs = [world.run(gone, f"r{i}") for i in range(35)]
    Flow.objects.filter(flow_id="gone").update(removed_at=timezone.now())
    other = world.run(world.flow("other", chain("x")))
    world.tick(*runs, other)
    started = {a.run_id for a in Attempt.objects.all()}
    assert other in started
    assert len(started) == 3, "two of the vanished flow, as its limit allows, and the other one"
    for _ in range(40):
        world.serve()
        world.tick(*Run.objects.filter(is_active=True).values_list("pk", flat=True))
    assert set(Run.objects.values_list("state", flat=True)) == {"success"}


def test_b071_a_run_that_cannot_be_created_is_a_failed_run_with_the_reason(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    """Creating a scheduled run raises: the slot has a failed run that says why, not a gap."""
    flow = world.flow("f", chain("a"), schedule="@hourly")
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    flow.next_interval_start, flow.next_interval_end = hour - timedelta(hours=1), hour
    flow.save()
    FlowVersion.objects.update(definition={"format": 1, "flow_id": "f", "tasks": [{"nonsense": 1}]})
    assert create_due_runs(raw, leases=world.leases, terms=world.leases.terms()).run_ids == []
    run = Run.objects.get()
    assert (run.state, run.logical_date) == ("failed", hour - timedelta(hours=1))
    assert "could not be created" in run.state_reason
    assert Flow.objects.get().next_interval_start == hour, "the schedule goes on behind it"


def test_b073_a_run_whose_scheduler_died_with_nothing_live_is_ended_by_the_next_one(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    """The scheduler is killed after the last task finished: the next sweep finalises the run."""
    run_id = world.run(world.flow("f", chain("a")))
    world.tick(run_id)
    world.serve()
    successor = World(raw, world.leases)
    found = sweep.active_runs(raw, shards=list(world.leases.terms()))
    assert found == {run_id}
    successor.tick(*found)
    assert Run.objects.get(pk=run_id).state == "success"
    assert sweep.active_runs(raw, shards=list(world.leases.terms())) == set()


def test_b077_a_delay_is_kept_in_the_database_and_never_in_the_broker(world: World) -> None:
    """A delayed dispatch longer than any broker's patience: no message exists until it is due."""
    run_id = world.run(world.flow("f", chain("a", retries=1)))
    world.tick(run_id)
    (first,) = world.messages
    assert world.claim(first) is not None
    world.finish(first, ok=False, retry_after_s=7200.0)
    world.messages = []
    for _ in range(3):
        world.tick(run_id)
    assert world.messages == []
    assert Attempt.objects.count() == 1


def test_b031_a_message_that_the_broker_lost_is_sent_again_for_the_same_attempt(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    """Queued, then the broker is emptied: after the queued timeout the same attempt goes out again."""
    run_id = world.run(world.flow("f", chain("a")))
    world.tick(run_id)
    (message,) = world.messages
    note_published(raw, ages_s={message.attempt_id: 0.0})
    carrier = Carrier()
    arguments: dict[str, Any] = {
        "executor": carrier,
        "identity": "here",
        "leases": world.leases,
        "terms": world.leases.terms(),
        "served": {"default"},
    }
    assert sweep.republish_unclaimed(raw, **arguments) == 0, "not before its time"
    raw.execute("UPDATE attempt SET published_at = published_at - interval '1 hour'")
    assert sweep.republish_unclaimed(raw, **arguments) == 1
    assert [m.attempt_id for m in carrier.published] == [message.attempt_id]
    attempt = Attempt.objects.get()
    assert (attempt.publish_count, attempt.dispatch_no) == (2, 1)


def test_b031_a_message_that_was_overtaken_in_a_busy_queue_is_sent_again(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    """The queue is never empty, but one published later was claimed long ago: ours is lost."""
    first = world.run(world.flow("f", chain("a")))
    world.tick(first)
    second = world.run(world.flow("g", chain("b")), "r2")
    world.tick(second)
    lost, later = world.messages
    note_published(raw, ages_s={lost.attempt_id: 0.0})
    raw.execute("UPDATE attempt SET published_at = clock_timestamp() - interval '1 hour'")
    carrier = Carrier(depth=5)
    arguments: dict[str, Any] = {
        "executor": carrier,
        "identity": "here",
        "leases": world.leases,
        "terms": world.leases.terms(),
        "served": {"default"},
    }
    assert sweep.republish_unclaimed(raw, **arguments) == 0, "it may still be in the queue"
    raw.execute(
        "UPDATE attempt SET published_at = published_at + interval '1 second' WHERE id = %s",
        [later.attempt_id],
    )
    assert world.claim(later) is not None
    world.finish(later)
    raw.execute(
        "UPDATE attempt SET started_at = started_at - interval '1 minute' WHERE id = %s",
        [later.attempt_id],
    )
    assert sweep.republish_unclaimed(raw, **arguments) == 1
    assert [m.attempt_id for m in carrier.published] == [lost.attempt_id]


def test_b031_a_queue_without_a_worker_is_an_incident_that_names_it_and_never_a_failed_task(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    run_id = world.run(world.flow("f", chain("a", queue="gpu")))
    world.tick(run_id)
    raw.execute("UPDATE attempt SET published_at = clock_timestamp() - interval '1 hour'")
    sweep.republish_unclaimed(
        raw,
        executor=Carrier(depth=1),
        identity="here",
        leases=world.leases,
        terms=world.leases.terms(),
        served={"default"},
    )
    incident = Incident.objects.get(resolved_at=None)
    assert (incident.kind, incident.subject) == ("nobody_listens", "gpu")
    assert world.states(run_id) == {"a": "queued"}
    assert world.claim(world.messages[0]) is not None
    world.finish(world.messages[0])
    sweep.resolve_queue_incidents(raw)
    assert not Incident.objects.filter(resolved_at=None).exists()
