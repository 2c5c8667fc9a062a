from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db.models import F
from django.utils import timezone

from scheduler_app.models import Flow, Incident, Run
from scheduler_app.operations.freeze import freeze
from scheduler_app.operations.pause_flow import set_paused
from scheduler_app.operations.thaw import thaw
from scheduler_app.rules.errors import Fenced
from scheduler_app.scheduler.create_runs import create_due_runs
from scheduler_app.scheduler.deadlines import judge_deadlines, watch_for_expected
from tests.world import chain

if TYPE_CHECKING:
    import psycopg

    from tests.world import World

HOUR = timedelta(hours=1)


def _judge(world: World) -> None:
    judge_deadlines(world.connection, leases=world.leases, terms=world.leases.terms())


def _watch(world: World) -> None:
    watch_for_expected(world.connection, leases=world.leases, terms=world.leases.terms())


def _later(by: timedelta) -> None:
    """The runs began so much earlier."""
    Run.objects.update(
        late_at=F("late_at") - by,
        started_at=F("started_at") - by,
        frozen_at=F("frozen_at") - by,
        created_at=F("created_at") - by,
    )


def test_a_run_that_goes_on_past_its_deadline_is_an_incident_until_it_ends(world: World) -> None:
    run_id = world.run(world.flow("nightly", chain("a"), deadline_s=3600.0))
    assert Run.objects.get(pk=run_id).late_at is None, "it has not started"
    world.tick(run_id)
    run = Run.objects.get(pk=run_id)
    assert run.started_at is not None
    assert run.late_at is not None
    assert abs((run.late_at - run.started_at - HOUR).total_seconds()) < 1
    _judge(world)
    assert not Incident.objects.exists()
    _later(HOUR + timedelta(minutes=1))
    for _ in range(3):
        _judge(world)
    incident = Incident.objects.get()
    assert (incident.kind, incident.flow_id, incident.run_id) == (
        "deadline_missed",
        "nightly",
        run_id,
    )
    assert (incident.shard, incident.lease_token) == (3, world.leases.terms()[3])
    assert incident.message.endswith("and is still running.")
    world.play(run_id)
    _judge(world)
    incident.refresh_from_db()
    assert incident.resolved_at is not None
    assert incident.resolution == "The run ended as success, 1 min after its deadline."
    _judge(world)
    assert Incident.objects.count() == 1


def test_a_run_that_ended_in_time_is_judged_once_and_is_no_incident(world: World) -> None:
    run_id = world.run(world.flow("f", chain("a"), deadline_s=3600.0))
    world.play(run_id)
    Run.objects.update(late_at=timezone.now())
    _judge(world)
    assert Run.objects.get(pk=run_id).is_late_judged
    assert not Incident.objects.exists()


def test_a_run_that_ended_late_while_no_scheduler_looked_is_told_all_the_same(world: World) -> None:
    run_id = world.run(world.flow("f", chain("a"), deadline_s=3600.0))
    world.play(run_id, failing=["a"])
    Run.objects.update(late_at=F("ended_at") - timedelta(seconds=90))
    _judge(world)
    incident = Incident.objects.get()
    assert incident.message.endswith("ended as failed only after that.")
    assert incident.resolution == "The run ended as failed, 1 min 30 s after its deadline."


def test_the_clock_of_a_deadline_stands_still_while_the_run_is_frozen(world: World) -> None:
    run_id = world.run(world.flow("f", chain("a"), deadline_s=3600.0))
    world.tick(run_id)
    freeze(scope_kind="run", scope_id=run_id, actor="ada", reason="x")
    _later(2 * HOUR)
    _judge(world)
    assert not Run.objects.get(pk=run_id).is_late_judged
    thaw(scope_kind="run", scope_id=run_id, actor="ada", reason="x")
    left = Run.objects.get(pk=run_id).late_at
    assert left is not None
    assert timedelta(minutes=59) < left - timezone.now() < timedelta(minutes=61)
    _judge(world)
    assert not Incident.objects.exists()


def test_a_deadline_from_the_data_interval_is_known_from_the_first_moment(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    options = {"schedule": "@hourly", "deadline_s": 1800.0, "deadline_from": "data_interval_end"}
    end = timezone.now().replace(minute=0, second=0, microsecond=0)
    world.flow("f", chain("a"), **options)
    Flow.objects.update(next_interval_start=end - HOUR, next_interval_end=end)
    create_due_runs(raw, leases=world.leases, terms=world.leases.terms())
    run = Run.objects.get()
    assert run.late_at == end + HOUR / 2
    by_hand = world.run(Flow.objects.get(), "by-hand")
    assert Run.objects.get(pk=by_hand).late_at is None


def test_a_scheduler_that_lost_its_lease_judges_nothing(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    run_id = world.run(world.flow("f", chain("a"), deadline_s=1.0))
    world.tick(run_id)
    _later(HOUR)
    with raw.cursor() as cursor:
        cursor.execute("UPDATE lease SET token = token + 1")
    with pytest.raises(Fenced):
        _judge(world)
    assert not Run.objects.get(pk=run_id).is_late_judged
    assert not Incident.objects.exists()


def _due(world: World, *, ago: timedelta = HOUR, **more: Any) -> Flow:
    """A flow whose next run is due since ``ago``, which it has existed for much longer."""
    world.flow("f", chain("a"), schedule="@hourly", expected_within_s=1800.0, **more)
    end = timezone.now() - ago
    Flow.objects.update(
        next_interval_start=end - HOUR, next_interval_end=end, created_at=end - 100 * HOUR
    )
    return Flow.objects.get()


def test_a_scheduled_run_that_does_not_come_is_an_incident_until_it_begins(world: World) -> None:
    # With catch-up no interval is left out for a newer one, whatever the time of day.
    flow = _due(world, ago=timedelta(minutes=29), catchup=True)
    _watch(world)
    assert not Incident.objects.exists(), "it may still come"
    Flow.objects.update(next_interval_end=timezone.now() - timedelta(minutes=31))
    for _ in range(3):
        _watch(world)
    incident = Incident.objects.get()
    assert (incident.kind, incident.subject, incident.flow_id) == ("run_expected", "f", "f")
    assert "should have begun within 30 min" in incident.message
    (run_id,) = create_due_runs(
        world.connection, leases=world.leases, terms=world.leases.terms()
    ).run_ids
    _watch(world)
    assert Incident.objects.get().resolved_at is None, "it is there, and waits"
    world.tick(run_id)
    _watch(world)
    assert Incident.objects.get().resolution == "The run began."
    assert flow.flow_id == "f"


def test_nothing_is_expected_of_a_flow_that_a_person_paused_or_froze(world: World) -> None:
    _due(world)
    set_paused(flow_id="f", is_paused=True, actor="ada", reason="x")
    _watch(world)
    assert not Incident.objects.exists()
    set_paused(flow_id="f", is_paused=False, actor="ada", reason="x")
    # The schedule goes on with a run that was due long ago: it has its time from now on.
    Flow.objects.update(
        next_interval_start=timezone.now() - 2 * HOUR, next_interval_end=timezone.now() - HOUR
    )
    _watch(world)
    assert not Incident.objects.exists()
    Flow.objects.update(scheduled_since=F("scheduled_since") - HOUR)
    _watch(world)
    assert Incident.objects.get().resolved_at is None
    freeze(scope_kind="flow", scope_id="f", actor="ada", reason="x")
    _watch(world)
    assert Incident.objects.get().resolution == "The flow is frozen: its clocks stand still."
    thaw(scope_kind="flow", scope_id="f", actor="ada", reason="x")
    _watch(world)
    assert Incident.objects.get().resolved_at is not None, "its clock goes on from the thaw"


def test_a_flow_that_says_nothing_of_it_is_never_looked_at(world: World) -> None:
    world.flow("f", chain("a"), schedule="@hourly")
    Flow.objects.update(
        next_interval_start=timezone.now() - 9 * HOUR, next_interval_end=timezone.now() - 8 * HOUR
    )
    _watch(world)
    assert not Incident.objects.exists()
