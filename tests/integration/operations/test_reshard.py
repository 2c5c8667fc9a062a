"""The number of shards changes, and nothing that runs is moved under anybody."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command

from scheduler_app.models import Audit, Flow, Incident, Installation, Job, Lease, LeaseEvent, Run
from scheduler_app.operations.reshard import reshard
from scheduler_app.rules import leadership
from scheduler_app.rules.errors import Conflict, Fenced, InvalidInput
from scheduler_app.scheduler import sweep
from scheduler_app.scheduler.leases import Leases
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.job import start_job
from tests import factories

if TYPE_CHECKING:
    import psycopg


def flows(count: int = 40) -> None:
    for number in range(count):
        name = f"flow_{number:03d}"
        factories.make_flow(flow_id=name, shard=leadership.shard_of(name, 16))


def test_more_shards_are_added_and_idle_flows_move_to_theirs(raw: psycopg.Connection[Any]) -> None:
    flows()
    plan = reshard(count=64, actor="ana", dry_run=True)
    assert (plan.before, plan.after, plan.is_done) == (16, 64, False)
    assert plan.added == tuple(range(16, 64))
    assert Lease.objects.count() == 16, "a dry run changes nothing"
    assert Audit.objects.count() == 0
    made = reshard(count=64, actor="ana", dry_run=False)
    assert made.is_done
    assert made.moved == plan.moved
    assert Lease.objects.count() == 64
    assert Installation.objects.get().shard_count == 64
    for flow in Flow.objects.all():
        assert flow.shard == leadership.shard_of(flow.flow_id, 64)
    entry = Audit.objects.get()
    assert (entry.actor, entry.action, entry.before) == ("ana", "reshard", {"shards": 16})
    assert reshard(count=64, actor="ana", dry_run=False).moved == {}, "again changes nothing"


def test_a_run_keeps_its_shard_its_flow_waits_for_it_and_the_shard_retires(
    raw: psycopg.Connection[Any],
) -> None:
    flow = factories.make_flow(flow_id="busy", shard=13)
    run = factories.make_run(flow=flow)
    made = reshard(count=4, actor="ana", dry_run=False)
    assert made.retiring == {13: 1}
    assert made.staying == {"busy": 1}
    assert set(Lease.objects.values_list("shard", flat=True)) == {0, 1, 2, 3, 13}
    assert (Run.objects.get().shard, Flow.objects.get().shard) == (13, 13)
    Run.objects.filter(pk=run.pk).update(state="success", is_active=False, ended_at=factories.at(1))
    made = reshard(count=4, actor="ana", dry_run=False)
    assert made.removed == (13,)
    assert Flow.objects.get().shard == leadership.shard_of("busy", 4)
    assert Run.objects.get().shard == 13, "history stays where it was"


def test_a_shard_that_comes_back_goes_on_with_its_tokens(raw: psycopg.Connection[Any]) -> None:
    holder = Leases(holder=uuid7(), ttl_s=60, renew_interval_s=12, deadline_s=40)
    holder.balance(raw, dead_after_s=60)
    holder.give_up(raw, holder.terms(), why="the test")
    reshard(count=8, actor="ana", dry_run=False)
    reshard(count=16, actor="ana", dry_run=False)
    assert set(Lease.objects.values_list("token", flat=True)) == {1}
    assert set(holder.balance(raw, dead_after_s=60).values()) == {2}


def test_it_is_refused_while_a_scheduler_lives_or_a_lease_has_not_run_out(
    raw: psycopg.Connection[Any],
) -> None:
    holder = Leases(holder=uuid7(), ttl_s=60, renew_interval_s=12, deadline_s=40)
    start_job(
        raw,
        job_id=holder.holder,
        kind="scheduler",
        name="",
        hostname="host-1",
        pid=77,
        detail={},
    )
    with pytest.raises(Conflict, match="host-1:77"):
        reshard(count=8, actor="ana", dry_run=False)
    assert reshard(count=8, actor="ana", dry_run=True).leaders == ("host-1:77",)
    holder.balance(raw, dead_after_s=60)
    Job.objects.update(ended_at=factories.at(1), state="ended")
    with pytest.raises(Conflict, match="run out"):
        reshard(count=8, actor="ana", dry_run=False)


def test_a_scheduler_that_slept_through_it_can_prove_nothing(raw: psycopg.Connection[Any]) -> None:
    """Its lease had run out and nobody had taken it: it would have been renewed at its waking."""
    asleep = Leases(holder=uuid7(), ttl_s=60, renew_interval_s=12, deadline_s=40)
    asleep.balance(raw, dead_after_s=60)
    terms = asleep.terms()
    raw.execute("UPDATE lease SET expires_at = clock_timestamp() - interval '1 s'")
    reshard(count=32, actor="ana", dry_run=False)
    with pytest.raises(Fenced), raw.transaction():
        asleep.prove(raw, terms)
    asleep._renew_once(raw)
    assert asleep.terms() == {}
    assert LeaseEvent.objects.filter(kind="released", holder=asleep.holder).count() == 16


def test_a_lost_lease_row_of_a_shard_with_work_comes_back(raw: psycopg.Connection[Any]) -> None:
    factories.make_run(flow=factories.make_flow(flow_id="busy", shard=5))
    raw.execute("DELETE FROM lease WHERE shard = 5")
    sweep.watch_for_leaderless(raw)
    assert "lease: 5. Nothing decides" in Incident.objects.get(resolved_at=None).message
    assert reshard(count=16, actor="ana", dry_run=False).added == (5,)
    sweep.watch_for_leaderless(raw)
    assert not Incident.objects.filter(resolved_at=None).exists()


@pytest.mark.parametrize("count", [0, -1, 1025])
def test_a_number_that_cannot_be_is_refused_with_the_limits(
    raw: psycopg.Connection[Any], count: int
) -> None:
    with pytest.raises(InvalidInput, match="between 1 and 1024"):
        reshard(count=count, actor="ana", dry_run=False)


def test_the_command_says_what_it_would_do_and_does_it(
    raw: psycopg.Connection[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    flows(5)
    out = io.StringIO()
    call_command("leases", "reshard", "24", "--dry-run", stdout=out)
    assert "Shards: 16 -> 24 (dry run)" in out.getvalue()
    call_command("leases", "reshard", "24", stdout=out)
    assert "Shards: 16 -> 24\n" in out.getvalue()
    with pytest.raises(SystemExit):
        call_command("leases", "reshard", "0")
    assert "between 1 and 1024" in capsys.readouterr().err
