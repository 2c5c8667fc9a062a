"""A new leader goes over what is live, asks the workers, and writes down what it found."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from django.conf import settings
from django.utils import timezone

from scheduler_app.models import Attempt, Inquiry, Job, TakeOver, TakeOverItem
from scheduler_app.queries.audit_visibility import compare
from scheduler_app.rules.errors import Fenced
from scheduler_app.scheduler import silent, sweep
from scheduler_app.scheduler.leases import Leases
from scheduler_app.scheduler.take_over import follow_up, take_over
from scheduler_app.transitions.attempt import note_published
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.inquiry import Holding, answer_inquiries, open_inquiries
from scheduler_app.transitions.job import start_job
from tests.recording import broken_laws
from tests.world import World, chain

if TYPE_CHECKING:
    import psycopg

    from scheduler_app.transitions.attempt import Message
    from tests.recording import RecordingConnection


@pytest.fixture
def worker(raw: psycopg.Connection[Any], world: World) -> UUID:
    """The worker of the world has a job row that beats."""
    start_job(
        raw, job_id=world.worker, kind="worker", name="", hostname="host-1", pid=4000, detail={}
    )
    return world.worker


@pytest.fixture
def dead_soon(settings: Any, raw: psycopg.Connection[Any], worker: UUID) -> None:
    """Whoever is silent for a moment is dead, however young the server is; the worker is not silent."""
    settings.HEARTBEAT_DEAD_AFTER_S = 0.2
    Job.objects.filter(id=worker).update(heartbeat_at=timezone.now() + timedelta(hours=1))


def fail_over(raw: psycopg.Connection[Any]) -> Leases:
    """Everybody's leases run out; a standby takes them all and goes over them."""
    raw.execute("UPDATE lease SET expires_at = clock_timestamp() - interval '2 s'")
    standby = Leases(holder=uuid7(), ttl_s=60, renew_interval_s=12, deadline_s=40)
    new = standby.balance(raw, dead_after_s=60)
    assert len(new) == 16
    take_over(raw, leases=standby, new_terms=new)
    return standby


def answer(raw: psycopg.Connection[Any], worker: UUID, *attempt_ids: UUID) -> None:
    """The worker answers what it was asked: it has these."""
    asked = open_inquiries(raw, worker_job_id=worker)
    assert asked
    holdings = [
        Holding(attempt_id=one, pid=4711, is_alive=True, for_s=1.0, report_waits=False)
        for one in attempt_ids
    ]
    answer_inquiries(raw, inquiry_ids=asked, holdings=holdings)


def started(world: World, raw: psycopg.Connection[Any]) -> dict[str, Message]:
    """Five attempts of one run: unpublished, published, and three that run."""
    names = ("unpublished", "published", "kept", "dropped", "reported")
    tasks = [task for name in names for task in chain(name)]
    world.tick(world.run(world.flow("f", tasks)))
    of = {Attempt.objects.get(pk=m.attempt_id).task_id: m for m in world.messages}
    found = {str(name): message for name, message in of.items()}
    note_published(raw, ages_s={found["published"].attempt_id: 0.0})
    for name in ("kept", "dropped", "reported"):
        assert world.claim(found[name]) is not None
    return found


def items(take: TakeOver | None = None) -> dict[str, str]:
    """Task id to decision."""
    rows = TakeOverItem.objects.filter(take_over=take) if take else TakeOverItem.objects.all()
    names = dict(Attempt.objects.values_list("id", "task_id"))
    return {str(names[row.attempt_id]): row.decision for row in rows}


def test_live_attempts_are_decided_by_what_the_asked_worker_answers(
    world: World,
    raw: psycopg.Connection[Any],
    worker: UUID,
    settings: Any,
) -> None:
    found = started(world, raw)
    standby = fail_over(raw)
    take = TakeOver.objects.get(shard=3)
    assert (take.cause, take.old_holder) == ("expired", world.leases.holder)
    assert (take.new_token, take.old_token) == (2, 1)
    assert items(take) == {
        "unpublished": "open",
        "published": "waiting",
        "kept": "open",
        "dropped": "open",
        "reported": "open",
    }
    asked = Inquiry.objects.get()
    assert (asked.why, asked.worker_job_id, asked.ask_id) == ("take_over", worker, take.ask_id)
    # It answers that it runs two of the three; of those one reports; a message goes out.
    answer(raw, worker, found["kept"].attempt_id, found["reported"].attempt_id)
    world.finish(found["reported"])
    note_published(raw, ages_s={found["unpublished"].attempt_id: 0.0})
    assert follow_up(raw, leases=standby, terms=standby.terms()) != [3]
    assert items(take) == {
        "unpublished": "published",
        "published": "waiting",
        "kept": "adopted",
        "dropped": "open",
        "reported": "reconciled",
    }
    # What the worker does not have is lost once its heartbeat is dead.
    raw.execute(
        "UPDATE attempt SET started_at = clock_timestamp() - interval '1 hour',"
        " heartbeat_at = clock_timestamp() - interval '1 hour' WHERE id = %s",
        [found["dropped"].attempt_id],
    )
    settings.HEARTBEAT_DEAD_AFTER_S = 0.2  # the server of the tests is young
    Job.objects.filter(id=worker).update(heartbeat_at=timezone.now() + timedelta(hours=1))
    assert sweep.lose_silent(raw, leases=standby, terms=standby.terms())
    assert 3 in follow_up(raw, leases=standby, terms=standby.terms())
    take.refresh_from_db()
    assert take.ended_at is not None
    assert take.counts == {
        "published": 1,
        "waiting": 1,
        "adopted": 1,
        "lost": 1,
        "reconciled": 1,
    }
    reasons = dict(TakeOverItem.objects.values_list("decision", "reason"))
    assert reasons["adopted"].endswith("that host-1:4711 runs it.")
    assert reasons["lost"].startswith("Lost: no heartbeat")


def test_a_take_over_without_live_attempts_ends_as_soon_as_the_workers_answered(
    world: World, raw: psycopg.Connection[Any], worker: UUID
) -> None:
    standby = fail_over(raw)
    assert follow_up(raw, leases=standby, terms=standby.terms()) == []
    answer(raw, worker)
    assert sorted(follow_up(raw, leases=standby, terms=standby.terms())) == list(range(16))
    assert TakeOver.objects.filter(ended_at=None).count() == 0


def test_a_worker_that_never_answers_delays_the_report_and_no_more(
    world: World, raw: psycopg.Connection[Any], worker: UUID
) -> None:
    standby = fail_over(raw)
    raw.execute("UPDATE take_over SET started_at = started_at - interval '1 hour'")
    assert len(follow_up(raw, leases=standby, terms=standby.terms())) == 16
    assert Inquiry.objects.get().answered_at is None


def test_an_execution_that_nobody_issued_is_a_ghost_with_a_row_of_its_own(
    world: World, raw: psycopg.Connection[Any], worker: UUID
) -> None:
    standby = fail_over(raw)
    unknown = uuid7()
    answer(raw, worker, unknown)
    follow_up(raw, leases=standby, terms=standby.terms())
    ghost = Attempt.objects.get(pk=unknown)
    assert ghost.filter_code == "ghost_after_takeover"
    (item,) = TakeOverItem.objects.filter(attempt_id=unknown)
    assert (item.decision, item.found) == ("ghost", "unknown")
    assert item.take_over.counts == {"ghost": 1}
    assert [one for one in compare() if one.differences] == []


def test_an_execution_whose_record_has_ended_is_a_ghost_of_its_shards_take_over(
    world: World, raw: psycopg.Connection[Any], worker: UUID
) -> None:
    """The zombie: its attempt was lost long ago, and its worker woke up and runs on."""
    found = started(world, raw)
    zombie = found["kept"].attempt_id
    raw.execute(
        "UPDATE attempt SET state = 'ended', is_live = false, outcome = 'lost',"
        " ended_at = clock_timestamp() - interval '1 hour' WHERE id = %s",
        [zombie],
    )
    standby = fail_over(raw)
    answer(raw, worker, zombie)
    follow_up(raw, leases=standby, terms=standby.terms())
    follow_up(raw, leases=standby, terms=standby.terms())
    (item,) = TakeOverItem.objects.filter(attempt_id=zombie)
    assert (item.take_over.shard, item.decision, item.found) == (3, "ghost", "ended")
    assert "still runs it, although it ended as lost" in item.reason


def test_a_take_over_that_was_interrupted_is_passed_on_to_the_next_leader(
    world: World, raw: psycopg.Connection[Any], worker: UUID
) -> None:
    started(world, raw)
    fail_over(raw)
    fail_over(raw)
    first, second = TakeOver.objects.filter(shard=3).order_by("id")
    assert first.ended_at is not None
    assert items(first)["kept"] == "passed_on"
    assert items(second)["kept"] == "open"
    assert (
        "token 3, goes on with it"
        in TakeOverItem.objects.get(
            take_over=first, decision="passed_on", attempt_id=Attempt.objects.get(task_id="kept").pk
        ).reason
    )


def test_a_deposed_leader_takes_nothing_over(world: World, raw: psycopg.Connection[Any]) -> None:
    old = Leases(holder=uuid7(), ttl_s=60, renew_interval_s=12, deadline_s=40)
    raw.execute("UPDATE lease SET expires_at = clock_timestamp() - interval '2 s'")
    new = old.balance(raw, dead_after_s=60)
    fail_over(raw)
    count = TakeOver.objects.count()
    with pytest.raises(Fenced):
        take_over(raw, leases=old, new_terms=new)
    assert TakeOver.objects.count() == count


def test_the_scan_proves_its_lease_first_and_locks_in_order(
    recording: RecordingConnection, leases: Leases
) -> None:
    world = World(recording, leases)
    start_job(
        recording, job_id=world.worker, kind="worker", name="", hostname="h", pid=1, detail={}
    )
    started(world, recording)
    recording.transactions.clear()
    standby = fail_over(recording)
    answer(recording, world.worker, uuid7())
    follow_up(recording, leases=standby, terms=standby.terms())
    deciding = [t for t in recording.transactions if any("take_over" in s for s in t.statements)]
    writing = [t for t in deciding if len(t.statements) > 1]
    assert len(writing) == 2
    assert broken_laws(writing, deciding=True) == []
    assert all(transaction.starts_with_proof() for transaction in writing)


# -- an attempt is silent and its worker beats --------------------------------------------------


def _silence(raw: psycopg.Connection[Any], message: Message) -> list[dict[str, Any]]:
    raw.execute(
        "UPDATE attempt SET started_at = clock_timestamp() - interval '1 hour',"
        " heartbeat_at = clock_timestamp() - interval '1 hour' WHERE id = %s",
        [message.attempt_id],
    )
    rows = sweep._running(raw, {3: 1}, settings.HEARTBEAT_DEAD_AFTER_S)
    stale = [row for row in rows if row["attempt_id"] == message.attempt_id]
    assert stale[0]["is_stale"]
    return stale


def test_a_silent_attempt_of_a_beating_worker_is_asked_for_and_kept_if_it_runs(
    world: World, raw: psycopg.Connection[Any], worker: UUID, dead_soon: None
) -> None:
    message = started(world, raw)["kept"]
    stale = _silence(raw, message)
    assert silent.absent(raw, asked_by=uuid7(), stale=stale) == []
    assert Inquiry.objects.get().why == "silent_attempt"
    assert silent.absent(raw, asked_by=uuid7(), stale=stale) == []
    assert Inquiry.objects.count() == 1, "asked once"
    raw.execute("UPDATE inquiry SET asked_at = asked_at + interval '1 hour'")
    answer(raw, worker, message.attempt_id)
    assert silent.absent(raw, asked_by=uuid7(), stale=stale) == []
    assert sweep.lose_silent(raw, leases=world.leases, terms=world.leases.terms()) == set()
    assert Attempt.objects.get(pk=message.attempt_id).state == "running"


def test_a_silent_attempt_that_its_worker_does_not_have_is_lost(
    world: World, raw: psycopg.Connection[Any], worker: UUID, dead_soon: None
) -> None:
    message = started(world, raw)["kept"]
    stale = _silence(raw, message)
    assert silent.absent(raw, asked_by=uuid7(), stale=stale) == []
    answer(raw, worker)
    assert silent.absent(raw, asked_by=uuid7(), stale=stale) == stale
    assert sweep.lose_silent(raw, leases=world.leases, terms=world.leases.terms())
    assert Attempt.objects.get(pk=message.attempt_id).outcome == "lost"


def test_a_worker_that_beats_and_does_not_answer_is_waited_for_no_longer_than_a_silent_one(
    world: World, raw: psycopg.Connection[Any], worker: UUID, dead_soon: None
) -> None:
    stale = _silence(raw, started(world, raw)["kept"])
    assert silent.absent(raw, asked_by=uuid7(), stale=stale) == []
    raw.execute("UPDATE inquiry SET asked_at = asked_at - interval '1 s'")
    assert silent.absent(raw, asked_by=uuid7(), stale=stale) == stale


def test_a_silent_attempt_of_a_silent_worker_is_lost_without_a_question(
    world: World, raw: psycopg.Connection[Any], worker: UUID, dead_soon: None
) -> None:
    stale = _silence(raw, started(world, raw)["kept"])
    Job.objects.filter(id=worker).update(heartbeat_at="2026-01-01T00:00:00Z")
    assert silent.absent(raw, asked_by=uuid7(), stale=stale) == stale
    assert Inquiry.objects.count() == 0
