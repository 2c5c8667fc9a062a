"""Runs that a task triggered: what becomes of them when that stops, and where the two are told of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from scheduler_app.airflow_api import shapes
from scheduler_app.models import Attempt, Audit, Run, TaskInstance, TriggeredRun
from scheduler_app.operations.clear import clear_task_instances
from scheduler_app.operations.mark import mark_task_instances
from scheduler_app.operations.terminate import terminate_task_instance
from scheduler_app.queries import runs
from scheduler_app.queries.filters import RunFilter
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.scheduler.stopped_parents import end_with_their_tasks
from scheduler_app.transitions.triggered_run import NewLink, keep_link
from tests.recording import broken_laws
from tests.world import World, chain

if TYPE_CHECKING:
    import psycopg

    from tests.recording import RecordingConnection


class Pair:
    """A run whose task waits for a run that it triggered."""

    def __init__(self, world: World, *, on_stop: str = "terminate") -> None:
        self.world = world
        self.parent = world.run(world.flow("parent", chain("ask")))
        self.child = world.run(world.flow("child", chain("work")), "r2")
        world.tick(self.parent)
        (message,) = world.messages
        world.claim(message)
        self.ti = TaskInstance.objects.get(pk=message.ti_id)
        keep_link(
            world.connection,
            new=NewLink(
                parent_run_id=self.parent,
                ti_id=self.ti.pk,
                attempt_id=message.attempt_id,
                budget_start=self.ti.budget_start,
                try_number=1,
                key="",
                run_id=self.child,
                how="created",
                depth=1,
                waits=True,
                on_stop=on_stop,
            ),
        )
        # It is deferred, as a task that waits is.
        Attempt.objects.filter(pk=message.attempt_id).update(
            state="ended", is_live=False, outcome="deferred", ended_at=timezone.now()
        )
        TaskInstance.objects.filter(pk=self.ti.pk).update(state="deferred")

    def look(self, connection: Any = None) -> set[int]:
        """One sweep."""
        return end_with_their_tasks(
            connection or self.world.connection,
            leases=self.world.leases,
            terms=self.world.leases.terms(),
        )

    def child_run(self) -> Run:
        """The triggered run as it is."""
        return Run.objects.get(pk=self.child)


def stop(pair: Pair, how: str) -> None:
    """The task ends otherwise than by itself."""
    by: dict[str, Any] = {"actor": "ana", "reason": "enough"}
    match how:
        case "terminated":
            plan = terminate_task_instance(ti_id=pair.ti.pk, dry_run=True, actor="ana")
            told = plan.included[0].effect
            assert "Run r2 of flow child, which it triggered, is terminated with it." in told
            terminate_task_instance(ti_id=pair.ti.pk, **by)
        case "marked":
            mark: dict[str, Any] = {"ti_ids": [pair.ti.pk], "actor": "ana", "dry_run": True}
            told = mark_task_instances(state="failed", **mark).included[0].effect
            assert told.endswith("Run r2 of flow child, which it triggered, is terminated with it.")
            told = mark_task_instances(state="success", **mark).included[0].effect
            assert told.endswith("Run r2 of flow child, which it triggered, goes on.")
            mark_task_instances(ti_ids=[pair.ti.pk], state="failed", dry_run=False, **by)
        case "cleared":
            kept = clear_task_instances(ti_ids=[pair.ti.pk], dry_run=True, actor="ana")
            told = kept.included[0].effect
            assert told.endswith("Run r2 of flow child, which it triggered, is terminated with it.")
            clear_task_instances(ti_ids=[pair.ti.pk], dry_run=False, plan_id=kept.plan_id, **by)


@pytest.mark.parametrize("how", ["terminated", "marked", "cleared"])
def test_it_ends_with_its_task_where_that_was_asked_for(world: World, how: str) -> None:
    pair = Pair(world)
    assert pair.look() == set()
    stop(pair, how)
    assert pair.look() == {pair.child}
    run = pair.child_run()
    assert run.state == "failed"
    assert "Task parent.ask, which triggered it," in run.state_reason
    assert run.retry_barred
    assert Audit.objects.filter(action="terminate", object_id=str(pair.child)).exists()
    assert pair.look() == set()
    assert not TriggeredRun.objects.filter(is_watched=True).exists()


def test_a_success_and_an_end_of_its_own_leave_nothing_to_look_at(world: World) -> None:
    pair = Pair(world)
    TaskInstance.objects.filter(pk=pair.ti.pk).update(state="success", is_open=False)
    assert pair.look() == set()
    assert pair.child_run().state == "queued"
    assert not TriggeredRun.objects.filter(is_watched=True).exists()


def test_without_it_the_run_goes_on(world: World) -> None:
    pair = Pair(world, on_stop="leave")
    cleared = clear_task_instances(ti_ids=[pair.ti.pk], actor="ana")
    assert "Run r2 of flow child, which it triggered, goes on." in cleared.included[0].effect
    plan = terminate_task_instance(ti_id=pair.ti.pk, actor="ana", reason="enough")
    assert "Run r2 of flow child, which it triggered, goes on." in plan.included[0].effect
    assert pair.look() == set()
    assert pair.child_run().state == "queued"


def test_a_frozen_run_is_looked_at_again(world: World) -> None:
    pair = Pair(world)
    Run.objects.filter(pk=pair.child).update(frozen_at=timezone.now())
    stop(pair, "terminated")
    assert pair.look() == set()
    Run.objects.filter(pk=pair.child).update(frozen_at=None)
    assert pair.look() == {pair.child}


def test_its_transactions_keep_the_laws(
    world: World, recording: RecordingConnection, raw: psycopg.Connection[Any]
) -> None:
    del raw
    pair = Pair(world)
    stop(pair, "terminated")
    recording.transactions.clear()
    assert pair.look(recording) == {pair.child}
    assert broken_laws(recording.transactions, deciding=True) == []


def test_both_are_told_of_everywhere(world: World) -> None:
    pair = Pair(world)
    row = runs.one(EVERYTHING, pair.child)
    assert row.triggered_by == {
        "run": pair.parent,
        "flow_id": "parent",
        "run_id": "r1",
        "ti": pair.ti.pk,
        "task_id": "ask",
        "map_index": -1,
        "attempt_id": str(TriggeredRun.objects.get().attempt_id),
        "waits": True,
        "on_stop": "terminate",
    }
    assert runs.one(EVERYTHING, pair.parent).triggered_by is None
    for asked in (RunFilter(triggered_by=(pair.parent,)), RunFilter(triggered_by_ti=(pair.ti.pk,))):
        found = runs.page(asked, EVERYTHING)
        assert ([one.id for one in found.rows], found.counts.total) == ([pair.child], 1)
    assert shapes.dag_run(row)["triggered_by"] == "operator"
    client = Client()
    client.force_login(get_user_model().objects.create_user("ana"))
    child = client.get(f"/runs/{pair.child}/").content.decode()
    assert f'href="/task-instances/{pair.ti.pk}/">ask</a>' in child
    assert f'href="/runs/{pair.parent}/"' in child
    assert "which waits for it; it ends with that task" in " ".join(child.split())
    for page in (f"/runs/{pair.parent}/", f"/task-instances/{pair.ti.pk}/"):
        shown = client.get(page).content.decode()
        assert "Triggered runs" in shown, page
        assert f'href="/runs/{pair.child}/">child <span class="mono">r2</span></a>' in shown, page
    listed = client.get("/runs/", {"triggered_by": pair.parent}).content.decode()
    assert f"/runs/{pair.child}/" in listed
    assert f"/runs/{pair.parent}/" not in listed
