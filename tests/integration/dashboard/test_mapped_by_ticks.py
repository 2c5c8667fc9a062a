"""Mapped tasks as the scheduler expands them, on the pages: before, while and after; frozen and cleared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Run, TaskInstance
from scheduler_app.operations.clear import clear_task_instances
from scheduler_app.operations.freeze import freeze
from scheduler_app.operations.thaw import thaw
from scheduler_app.rules.definition import TaskDefinition
from scheduler_app.rules.mapping import Argument, Kind, MapOver, Source
from tests import factories
from tests.integration.dashboard.pages import Page

if TYPE_CHECKING:
    from django.test import Client

    from tests.world import World

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run(world: World) -> int:
    """A run of rows, and of something for each of them, that is labelled; its scheduler is known."""
    factories.make_job(id=world.leases.holder, kind="scheduler")
    source = Source(kind=Kind.RESULT, task_id="rows")
    tasks = (
        TaskDefinition(task_id="rows"),
        TaskDefinition(
            task_id="each",
            upstream=("rows",),
            mapped=MapOver(arguments=(Argument(name="x", source=source),)),
            map_label="row {x}",
        ),
    )
    return world.run(world.flow("f", tasks))


def served(world: World, run: int, rows: Any, rounds: int = 6) -> None:
    for _ in range(rounds):
        world.tick(run)
        world.serve(results={"rows": rows})


def test_a_mapped_task_is_seen_from_its_summary_to_its_last_instance(
    world: World, run: int, reader: Client
) -> None:
    world.tick(run)
    summary = TaskInstance.objects.get(run_id=run, task_id="each")
    page = Page(reader, f"/task-instances/{summary.pk}/")
    assert "an instance for each element of rows" in page.text
    assert "×?" in Page(reader, f"/runs/{run}/?tab=graph").text
    served(world, run, ["a", "b", "c"])
    assert Run.objects.get(pk=run).state == "success"
    listed = Page(reader, f"/runs/{run}/mapped/each/")
    assert not listed.faults
    assert listed.counts().shown == 3
    assert [f"row {one}" in listed.text for one in "abcd"] == [True, True, True, False]
    assert "all 3 success" in Page(reader, f"/runs/{run}/").text
    assert "each 3/3" in " ".join(Page(reader, f"/runs/{run}/?tab=graph").text.split())


def test_a_task_that_was_mapped_over_nothing_says_so(
    world: World, run: int, reader: Client
) -> None:
    served(world, run, [])
    summary = TaskInstance.objects.get(run_id=run, task_id="each")
    assert (summary.map_index, summary.state) == (-1, "skipped")
    page = Page(reader, f"/task-instances/{summary.pk}/")
    assert "It was mapped over nothing, and so skipped" in page.text
    assert "What it maps over is empty." in Page(reader, f"/runs/{run}/").text


def test_one_freeze_holds_every_instance_and_one_clear_begins_some_anew(
    world: World, run: int
) -> None:
    world.tick(run)
    freeze(scope_kind="task", scope_id=f"{run}:each", actor="ada", reason="look first")
    served(world, run, ["a", "b", "c"])
    of_each = TaskInstance.objects.filter(run_id=run, task_id="each")
    assert set(of_each.values_list("state", flat=True)) == {"none"}, "held as its summary"
    thaw(scope_kind="task", scope_id=f"{run}:each", actor="ada", reason="looked")
    served(world, run, ["a", "b", "c"])
    assert list(of_each.order_by("map_index").values_list("state", flat=True)) == ["success"] * 3
    clear_task_instances(
        ti_ids=[of_each.get(map_index=1).pk], actor="ada", reason="again", dry_run=False
    )
    states = of_each.order_by("map_index").values_list("state", flat=True)
    assert list(states) == ["success", "none", "success"]
    served(world, run, ["a", "b", "c"])
    assert Run.objects.get(pk=run).state == "success"
    assert of_each.get(map_index=1).try_number == 2
