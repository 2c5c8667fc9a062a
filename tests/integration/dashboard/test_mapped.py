"""Mapped tasks on pages: one folded row, box and cell with counts; the instances on a page of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from scheduler_app.models import TaskInstance
from tests import factories
from tests.integration.dashboard.pages import Page

if TYPE_CHECKING:
    from django.test import Client

    from scheduler_app.models import Run

QUERIES_MAX = 14  # as of any page


@pytest.fixture
def run(transactional_db: None) -> Run:
    """A run of ``first`` and of 1,000 instances of ``second``."""
    del transactional_db
    run = factories.make_run(state="running")
    factories.make_task_instance(run=run, task_id="first", state="success")
    factories.make_mapped(run, "second", success=812, failed=3, running=5, none=180)
    return run


def texts(page: Page) -> list[str]:
    """What each listed record says."""
    return [" ".join("".join(row.itertext()).split()) for row in page.rows()]


def test_a_mapped_task_is_one_row_that_counts_its_states(run: Run, reader: Client) -> None:
    page = Page(reader, f"/runs/{run.id}/")
    assert not page.faults
    assert page.counts().shown == 1001, "the count line counts instances, folded or not"
    first, second = texts(page)
    assert "first" in first
    assert "×1,000" in second
    assert "812 of 1,000 success, 180 not ready, 5 running, 3 failed" in second
    assert f"/runs/{run.id}/mapped/second/?state=failed" in page.links()


def test_a_filter_by_state_keeps_the_fold_and_says_how_many_match(run: Run, reader: Client) -> None:
    (only,) = texts(page := Page(reader, f"/runs/{run.id}/?state=failed"))
    assert page.counts().shown == 3
    assert "3 match these filters" in only
    assert texts(Page(reader, f"/runs/{run.id}/?map_index=7&map_index=9"))[0].count("second [7]")


def test_the_list_of_all_runs_folds_too_until_it_asks_for_some_of_them(
    run: Run, reader: Client
) -> None:
    assert len(Page(reader, "/task-instances/").rows()) == 2
    assert len(Page(reader, f"/task-instances/?flow_id={run.flow_id}").rows()) == 2
    assert len(Page(reader, "/task-instances/?state=failed").rows()) == 3


def test_the_page_of_a_mapped_task_lists_its_instances_by_index(run: Run, reader: Client) -> None:
    page = Page(reader, f"/runs/{run.id}/mapped/second/")
    assert not page.faults
    assert page.counts().shown == 1000
    assert len(page.rows()) == 100, "never all of them at once"
    assert "second [0]" in texts(page)[0]
    (following,) = [e for e in page.all("a") if e.get("rel") == "next"]
    second = Page(reader, f"/runs/{run.id}/mapped/second/{following.get('href')}")
    assert "second [100]" in texts(second)[0]
    failed = Page(reader, f"/runs/{run.id}/mapped/second/?state=failed")
    assert [text.split("[")[1].split("]")[0] for text in texts(failed)] == ["812", "813", "814"]


def test_a_task_that_is_not_mapped_has_no_such_page(run: Run, reader: Client) -> None:
    assert reader.get(f"/runs/{run.id}/mapped/first/").status_code == 404
    assert reader.get(f"/runs/{run.id}/mapped/nobody/").status_code == 404


def test_graph_and_grid_draw_it_as_one(run: Run, reader: Client) -> None:
    graph = Page(reader, f"/runs/{run.id}/?tab=graph")
    assert not graph.faults
    (box,) = [e for e in graph.all("a") if e.get("href") == f"/runs/{run.id}/mapped/second/"]
    said = " ".join("".join(box.itertext()).split())
    assert said.startswith("second 815/1,000")
    assert "812 of 1,000 success" in said
    grid = Page(reader, f"/flows/{run.flow_id}/?tab=grid")
    assert not grid.faults
    (cell,) = [e for e in grid.all("a") if e.get("href") == f"/runs/{run.id}/mapped/second/"]
    assert "1,000 instances: 812 of 1,000 success" in str(cell.get("title"))


def test_instances_that_are_set_aside_are_counted_beside_the_fold_and_folded_themselves(
    run: Run, reader: Client
) -> None:
    TaskInstance.objects.filter(run=run, map_index__gte=900).update(
        filter_code="removed_from_flow", filtered_at=factories.at(1), filter_detail={}
    )
    clean, both = Page(reader, f"/runs/{run.id}/"), Page(reader, f"/runs/{run.id}/?filtered=1")
    assert clean.counts() == both.counts()
    assert clean.counts().filtered == 100
    assert "×900" in texts(clean)[1]
    assert "100 filtered" in texts(clean)[1]
    assert len(both.rows()) == 3
    assert len(both.filtered_rows()) == 1


def test_pages_of_a_large_mapped_task_read_as_little_as_others(run: Run, reader: Client) -> None:
    for address in (
        f"/runs/{run.id}/",
        f"/runs/{run.id}/?tab=graph",
        f"/runs/{run.id}/mapped/second/",
        f"/flows/{run.flow_id}/?tab=grid",
        "/task-instances/",
    ):
        reader.get(address)
        with CaptureQueriesContext(connection) as queries:
            reader.get(address)
        assert len(queries) <= QUERIES_MAX, address


def test_an_act_on_all_that_match_shows_one_line_with_the_indexes(run: Run, reader: Client) -> None:
    page = Page(reader, f"/runs/{run.id}/mapped/second/?state=none")
    (mark,) = [link for link in page.links() if link.startswith("/task-instances/mark/?all=")]
    sheet = Page(reader, f"{mark}&state=skipped")
    assert not sheet.faults
    assert "×180" in " ".join(sheet.text.split())
    assert "second [820–999]" in sheet.text
    inputs = {
        e.get("name"): e.get("value") for e in sheet.all("input") if e.get("type") == "hidden"
    }
    answer = reader.post(
        "/task-instances/mark/",
        {"all": str(inputs["all"]), "state": "skipped", "reason": "not today"},
    )
    assert answer.status_code == 302
    assert TaskInstance.objects.filter(run=run, state="skipped").count() == 180
    assert set(
        TaskInstance.objects.filter(state="skipped").values_list("mark__reason", flat=True)
    ) == {"not today"}


def test_unfinished_instances_are_terminated_together(run: Run, reader: Client) -> None:
    page = Page(reader, f"/runs/{run.id}/mapped/second/")
    (end,) = [link for link in page.links() if link.startswith("/task-instances/terminate/?all=")]
    sheet = Page(reader, end)
    assert not sheet.faults
    assert "Terminate 185 unfinished tasks" in sheet.text
    assert "It has ended as success." in sheet.text
    inputs = {
        e.get("name"): e.get("value") for e in sheet.all("input") if e.get("type") == "hidden"
    }
    reader.post("/task-instances/terminate/", {"all": str(inputs["all"]), "reason": "enough"})
    ended = TaskInstance.objects.filter(run=run, task_id="second", stop_requested_at__isnull=False)
    assert ended.count() == 185


def test_an_instance_says_its_label_and_leads_to_its_neighbours(run: Run, reader: Client) -> None:
    of_task = TaskInstance.objects.filter(run=run, task_id="second")
    of_task.filter(map_index=813).update(map_label="customer 17")
    one, other = (of_task.get(map_index=at) for at in (813, 814))
    page = Page(reader, f"/task-instances/{one.pk}/")
    assert not page.faults
    assert "customer 17" in page.text
    beside = {str(e.get("rel")): e.get("href") for e in page.all("a") if e.get("rel")}
    assert beside == {
        "prev": f"/task-instances/{of_task.get(map_index=812).pk}/",
        "next": f"/task-instances/{other.pk}/",
    }
    first = Page(reader, f"/task-instances/{of_task.get(map_index=0).pk}/")
    assert [str(e.get("rel")) for e in first.all("a") if e.get("rel")] == ["next"]
    (found,) = texts(Page(reader, f"/runs/{run.id}/mapped/second/?map_label=TOMER"))
    assert "second [813] customer 17" in found
    assert "1 matches these filters" in Page(reader, f"/runs/{run.id}/?map_label=customer").text


def test_the_timeline_has_one_bar_for_all_attempts_of_a_mapped_task(
    run: Run, reader: Client
) -> None:
    first = TaskInstance.objects.get(run=run, task_id="first")
    factories.make_attempt(ti=first, outcome="success", state="ended")
    for ti in TaskInstance.objects.filter(run=run, map_index__gte=800, map_index__lt=815):
        outcome = "failed" if ti.state == "failed" else "success"
        factories.make_attempt(ti=ti, outcome=outcome, state="ended")
    page = Page(reader, f"/runs/{run.id}/?tab=timeline")
    assert not page.faults
    assert page.counts().shown == 16
    assert len(page.rows()) == 1, "the attempt of the task that is not mapped"
    (bar,) = [g for g in page.all("g") if "bar-folded" in str(g.get("class"))]
    said = " ".join("".join(bar.itertext()).split())
    assert said.startswith("second, 15 attempts: 12 of 15 success, 3 failed.")
    opened = Page(reader, f"/runs/{run.id}/?tab=timeline&task_id=second")
    assert len(opened.rows()) == opened.counts().shown == 15


def test_all_instances_are_frozen_and_thawed_by_one_freeze(run: Run, reader: Client) -> None:
    address = f"/runs/{run.id}/mapped/second/"
    (freeze,) = [link for link in Page(reader, address).links() if link.endswith("/freeze/")]
    sheet = Page(reader, freeze)
    assert not sheet.faults
    assert "Freeze 185 unfinished tasks" in sheet.text
    answer = reader.post(freeze, {"reason": "the target is down"})
    assert answer.headers["Location"] == address
    held = TaskInstance.objects.filter(run=run, held_by__isnull=False)
    assert set(held.values_list("task_id", flat=True)) == {"second"}
    assert held.count() == 185
    page = Page(reader, address)
    assert "is frozen" in page.text
    assert "185 frozen" in page.text
    (thaw,) = {link for link in page.links() if "/thaw/" in link}
    assert reader.post(thaw, {"reason": "it is back"}).status_code == 302
    assert not held.exists()
    assert reader.get("/mapped/999:second/freeze/").status_code == 404
    assert reader.get("/mapped/second/freeze/").status_code == 400
