"""The grid of a flow and the timeline of a run: pictures that count as lists do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler_app.models import Attempt, Run, TaskInstance
from tests import factories
from tests.integration.dashboard.pages import Page

if TYPE_CHECKING:
    from django.test import Client

    from tests.integration.dashboard.scene import Scene

GRID = "/flows/nightly_sales/?tab=grid"


def test_the_grid_has_a_row_for_each_task_and_a_column_for_each_run(
    scene: Scene, reader: Client
) -> None:
    page = Page(reader, GRID)
    assert len(page.rows()) == page.counts().shown == 3
    (grid,) = [e for e in page.all("table") if e.get("data-grid") is not None]
    heads = ["".join(th.itertext()).split() for th in grid.iter("th") if th.get("scope") == "row"]
    assert [head[0] for head in heads] == [
        "extract", "clean", "exchange_rates", "transform", "load_warehouse", "report",
    ]  # fmt: skip
    said = [str(a.get("title")) for a in grid.iter("a") if a.get("title")]
    assert "extract: success, 2 attempts, 1 filtered" in said
    assert "load_warehouse: failed" in said
    del scene


def test_a_run_has_a_bar_as_high_as_it_was_long_and_says_where_a_version_began(
    scene: Scene, reader: Client
) -> None:
    run = Run.objects.get(pk=scene.running)
    other = factories.make_version(run.flow, number=2)
    Run.objects.filter(pk=scene.running).update(version=other)
    page = Page(reader, GRID)
    assert not page.faults
    heads = page.rows()
    bars = [
        float(str(bar.get("height")))
        for head in heads
        for bar in head.iter()
        if str(bar.tag).endswith("rect")
    ]
    assert len(bars) == 3
    assert max(bars) == 26.0, "the longest fills its room"
    assert min(bars) >= 2.0
    said = " ".join(" ".join(head.itertext()) for head in heads)
    assert "took" in said
    begun = [head for head in heads if "new-version" in head.get("class", "")]
    assert [head.get("id") for head in begun] == [f"column-{scene.running}"]
    assert "version 2 (new)" in " ".join(begun[0].itertext())


def test_a_tick_says_in_the_clean_view_that_something_was_set_aside(
    scene: Scene, reader: Client
) -> None:
    ticked = [a for a in Page(reader, GRID).all("a") if a.get("class") == "has-filtered"]
    assert [str(a.get("href")) for a in ticked] == [f"/task-instances/{scene.retried}/"]


def test_a_run_that_was_set_aside_is_a_column_under_the_switch_alone(
    scene: Scene, reader: Client
) -> None:
    Run.objects.filter(pk=scene.failed).update(
        filter_code="duplicate_logical_date", filtered_at=factories.at(1), filter_detail={}
    )
    clean, both = Page(reader, GRID), Page(reader, f"{GRID}&filtered=1")
    assert [len(page.rows()) for page in (clean, both)] == [2, 3]
    assert len(both.filtered_rows()) == 1
    assert clean.counts() == both.counts()


def test_a_task_that_left_the_flow_keeps_its_row(scene: Scene, reader: Client) -> None:
    TaskInstance.objects.filter(run_id=scene.healed, task_id="clean").update(task_id="tidy")
    text = " ".join(Page(reader, GRID).text.split())
    assert "tidy</a> <span" in text
    assert "left the flow" in text


def test_mapped_instances_show_the_worst_of_them_and_how_many(scene: Scene, reader: Client) -> None:
    ti = TaskInstance.objects.get(run_id=scene.healed, task_id="clean")
    for index in range(2):
        factories.make_task_instance(
            run=ti.run, task_id="clean", map_index=index, state="failed" if index else "success"
        )
    said = [str(a.get("title")) for a in Page(reader, GRID).all("a") if a.get("title")]
    assert "clean: failed, 3 instances: 2 of 3 success, 1 failed" in said


def test_the_timeline_has_a_bar_for_each_attempt_and_hatches_what_was_set_aside(
    scene: Scene, reader: Client
) -> None:
    address = f"/runs/{scene.healed}/?tab=timeline"
    clean, both = Page(reader, address), Page(reader, f"{address}&filtered=1")
    assert len(clean.rows()) == clean.counts().shown == 6
    assert len(both.rows()) == both.counts().total == 7
    (aside,) = both.filtered_rows()
    title = next(e for e in aside.iter() if str(e.tag).endswith("title"))
    said = "".join(title.itertext())
    assert said.startswith("extract, try 1.0.1, failed")
    assert "Filtered: Try 1 ended as failed; try 2 replaced it" in said
    labels = [e for e in both.all("text") if e.get("class") == "lane-label"]
    assert len(labels) == 6, "a lane of filtered attempts has the label of its task above it"


def test_a_run_that_issued_nothing_yet_has_no_picture_and_says_so(
    scene: Scene, reader: Client
) -> None:
    Attempt.objects.filter(run_id=scene.running).update(issued_at=None, started_at=None)
    page = Page(reader, f"/runs/{scene.running}/?tab=timeline")
    assert page.response.status_code == 200
    assert not list(page.all("text"))


def test_the_timeline_tells_who_led_what_was_said_who_haunts_and_what_people_did(
    scene: Scene, reader: Client
) -> None:
    running = Attempt.objects.get(run_id=scene.running, is_live=True)
    assert running.issued_at is not None
    ghost = factories.make_ghost(
        run_id=scene.running,
        hostname="host-9",
        pid=77,
        first_seen_at=running.issued_at,
        last_seen_at=running.issued_at,
    )
    factories.make_event(
        attempt=running,
        verdict="refused",
        verdict_code="duplicate_delivery",
        filter_code="duplicate_delivery",
        received_at=running.issued_at,
    )
    freeze = reader.post(f"/runs/{scene.running}/freeze/", {"reason": "look", "mode": "drain"})
    assert freeze.status_code == 302
    address = f"/runs/{scene.running}/?tab=timeline"
    clean, both = Page(reader, address), Page(reader, f"{address}&filtered=1")
    assert not clean.faults
    for page in (clean, both):
        text = " ".join(page.text.split())
        assert f"leader of shard {running.shard}" in text
        assert "ghost host-9:77" in text
        assert f"/ghosts/{ghost.pk}/" in " ".join(page.links())
        assert "ana: freeze (look)" in text
        assert any("Token" in "".join(e.itertext()) for e in page.all("title")), (
            "a band for the term"
        )
    signs = [len(list(page.all("circle"))) for page in (clean, both)]
    assert signs[0] < signs[1], "refused deliveries are drawn under the switch"
    assert "filtered not drawn" in " ".join(clean.text.split())


def test_the_lanes_of_a_timeline_are_tasks_or_processes_and_a_wrong_choice_is_told(
    scene: Scene, reader: Client
) -> None:
    address = f"/runs/{scene.healed}/?tab=timeline&filtered=1"
    for more in ("lanes=host", "axis=real", "axis=ordinal", "lanes=task&axis=compressed"):
        page = Page(reader, f"{address}&{more}")
        assert page.response.status_code == 200, more
        assert len(page.rows()) == page.counts().total, more
    by_host = Page(reader, f"{address}&lanes=host")
    place = Attempt.objects.filter(run_id=scene.healed, hostname__isnull=False).first()
    assert place is not None
    labels = {"".join(e.itertext()) for e in by_host.all("text")}
    assert f"{place.hostname}:{place.pid}" in labels
    wrong = Page(reader, f"{address}&axis=log")
    assert wrong.response.status_code == 400
    assert "is not one of compressed, real, ordinal" in wrong.text
