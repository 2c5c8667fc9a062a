"""Due schedules become runs, once each, and the cursor moves with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from scheduler_app.models import Flow, Run
from scheduler_app.scheduler.create_runs import create_due_runs, seconds_to_next_due
from tests.world import World, chain

if TYPE_CHECKING:
    import psycopg


def _due(world: World, *, hours_ago: int = 1, **options: Any) -> Flow:
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    flow = world.flow("f", chain("a"), schedule="@hourly", **options)
    flow.next_interval_start = now - timedelta(hours=hours_ago)
    flow.next_interval_end = flow.next_interval_start + timedelta(hours=1)
    flow.save()
    return flow


def test_a_due_interval_gets_one_run_with_its_dates(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    flow = _due(world)
    (run_id,) = create_due_runs(raw, leases=world.leases, terms=world.leases.terms()).run_ids
    run = Run.objects.get(pk=run_id)
    assert run.logical_date == run.data_interval_start == flow.next_interval_start
    assert run.data_interval_end == flow.next_interval_end
    assert run.logical_date is not None
    assert run.run_key == f"scheduled__{run.logical_date.isoformat()}"
    assert create_due_runs(raw, leases=world.leases, terms=world.leases.terms()).run_ids == []


def test_the_next_interval_follows_the_last_one(world: World, raw: psycopg.Connection[Any]) -> None:
    before = _due(world)
    create_due_runs(raw, leases=world.leases, terms=world.leases.terms())
    flow = Flow.objects.get()
    assert flow.last_interval_end == before.next_interval_end
    assert flow.next_interval_start == before.next_interval_end
    due_in_s = seconds_to_next_due(raw, shards=list(world.leases.terms()))
    assert due_in_s is not None
    assert 0 < due_in_s <= 3600


def test_catch_up_makes_a_run_of_every_interval_up_to_the_limit(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    start = datetime.now(UTC) - timedelta(days=2)
    _due(world, hours_ago=5, catchup=True, start_date=start.isoformat(), max_active_runs=3)
    for _ in range(6):
        create_due_runs(raw, leases=world.leases, terms=world.leases.terms())
    dates = [d for d in Run.objects.order_by("id").values_list("logical_date", flat=True) if d]
    assert len(dates) == 3
    assert dates[1] - dates[0] == dates[2] - dates[1] == timedelta(hours=1)


def test_a_paused_flow_gets_no_run(world: World, raw: psycopg.Connection[Any]) -> None:
    flow = _due(world)
    flow.is_paused = True
    flow.save()
    assert create_due_runs(raw, leases=world.leases, terms=world.leases.terms()).run_ids == []


def test_a_run_of_that_date_that_exists_moves_the_cursor_and_is_not_doubled(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    flow = _due(world)
    create_due_runs(raw, leases=world.leases, terms=world.leases.terms())
    Flow.objects.update(
        next_interval_start=flow.next_interval_start, next_interval_end=flow.next_interval_end
    )
    assert create_due_runs(raw, leases=world.leases, terms=world.leases.terms()).run_ids == []
    assert Run.objects.count() == 1
    assert Flow.objects.get().next_interval_start == flow.next_interval_end
