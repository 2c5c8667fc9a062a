"""Runs that a restored or imported database brings twice."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Attempt, Incident, Run, RunAttempt, TaskInstance
from scheduler_app.queries import audit_visibility
from scheduler_app.rules import ghosts
from scheduler_app.rules.definition import from_dict
from scheduler_app.rules.errors import Fenced
from scheduler_app.rules.states import RunType
from scheduler_app.scheduler.duplicate_runs import GUARD, GUARD_STATEMENT, find_duplicate_runs
from scheduler_app.transitions.run import NewRun, create_run
from tests.world import World, chain

if TYPE_CHECKING:
    import psycopg

    from scheduler_app.models import Flow

DATE = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def unguarded(raw: psycopg.Connection[Any]) -> Iterator[None]:
    """A database into which doubled runs were restored: the index could not be made."""
    raw.execute(f"DROP INDEX {GUARD}")
    yield
    raw.execute("TRUNCATE run CASCADE")
    raw.execute(GUARD_STATEMENT)


def scheduled(world: World, flow: Flow, key: str, *, actor: str = "scheduler") -> int:
    assert flow.current_version is not None
    with world.connection.transaction():
        run_id = create_run(
            world.connection,
            new=NewRun(
                flow_id=flow.flow_id,
                run_key=key,
                shard=flow.shard,
                run_type=RunType.SCHEDULED,
                version_id=flow.current_version.pk,
                logical_date=DATE,
                data_interval_start=DATE,
                data_interval_end=DATE,
                conf={},
                actor=actor,
            ),
            definition=from_dict(flow.current_version.definition),
        )
    assert run_id is not None
    return run_id


def find(world: World) -> list[ghosts.Sighting]:
    return find_duplicate_runs(world.connection, leases=world.leases, terms=world.leases.terms())


def differences() -> list[audit_visibility.Difference]:
    return [d for compared in audit_visibility.compare() for d in compared.differences]


def test_of_two_runs_of_a_date_the_one_that_did_more_is_kept(world: World, unguarded: None) -> None:
    flow = world.flow("sales", chain("load", "report"))
    idle = scheduled(world, flow, "scheduled__1")
    worked = scheduled(world, flow, "scheduled__1_again")
    world.tick(worked)
    world.serve()
    (sighting,) = find(world)
    aside, kept = Run.objects.get(pk=idle), Run.objects.get(pk=worked)
    assert kept.filter_code is None
    assert aside.filter_code == "duplicate_logical_date"
    assert aside.superseded_by == str(worked)
    assert aside.filter_detail is not None
    assert aside.filter_detail["kept_run_id"] == "scheduled__1_again"
    assert aside.filter_detail["token"] == world.leases.terms()[3]
    assert set(TaskInstance.objects.filter(run_id=idle).values_list("filter_code", flat=True)) == {
        "duplicate_logical_date"
    }
    assert RunAttempt.objects.get(run_id=idle).filter_code == "duplicate_logical_date"
    assert (sighting.kind, sighting.run) == (ghosts.RUN_TWICE, idle)
    assert "scheduled__1_again is kept" in ghosts.explain(sighting.kind, sighting.detail)
    assert differences() == []
    # It can do nothing any more, the other goes on.
    assert aside.state == "failed"
    assert world.play(worked).state == "success"
    assert find(world) == []


def test_what_of_the_doubled_run_was_issued_is_not_started_and_what_runs_is_asked_to_stop(
    world: World, unguarded: None
) -> None:
    flow = world.flow("sales", chain("load"))
    kept, doubled = scheduled(world, flow, "a"), scheduled(world, flow, "b")
    world.tick(kept)
    world.serve()
    world.tick(doubled)
    issued = world.messages.pop()
    find(world)
    assert world.claim(issued) is None
    assert Attempt.objects.get(pk=issued.attempt_id).outcome == "terminated"
    assert not Run.objects.get(pk=doubled).is_active
    third = scheduled(world, flow, "c")
    world.tick(third)
    running = world.messages.pop()
    assert world.claim(running)
    find(world)
    run = Run.objects.get(pk=third)
    assert run.filter_code == "duplicate_logical_date"
    assert run.is_active, "not before its process is gone"
    attempt = Attempt.objects.get(pk=running.attempt_id)
    assert attempt.stop_reason == "its run was set aside: duplicate_logical_date"
    world.finish(running, ok=False)
    find(world)
    assert not Run.objects.get(pk=third).is_active
    assert differences() == []


def test_an_imported_run_gives_way(world: World, unguarded: None) -> None:
    flow = world.flow("sales", chain("load"))
    imported = scheduled(world, flow, "imported", actor="import of old.dump")
    scheduled(world, flow, "own")
    find(world)
    assert Run.objects.get(pk=imported).filter_code == "imported_duplicate"


def test_a_run_that_nobody_created_is_a_ghost_run(world: World) -> None:
    flow = world.flow("sales", chain("load"))
    run_id = scheduled(world, flow, "by_hand")
    RunAttempt.objects.filter(run_id=run_id).delete()
    find(world)
    run = Run.objects.get(pk=run_id)
    assert run.filter_code == "ghost_run"
    assert not run.is_active


def test_a_person_hears_that_the_guard_is_gone_until_it_is_back(
    world: World, unguarded: None, raw: psycopg.Connection[Any]
) -> None:
    find(world)
    incident = Incident.objects.get(kind="unguarded_runs", resolved_at=None)
    assert GUARD_STATEMENT in incident.message
    raw.execute(GUARD_STATEMENT)
    find(world)
    assert not Incident.objects.filter(kind="unguarded_runs", resolved_at=None).exists()
    raw.execute(f"DROP INDEX {GUARD}")


def test_without_its_lease_a_scheduler_sets_nothing_aside(
    world: World, unguarded: None, raw: psycopg.Connection[Any]
) -> None:
    flow = world.flow("sales", chain("load"))
    scheduled(world, flow, "a")
    scheduled(world, flow, "b")
    raw.execute("UPDATE lease SET holder = %s, token = token + 1", [uuid.uuid4()])
    with pytest.raises(Fenced):
        find(world)
    assert not Run.objects.filter(filter_code__isnull=False).exists()
