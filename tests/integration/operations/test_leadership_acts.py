"""Acts on leadership: a lease released by hand, a scheduler drained and undrained."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import psycopg
import pytest

from scheduler_app.models import Audit, Job, Lease, LeaseEvent, TakeOver
from scheduler_app.operations import release_lease as release_module
from scheduler_app.operations.drain_job import drain_job, undrain_job
from scheduler_app.operations.release_lease import release_lease
from scheduler_app.processes import database
from scheduler_app.rules import leadership
from scheduler_app.rules.errors import Conflict, Fenced, InvalidInput, NotFound
from scheduler_app.scheduler.leases import Leases
from scheduler_app.scheduler.take_over import take_over
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.job import end_job, read_job, start_job

DEAD_AFTER_S = 60


def scheduler(raw: psycopg.Connection[Any], pid: int = 1) -> Leases:
    """Leases of a new scheduler that takes part: its job row beats now."""
    made = Leases(holder=uuid7(), ttl_s=60, renew_interval_s=12, deadline_s=40)
    start_job(
        raw,
        job_id=made.holder,
        kind="scheduler",
        name="",
        hostname="host-1",
        pid=pid,
        detail={},
    )
    return made


def balance(raw: psycopg.Connection[Any], *schedulers: Leases) -> list[int]:
    """Each balances in turn, as drained as its row says; how many shards each holds then."""
    for one in schedulers:
        one.balance(
            raw,
            dead_after_s=DEAD_AFTER_S,
            is_drained=read_job(raw, job_id=one.holder).is_drained,
        )
    return [len(one.terms()) for one in schedulers]


def events(shard: int) -> list[tuple[str, int]]:
    found = LeaseEvent.objects.filter(shard=shard).order_by("id")
    return [(one.kind, one.token) for one in found]


@pytest.fixture
def leader(raw: psycopg.Connection[Any]) -> Leases:
    """A scheduler that holds every shard."""
    made = scheduler(raw)
    assert balance(raw, made) == [16]
    return made


def test_a_forced_release_refuses_the_holders_next_write_and_the_next_term_says_why(
    raw: psycopg.Connection[Any], leader: Leases
) -> None:
    token = leader.terms()[3]
    plan = release_lease(shard=3, actor="ada", reason="it decides nothing for this shard")
    assert (plan.token, plan.process, plan.holder) == (token, "host-1:1", leader.holder)
    with pytest.raises(Fenced) as refused, raw.transaction():
        leader.prove(raw, {3: token})
    leader.refused(raw, refused.value, {3: token}, "tick")
    fenced = LeaseEvent.objects.get(shard=3, kind="fenced_write")
    said = leadership.explain(fenced.kind, fenced.token, fenced.detail)
    assert f"token {token} had been released, and nobody holds it" in said

    assert leader.balance(raw, dead_after_s=DEAD_AFTER_S) == {3: token + 1}
    assert events(3)[-3:] == [
        ("released", token),
        ("fenced_write", token),
        ("acquired", token + 1),
    ]
    taken = LeaseEvent.objects.get(shard=3, kind="acquired", token=token + 1)
    assert taken.detail["cause"] == "forced"
    assert Lease.objects.get(shard=3).forced_by == "", "the next release is not a forced one"
    take_over(raw, leases=leader, new_terms={3: token + 1})
    row = TakeOver.objects.get(shard=3, new_token=token + 1)
    assert (row.cause, row.old_holder) == ("forced", leader.holder)
    released = LeaseEvent.objects.get(shard=3, kind="released")
    said = leadership.explain(released.kind, released.token, released.detail)
    assert said == "Taken from its holder by ada: it decides nothing for this shard."
    entry = Audit.objects.get()
    assert (entry.action, entry.object_kind, entry.object_id) == ("release_lease", "shard", "3")
    assert entry.before is not None
    assert entry.before["token"] == token


def test_a_dry_run_of_a_release_changes_nothing_and_a_stale_token_is_refused(
    leader: Leases,
) -> None:
    token = leader.terms()[3]
    plan = release_lease(shard=3, actor="ada", dry_run=True)
    assert f"gets token {token + 1}" in plan.effects[1]
    assert "No other scheduler takes part" in plan.effects[2]
    with pytest.raises(Conflict, match="changed its leader"):
        release_lease(shard=3, actor="ada", reason="r", token=token - 1)
    with pytest.raises(InvalidInput):
        release_lease(shard=3, actor="ada")
    assert Lease.objects.get(shard=3).holder == leader.holder
    assert not Audit.objects.exists()


def test_nothing_is_released_where_nobody_holds_it(raw: psycopg.Connection[Any]) -> None:
    del raw
    with pytest.raises(Conflict, match="Nobody holds shard 3"):
        release_lease(shard=3, actor="ada", reason="r")
    with pytest.raises(NotFound):
        release_lease(shard=99, actor="ada", reason="r")


def test_a_holder_stopped_amid_its_transaction_is_named_and_nothing_changes(
    leader: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_module, "WAIT_S", 1)
    held, done = threading.Event(), threading.Event()

    def decide() -> None:
        with database.connect("scheduler") as connection, connection.transaction():
            leader.prove(connection, {3: leader.terms()[3]})
            held.set()
            done.wait(60)

    thread = threading.Thread(target=decide)
    thread.start()
    try:
        assert held.wait(60)
        with pytest.raises(Conflict, match=r"host-1:1 has held shard 3"):
            release_lease(shard=3, actor="ada", reason="r")
    finally:
        done.set()
        thread.join(60)
    assert Lease.objects.get(shard=3).holder == leader.holder
    assert release_lease(shard=3, actor="ada", reason="r").token == leader.terms()[3]


def test_a_drained_scheduler_gives_all_up_counts_for_no_share_and_comes_back(
    raw: psycopg.Connection[Any], leader: Leases
) -> None:
    other = scheduler(raw, pid=2)
    balance(raw, leader, other)
    assert balance(raw, leader, other) == [8, 8]
    plan = drain_job(job_id=leader.holder, actor="ada", reason="its host is patched")
    assert (plan.shards, plan.is_drained) == (8, True)
    assert "1 other scheduler takes them" in plan.effects[0]
    balance(raw, leader, other)
    assert balance(raw, leader, other) == [0, 16]
    released = LeaseEvent.objects.filter(kind="released", holder=leader.holder).last()
    assert released is not None
    assert released.detail["why"] == "the scheduler is drained"
    drain_job(job_id=leader.holder, actor="bob", reason="again")
    job = Job.objects.get(pk=leader.holder)
    assert (job.drain_requested_by, job.drain_reason) == ("ada", "its host is patched")

    undrain_job(job_id=leader.holder, actor="ada", reason="patched")
    balance(raw, other, leader)
    assert balance(raw, other, leader) == [8, 8]
    assert list(Audit.objects.order_by("id").values_list("action", flat=True)) == [
        "drain_job",
        "undrain_job",
    ]


def test_only_a_scheduler_that_is_there_is_drained(raw: psycopg.Connection[Any]) -> None:
    worker = uuid7()
    start_job(raw, job_id=worker, kind="worker", name="", hostname="h", pid=3, detail={})
    with pytest.raises(Conflict, match="only schedulers are drained"):
        drain_job(job_id=worker, actor="ada", reason="r")
    gone = scheduler(raw)
    end_job(raw, job_id=gone.holder)
    with pytest.raises(Conflict, match="has ended"):
        drain_job(job_id=gone.holder, actor="ada", dry_run=True)
    with pytest.raises(NotFound):
        drain_job(job_id=uuid.uuid4(), actor="ada", reason="r")
    alone = scheduler(raw)
    effects = drain_job(job_id=alone.holder, actor="ada", dry_run=True).effects
    assert "nothing is decided" in effects[0]
    assert Job.objects.get(pk=alone.holder).drain_requested_at is None
