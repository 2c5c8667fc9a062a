"""Leases of several schedulers against a real database: shares, trust, copies, refusals."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from scheduler_app.models import Job, Lease, LeaseEvent
from scheduler_app.processes import database
from scheduler_app.rules import leadership
from scheduler_app.rules.errors import Fenced
from scheduler_app.scheduler.leases import Leases
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.job import beat_job, start_job
from tests.stack import wait_for

if TYPE_CHECKING:
    from uuid import UUID

DEAD_AFTER_S = 60


def scheduler(raw: psycopg.Connection[Any], **timing: Any) -> Leases:
    """Leases of a new scheduler that takes part: its job row beats now."""
    made = Leases(
        holder=uuid7(), **{"ttl_s": 60, "renew_interval_s": 12, "deadline_s": 40, **timing}
    )
    start_job(
        raw,
        job_id=made.holder,
        kind="scheduler",
        name="",
        hostname="host-1",
        pid=1,
        detail={},
    )
    return made


def balance(raw: psycopg.Connection[Any], *schedulers: Leases, rounds: int = 1) -> list[int]:
    """Each balances in turn; how many shards each holds then."""
    for _ in range(rounds):
        for one in schedulers:
            one.balance(raw, dead_after_s=DEAD_AFTER_S)
    return [len(one.terms()) for one in schedulers]


def kinds(holder: UUID) -> set[str]:
    return set(LeaseEvent.objects.filter(holder=holder).values_list("kind", flat=True))


def run_out(raw: psycopg.Connection[Any], holder: UUID) -> None:
    raw.execute(
        "UPDATE lease SET expires_at = clock_timestamp() - interval '1 s' WHERE holder = %s",
        [holder],
    )


def test_one_then_two_then_three_schedulers_share_evenly_and_tokens_only_grow(
    raw: psycopg.Connection[Any],
) -> None:
    first = scheduler(raw)
    assert balance(raw, first) == [16]
    second = scheduler(raw)
    assert balance(raw, first, second) == [8, 8]
    third = scheduler(raw)
    assert balance(raw, first, second, third) == [6, 6, 4]
    assert balance(raw, first, second, third, rounds=5) == [6, 6, 4], "and there it stays"
    held = [shard for one in (first, second, third) for shard in one.terms()]
    assert sorted(held) == list(range(16)), "each shard has one holder"
    # Back to one: what the others held is taken at once, since they gave it up.
    for gone in (second, third):
        gone.give_up(raw, gone.terms(), why="the scheduler stopped")
        Job.objects.filter(id=gone.holder).update(ended_at="2026-01-01T00:00:00Z", state="ended")
    assert balance(raw, first) == [16]
    for shard in range(16):
        tokens = list(
            LeaseEvent.objects.filter(shard=shard, kind="acquired")
            .order_by("id")
            .values_list("token", flat=True)
        )
        assert tokens == sorted(set(tokens))


def test_a_stalled_scheduler_is_no_peer_and_all_of_its_shards_are_taken_at_once(
    raw: psycopg.Connection[Any],
) -> None:
    """Its job row may still look alive; a lease that ran out says more."""
    stalled, standby = scheduler(raw), scheduler(raw)
    assert balance(raw, stalled, standby, rounds=2) == [8, 8]
    run_out(raw, stalled.holder)
    standby.balance(raw, dead_after_s=DEAD_AFTER_S)
    assert len(standby.terms()) == 16
    event = LeaseEvent.objects.filter(kind="acquired").latest("id")
    assert event.detail["cause"] == "expired"
    assert 0.9 < event.detail["gap_s"] < 30
    expired = LeaseEvent.objects.filter(kind="expired").latest("id")
    assert (expired.holder, expired.detail["taken_by"]) == (stalled.holder, str(standby.holder))


def test_nothing_is_given_up_to_a_peer_that_has_just_lost_its_leases(
    raw: psycopg.Connection[Any], settings: Any
) -> None:
    """Its job row is not dead yet, and may even have beaten since the last renewal."""
    stalled, standby = scheduler(raw), scheduler(raw)
    assert balance(raw, stalled, standby, rounds=2) == [8, 8]
    run_out(raw, stalled.holder)
    silent_s = settings.LEASE_TTL_S - settings.LEASE_RENEW_INTERVAL_S
    raw.execute(
        "UPDATE job SET heartbeat_at = clock_timestamp() - make_interval(secs => %s) WHERE id = %s",
        [silent_s, stalled.holder],
    )
    for _ in range(3):
        standby.balance(raw, dead_after_s=settings.JOB_ALIVE_S)
        assert len(standby.terms()) == 16


def test_a_scheduler_whose_loop_does_not_move_keeps_no_share_reserved(
    raw: psycopg.Connection[Any],
) -> None:
    hung, other = scheduler(raw), scheduler(raw)
    Job.objects.filter(id=hung.holder).update(progress_at="2026-01-01T00:00:00Z")
    beat_job(raw, job_id=hung.holder, progressed=False)
    assert balance(raw, other) == [16]


def test_several_that_start_at_once_end_with_one_holder_a_shard(
    raw: psycopg.Connection[Any],
) -> None:
    five = [scheduler(raw) for _ in range(5)]
    begin = threading.Barrier(5)

    def start(one: Leases) -> None:
        with database.connect("scheduler") as connection:
            begin.wait()
            for _ in range(6):
                one.balance(connection, dead_after_s=DEAD_AFTER_S)

    threads = [threading.Thread(target=start, args=(one,)) for one in five]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    balance(raw, *five, rounds=2)
    held = [shard for one in five for shard in one.terms()]
    assert sorted(held) == list(range(16))
    assert max(len(one.terms()) for one in five) == 4
    for one in five:
        with raw.transaction():
            one.prove(raw, one.terms())


def test_trust_ends_without_an_answer_and_the_demotion_is_told_when_it_can_be(
    raw: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database does not answer renewals: the holder stops by its own clock, before the ttl."""
    made = scheduler(raw, ttl_s=3, renew_interval_s=0.1, deadline_s=0.6)
    balance(raw, made)
    away = threading.Event()
    away.set()
    connect = database.connect

    def refused(role: str, *, name: str = "") -> psycopg.Connection[Any]:
        if name == "renewal" and away.is_set():
            raise psycopg.OperationalError("no answer")
        return connect(role, name=name)

    monkeypatch.setattr(database, "connect", refused)
    made.start()
    began = time.monotonic()
    try:
        while time.monotonic() - began < 2:
            made.loop_progressed()  # the loop itself is well
            time.sleep(0.02)
        assert made.terms() == {}
        assert "demoted" not in kinds(made.holder), "nobody could be told"
        assert Lease.objects.filter(holder=made.holder).count() == 16, "to others it is held"
        away.clear()
        wait_for("the demotion", lambda: "demoted" in kinds(made.holder))
    finally:
        made.stop(None)
    said = LeaseEvent.objects.filter(holder=made.holder, kind="demoted").first()
    assert said is not None
    assert "0.6 s" in leadership.explain(said.kind, said.token, said.detail)


def test_a_demoted_scheduler_takes_its_own_lease_back_with_a_new_token(
    raw: psycopg.Connection[Any],
) -> None:
    made = scheduler(raw)
    balance(raw, made)
    before = made.terms()
    made._demote("a doubt", stale_only=False)
    assert made.terms() == {}
    balance(raw, made)
    assert made.terms() == {shard: token + 1 for shard, token in before.items()}
    event = LeaseEvent.objects.filter(kind="acquired").latest("id")
    assert event.detail["cause"] == "taken_back"
    with pytest.raises(Fenced), raw.transaction():
        made.prove(raw, before)


def test_a_renewal_that_came_late_is_an_event_and_the_lease_goes_on(
    raw: psycopg.Connection[Any],
) -> None:
    made = scheduler(raw)
    balance(raw, made)
    before = made.terms()
    run_out(raw, made.holder)
    made._renew_once(raw)
    assert made.terms() == before
    event = LeaseEvent.objects.filter(kind="renewed_late").first()
    assert event is not None
    assert event.detail["late_s"] >= 1


def test_a_slow_renewal_costs_no_lease_below_the_deadline_and_one_above_it_steps_down(
    raw: psycopg.Connection[Any],
) -> None:
    """Trust counts from the start of the renewal, not from its answer."""
    made = scheduler(raw, ttl_s=30, renew_interval_s=0.2, deadline_s=2.5)
    balance(raw, made)
    made.start()
    try:
        for hold_s, is_kept in ((1.2, True), (4.0, False)):
            with database.connect("worker") as other, other.transaction():
                other.execute("SELECT 1 FROM lease FOR UPDATE")
                until = time.monotonic() + hold_s
                while time.monotonic() < until:
                    made.loop_progressed()
                    time.sleep(0.02)
                if is_kept:
                    assert len(made.terms()) == 16
                else:
                    assert made.terms() == {}
    finally:
        made.stop(None)


def _at(raw: psycopg.Connection[Any], hours: int) -> psycopg.Connection[Any]:
    """A connection for which the database's clock is so many hours off."""
    raw.execute("CREATE SCHEMA IF NOT EXISTS skewed")
    raw.execute(
        "CREATE OR REPLACE FUNCTION skewed.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS"
        f" $$ SELECT pg_catalog.clock_timestamp() + interval '{hours} hours' $$"
    )
    connection = database.connect("scheduler")
    connection.execute("SET search_path = skewed, pg_catalog, public")
    return connection


def test_a_database_clock_that_jumps_ahead_costs_a_term_and_lets_nobody_write_twice(
    raw: psycopg.Connection[Any],
) -> None:
    """An early take-over is safe: the old leader's token proves nothing any more."""
    old, new = scheduler(raw), scheduler(raw)
    Job.objects.filter(id=new.holder).update(heartbeat_at="2026-01-01T00:00:00Z")
    balance(raw, old)
    terms = old.terms()
    with _at(raw, 1) as ahead:
        new.balance(ahead, dead_after_s=DEAD_AFTER_S)
    assert len(new.terms()) == 16
    with pytest.raises(Fenced), raw.transaction():
        old.prove(raw, terms)


def test_a_dead_leaders_lease_is_taken_after_a_ttl_though_the_database_clock_was_set_back(
    raw: psycopg.Connection[Any],
) -> None:
    """By the database's clock it would run out in an hour; nobody renews it, and a ttl passes here."""
    gone = scheduler(raw)
    with _at(raw, 1) as before:
        assert len(gone.balance(before, dead_after_s=10**6)) == 16
    new = scheduler(raw, ttl_s=0.3)
    raw.execute("UPDATE job SET heartbeat_at = '2026-01-01' WHERE id = %s", [gone.holder])
    new.balance(raw, dead_after_s=DEAD_AFTER_S)
    assert new.terms() == {}
    wait_for(
        "it is taken after a ttl of our own clock",
        lambda: new.balance(raw, dead_after_s=DEAD_AFTER_S),
    )
    assert len(new._terms) == 16


def test_a_leader_that_lives_keeps_its_lease_though_the_database_clock_was_set_back(
    raw: psycopg.Connection[Any],
) -> None:
    alive, new = scheduler(raw), scheduler(raw, ttl_s=0.3)
    with _at(raw, 1) as before:
        alive.balance(before, dead_after_s=10**6)
    new.balance(raw, dead_after_s=DEAD_AFTER_S)
    alive._renew_once(raw)
    time.sleep(0.4)
    assert new.balance(raw, dead_after_s=DEAD_AFTER_S).keys() <= set(range(8, 16)), (
        "at most a share"
    )
    assert len(alive.terms()) + len(new.terms()) <= 16
    with raw.transaction():
        alive.prove(raw, alive.terms())


def test_a_copy_of_a_scheduler_is_found_out_by_its_renewals_and_one_of_the_two_goes_on(
    raw: psycopg.Connection[Any],
) -> None:
    """A restored image has the same id, pid, leases and tokens; the row's last renewal tells them apart."""
    found: list[str] = []
    original = scheduler(raw)
    balance(raw, original)
    original._renew_once(raw)
    copy = Leases(
        holder=original.holder,
        ttl_s=60,
        renew_interval_s=12,
        deadline_s=40,
        on_copied=lambda: found.append("copy"),
    )
    copy._terms = dict(original._terms)
    copy._trusted_from = dict(original._trusted_from)
    copy._seen = dict(original._seen)
    original._on_copied = lambda: found.append("original")
    original._renew_once(raw)
    copy._renew_once(raw)
    assert found == ["copy"]
    assert copy.terms() == {}
    original._renew_once(raw)
    assert found == ["copy"], "the other goes on"
    assert len(original.terms()) == 16
    said = LeaseEvent.objects.filter(kind="demoted").first()
    assert said is not None
    assert "copy" in said.detail["why"]


def test_a_renewal_whose_answer_was_lost_is_not_taken_for_a_copy(
    raw: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = scheduler(raw, ttl_s=60, renew_interval_s=0.05, deadline_s=40)
    found: list[str] = []
    made._on_copied = lambda: found.append("copy")
    balance(raw, made)
    renew_once = made._renew_once
    lost = threading.Event()

    def cut_after_commit(connection: psycopg.Connection[Any]) -> None:
        if lost.is_set() or not made._seen:
            renew_once(connection)
            return
        raw_terms = dict(made._terms)
        connection.execute("UPDATE lease SET renewed_at = clock_timestamp()")
        assert raw_terms
        lost.set()
        raise psycopg.OperationalError("cut between commit and answer")

    monkeypatch.setattr(made, "_renew_once", cut_after_commit)
    made.start()
    try:
        assert lost.wait(20)
        at = Lease.objects.get(shard=0).renewed_at
        assert at is not None
        wait_for(
            "another renewal",
            lambda: Lease.objects.filter(shard=0, renewed_at__gt=at).exists(),
        )
    finally:
        made.stop(None)
    assert found == []
    assert len(made._terms) == 16


def test_without_the_row_of_its_lease_a_scheduler_writes_nothing_and_the_refusal_is_recorded(
    raw: psycopg.Connection[Any],
) -> None:
    made = scheduler(raw)
    balance(raw, made)
    terms = made.terms()
    raw.execute("DELETE FROM lease WHERE shard = 5")
    with pytest.raises(Fenced) as refused, raw.transaction():
        made.prove(raw, terms)
    made.refused(raw, refused.value, terms, "tick")
    event = LeaseEvent.objects.get(kind="fenced_write")
    assert (event.shard, event.detail["token_current"]) == (5, None)
    assert "row is gone" in leadership.explain(event.kind, event.token, event.detail)
    assert 5 not in made.terms()


def test_a_token_can_neither_fall_nor_stay_when_the_holder_changes(
    raw: psycopg.Connection[Any],
) -> None:
    balance(raw, scheduler(raw))
    with pytest.raises(psycopg.errors.RaiseException, match="would fall"):
        raw.execute("UPDATE lease SET token = token - 1")
    with pytest.raises(psycopg.errors.RaiseException, match="without a new token"):
        raw.execute("UPDATE lease SET holder = %s", [uuid7()])


def test_every_event_says_why_in_a_sentence(raw: psycopg.Connection[Any]) -> None:
    made, other = scheduler(raw), scheduler(raw)
    balance(raw, made, other, rounds=2)
    run_out(raw, made.holder)
    terms = made.terms()
    other.balance(raw, dead_after_s=DEAD_AFTER_S)
    with pytest.raises(Fenced) as refused, raw.transaction():
        made.prove(raw, terms)
    made.refused(raw, refused.value, terms, "tick")
    for event in LeaseEvent.objects.all():
        sentence = leadership.explain(event.kind, event.token, event.detail)
        assert sentence.endswith(".")
        assert "None" not in sentence
        assert "?" not in sentence
