"""The three-way audit on a real database: what it finds, what it counts, and when it is over."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

from scheduler_app.models import Attempt, Ghost, GhostAudit, Job, Run, TaskInstance
from scheduler_app.rules import ghosts
from scheduler_app.scheduler.audit_ghosts import Comparison, audit_ghosts
from scheduler_app.transitions.attempt import lose
from scheduler_app.transitions.ghost import store_inventory
from scheduler_app.transitions.identity import database_identity
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.job import start_job
from tests.world import World, chain

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from scheduler_app.transitions.attempt import Message


class Broker:
    """The edge of the process: queues whose messages the test lays down."""

    carrier = "celery"

    def __init__(self, **queues: list[ghosts.Waiting] | None) -> None:
        self.queues = queues

    def publish(self, messages: Any, *, identity: str) -> frozenset[Any]:
        """Takes nothing."""
        del messages, identity
        return frozenset()

    def queue_depth(self, queue: str) -> int | None:
        """As many as wait."""
        waiting = self.queues.get(queue, [])
        return None if waiting is None else len(waiting)

    def waiting(self, queue: str, *, limit: int) -> list[ghosts.Waiting] | None:
        """What waits."""
        waiting = self.queues.get(queue, [])
        return None if waiting is None else waiting[:limit]

    def close(self) -> None:
        """Nothing to close."""


class Auditor:
    """Audits by hand, with workers that say what the test says."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.broker = Broker()

    def worker(self, job_id: uuid.UUID, *, hostname: str = "host-1") -> None:
        """A live worker that listens on the default queue."""
        start_job(
            self.world.connection,
            job_id=job_id,
            kind="worker",
            name="",
            hostname=hostname,
            pid=10,
            detail={"queues": ["default"], "concurrency": 2},
        )

    def says(
        self,
        job_id: uuid.UUID,
        *attempts: tuple[uuid.UUID, int],
        hostname: str = "host-1",
    ) -> None:
        """The worker says that it executes these attempts, in processes of these pids."""
        store_inventory(
            self.world.connection,
            job_id=job_id,
            hostname=hostname,
            pid=10,
            executions=[{"attempt": str(a), "pid": pid, "age_s": 8.0} for a, pid in attempts],
        )

    def audit(self, more: Sequence[ghosts.Sighting] = ()) -> Comparison:
        """One audit of every shard."""
        return audit_ghosts(
            self.world.connection,
            executor=self.broker,
            holder=self.world.leases.holder,
            shards=list(self.world.leases.terms()),
            more=more,
        )

    def open(self) -> dict[str, Ghost]:
        """The open ghosts by kind."""
        return {ghost.kind: ghost for ghost in Ghost.objects.filter(ended_at__isnull=True)}

    def running(self, flow_id: str = "f") -> Message:
        """An attempt that the world's worker claimed and beats for."""
        run_id = self.world.run(self.world.flow(flow_id, chain("load", retries=1)))
        self.world.tick(run_id)
        message = self.world.messages.pop()
        assert self.world.claim(message)
        return message

    def age_the_end(self, message: Message) -> None:
        """The attempt ended an hour ago."""
        an_hour_ago = timezone.now() - timedelta(hours=1)
        Attempt.objects.filter(pk=message.attempt_id).update(ended_at=an_hour_ago)


@pytest.fixture
def auditor(world: World) -> Auditor:
    made = Auditor(world)
    made.worker(world.worker)
    return made


def test_what_agrees_is_counted_and_stored_and_no_ghost(auditor: Auditor, world: World) -> None:
    message = auditor.running()
    auditor.says(world.worker, (message.attempt_id, 4711))
    auditor.broker.queues["default"] = [
        ghosts.Waiting(
            queue="default",
            attempt_id=message.attempt_id,
            identity=database_identity(world.connection),
        )
    ]
    made = auditor.audit()
    assert made.found == []
    assert made.is_complete
    assert made.compared == 3
    audit = GhostAudit.objects.get()
    assert (audit.audits, audit.compared, audit.last_compared) == (1, 3, 3)
    assert audit.last == {
        "running_records": 1,
        "reported_executions": 1,
        "workers": 1,
        "silent_workers": 0,
        "queues": 1,
        "unreadable_queues": 0,
        "waiting_messages": 1,
        "records_without_execution": 0,
    }
    auditor.audit()
    audit.refresh_from_db()
    assert (audit.audits, audit.compared, audit.last_compared) == (2, 6, 3), "one row an hour"


def test_an_execution_without_a_record_is_seen_once_and_over_when_its_process_is(
    auditor: Auditor, world: World
) -> None:
    stranger = uuid7()
    auditor.says(world.worker, (stranger, 66))
    assert auditor.audit().by_kind() == {ghosts.NO_RECORD: 1}
    auditor.audit()
    ghost = Ghost.objects.get()
    assert (ghost.attempt_id, ghost.hostname, ghost.pid) == (stranger, "host-1", 66)
    assert ghost.last_seen_at > ghost.first_seen_at
    auditor.says(world.worker)
    assert auditor.audit().is_news
    ghost.refresh_from_db()
    assert ghost.end_reason == "its process ended"


def test_a_replaced_execution_and_the_current_one_are_two_live_executions(
    auditor: Auditor, world: World
) -> None:
    first = auditor.running()
    lose(world.connection, attempt_ids=[first.attempt_id], dead_after_s=0, budget=3, source="t")
    auditor.age_the_end(first)
    world.tick(first.run_id)
    second = world.messages.pop()
    other = uuid7()
    auditor.worker(other, hostname="host-2")
    assert world.claim(second)
    auditor.says(world.worker, (first.attempt_id, 4711))
    auditor.says(other, (second.attempt_id, 99), hostname="host-2")
    auditor.audit()
    seen = auditor.open()
    assert set(seen) == {ghosts.SUPERSEDED, ghosts.TWO_LIVE}
    for ghost in seen.values():
        assert ghost.attempt_id == first.attempt_id
        assert ghost.current_attempt_id == second.attempt_id
        assert ghost.shard == 3
        assert ghost.lease_token == first.lease_token
        assert ghost.run_id == first.run_id
    assert seen[ghosts.SUPERSEDED].detail["filter_code"] == "lost_worker"
    # The zombie is gone.
    auditor.says(world.worker)
    auditor.audit()
    assert auditor.open() == {}


def test_a_live_process_of_an_ended_run_is_named_so(auditor: Auditor, world: World) -> None:
    message = auditor.running()
    lose(world.connection, attempt_ids=[message.attempt_id], dead_after_s=0, budget=0, source="t")
    auditor.age_the_end(message)
    world.tick(message.run_id)
    world.tick(message.run_id)
    an_hour_ago = timezone.now() - timedelta(hours=1)
    assert Run.objects.filter(pk=message.run_id, state="failed").update(ended_at=an_hour_ago)
    auditor.says(world.worker, (message.attempt_id, 4711))
    auditor.audit()
    (ghost,) = auditor.open().values()
    assert ghost.kind == ghosts.TERMINAL_RUN
    assert "ended as failed" in ghosts.explain(ghost.kind, ghost.detail)


def test_a_ghost_of_a_worker_that_is_gone_is_over(auditor: Auditor, world: World) -> None:
    auditor.says(world.worker, (uuid7(), 66))
    auditor.audit()
    Job.objects.filter(pk=world.worker).update(state="dead")
    auditor.audit()
    assert auditor.open() == {}
    assert Ghost.objects.get().end_reason == "its worker is gone"


def test_a_ghost_of_a_worker_that_is_silent_is_kept(
    auditor: Auditor, world: World, settings: Any
) -> None:
    auditor.says(world.worker, (uuid7(), 66))
    auditor.audit()
    settings.HEARTBEAT_DEAD_AFTER_S = 0
    made = auditor.audit()
    assert not made.is_complete
    assert made.numbers()["silent_workers"] == 1
    assert set(auditor.open()) == {ghosts.NO_RECORD}


def test_messages_of_no_record_and_of_another_database_are_found_in_the_broker(
    auditor: Auditor, world: World
) -> None:
    stranger, foreign = uuid7(), uuid7()
    auditor.broker.queues["default"] = [
        ghosts.Waiting(
            queue="default", attempt_id=stranger, identity=database_identity(world.connection)
        ),
        ghosts.Waiting(queue="default", attempt_id=foreign, identity="other:database"),
    ]
    auditor.audit()
    seen = auditor.open()
    assert seen[ghosts.MESSAGE].attempt_id == stranger
    assert seen[ghosts.OTHER_DATABASE].detail["identity_presented"] == "other:database"


def test_a_broker_that_does_not_answer_leaves_the_audit_incomplete(auditor: Auditor) -> None:
    auditor.broker.queues["default"] = None
    made = auditor.audit()
    assert not made.is_complete
    assert GhostAudit.objects.get().is_complete is False
    assert GhostAudit.objects.get().last["unreadable_queues"] == 1


def test_a_record_that_its_worker_does_not_execute_is_counted(
    auditor: Auditor, world: World
) -> None:
    message = auditor.running()
    long_ago = timezone.now() - timedelta(minutes=5)
    Attempt.objects.filter(pk=message.attempt_id).update(started_at=long_ago)
    auditor.says(world.worker)
    assert auditor.audit().numbers()["records_without_execution"] == 1


def test_other_schedulers_shards_are_left_to_them(
    auditor: Auditor, world: World, raw: psycopg.Connection[Any]
) -> None:
    message = auditor.running()
    TaskInstance.objects.filter(pk=message.ti_id).update(attempt_id=uuid7())
    auditor.says(world.worker, (message.attempt_id, 4711), (uuid7(), 12))
    made = audit_ghosts(raw, executor=auditor.broker, holder=uuid7(), shards=[0, 1])
    assert [each.kind for each in made.found] == [ghosts.NO_RECORD], "of no shard: everybody's"
    assert made.numbers()["running_records"] == 0
