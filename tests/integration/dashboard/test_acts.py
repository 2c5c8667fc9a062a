"""The buttons: trigger, pause, unpause, the look; and what they refuse."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from scheduler_app.models import Audit, ClearBatch, ClearPlan, Flow, Freeze, Job, Run, TaskInstance
from scheduler_app.operations.clear_batch import carry_out_batch, plan_batch
from tests.integration.dashboard.pages import Page

if TYPE_CHECKING:
    from tests.integration.dashboard.scene import Scene
    from tests.world import World


def test_one_click_triggers_a_run_and_opens_it(scene: Scene, reader: Client) -> None:
    del scene
    response = reader.post("/flows/hourly_sync/trigger/")
    run = Run.objects.get(flow_id="hourly_sync")
    assert response.headers["Location"] == f"/runs/{run.pk}/"
    assert (run.actor, run.run_type, run.conf) == ("ana", "manual", {})
    assert f"Run {run.run_key} was created." in reader.get(f"/runs/{run.pk}/").content.decode()


def test_conf_run_id_and_note_of_the_form_reach_the_run(scene: Scene, reader: Client) -> None:
    del scene
    form = {"conf": '{"day": 1}', "run_id": "by-hand", "note": "again"}
    reader.post("/flows/hourly_sync/trigger/", form)
    run = Run.objects.get(flow_id="hourly_sync")
    assert (run.conf, run.run_key, run.note) == ({"day": 1}, "by-hand", "again")


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ({"conf": "{day: 1}"}, "conf is not JSON"),
        ({"conf": "[1]"}, "conf must be a JSON object"),
        ({"run_id": "two words"}, "two words"),
    ],
)
def test_a_faulty_form_says_why_and_keeps_what_was_typed(
    scene: Scene, reader: Client, form: dict[str, str], told: str
) -> None:
    del scene
    typed = {"conf": "", "run_id": "", "note": "do not lose me", **form}
    response = reader.post("/flows/hourly_sync/trigger/", typed)
    text = response.content.decode()
    assert response.status_code == 400
    assert told in text
    assert "do not lose me" in text
    assert not Run.objects.filter(flow_id="hourly_sync").exists()


def test_a_run_id_that_exists_is_a_clear_error(scene: Scene, reader: Client) -> None:
    del scene
    response = reader.post("/flows/nightly_sales/trigger/", {"run_id": "manual__healed"})
    assert response.status_code == 400
    assert "already" in response.content.decode()


def test_pause_and_unpause_change_the_schedule_and_are_audited(
    scene: Scene, reader: Client
) -> None:
    del scene
    reader.post("/flows/nightly_sales/pause/", {"next": "/flows/nightly_sales/?tab=graph"})
    assert Flow.objects.get(pk="nightly_sales").is_paused
    assert "its schedule creates no runs" in Page(reader, "/flows/nightly_sales/").text
    reader.post("/flows/nightly_sales/unpause/")
    assert not Flow.objects.get(pk="nightly_sales").is_paused
    acts = list(Audit.objects.order_by("id").values_list("action", "actor"))
    assert acts == [("pause", "ana"), ("unpause", "ana")]


def test_a_button_returns_to_this_site_only(scene: Scene, reader: Client) -> None:
    del scene
    here = reader.post("/flows/nightly_sales/pause/", {"next": "/flows/?state=paused"})
    assert here.headers["Location"] == "/flows/?state=paused"
    there = reader.post("/flows/nightly_sales/unpause/", {"next": "https://elsewhere.example/"})
    assert there.headers["Location"] == "/"


def test_a_get_changes_nothing(scene: Scene, reader: Client) -> None:
    del scene
    assert reader.get("/flows/nightly_sales/pause/").status_code == 405
    assert reader.get("/flows/nightly_sales/unpause/").status_code == 405
    reader.get("/flows/hourly_sync/trigger/")
    assert not Flow.objects.get(pk="nightly_sales").is_paused
    assert not Run.objects.filter(flow_id="hourly_sync").exists()


def test_a_form_of_another_site_is_refused(scene: Scene) -> None:
    del scene
    client = Client(enforce_csrf_checks=True)
    client.force_login(get_user_model().objects.create_user("ben", password="a-long-password"))
    for act in ("trigger", "pause"):
        response = client.post(f"/flows/nightly_sales/{act}/")
        assert response.status_code == 403
        assert "Nothing was changed" in response.content.decode()
    assert not Flow.objects.get(pk="nightly_sales").is_paused


def test_an_unknown_flow_cannot_be_paused_or_triggered(reader: Client) -> None:
    assert reader.post("/flows/nobody/pause/").status_code == 404
    assert reader.post("/flows/nobody/trigger/").status_code == 404


@pytest.mark.parametrize(
    ("look", "kept"), [("dark", "dark"), ("contrast", "contrast"), ("loud", "system")]
)
def test_the_look_is_kept_in_a_cookie(reader: Client, look: str, kept: str) -> None:
    response = reader.post("/preferences/look/", {"look": look, "next": "/runs/"})
    assert response.headers["Location"] == "/runs/"
    assert f'data-look="{kept}"' in reader.get("/runs/").content.decode()


def test_a_forged_look_is_the_system_look(reader: Client) -> None:
    reader.cookies["daylight_look"] = '"><script>'
    assert 'data-look="system"' in reader.get("/runs/").content.decode()


# -- sheets ------------------------------------------------------------------------------------


def test_a_process_is_stopped_from_the_jobs_page_with_a_reason(
    scene: Scene, reader: Client, world: World
) -> None:
    del scene
    listed = Page(reader, "/jobs/")
    (href,) = [link for link in listed.links() if f"/jobs/{world.worker}/stop/" in link]
    sheet = Page(reader, href)
    assert sheet.response.status_code == 200
    assert "Stop worker host-1:4700" in sheet.text
    assert "handed back" in sheet.text
    assert Job.objects.get(pk=world.worker).stop_requested_at is None
    empty = reader.post(f"/jobs/{world.worker}/stop/", {"reason": " "})
    assert empty.status_code == 400
    assert "Say why" in empty.content.decode()
    done = reader.post(f"/jobs/{world.worker}/stop/", {"reason": "deploy", "next": "/jobs/?x"})
    assert done.headers["Location"] == "/jobs/?x"
    assert Job.objects.get(pk=world.worker).stop_requested_by == "ana"
    after = Page(reader, "/jobs/")
    assert "asked to stop" in after.text
    assert "by ana: deploy" in after.text
    assert "/stop/" not in "".join(after.links())


def test_a_stop_of_what_has_ended_is_refused_in_words(scene: Scene, reader: Client) -> None:
    del scene
    ended = Job.objects.get(ended_at__isnull=False)
    for answer in (
        reader.get(f"/jobs/{ended.pk}/stop/"),
        reader.post(f"/jobs/{ended.pk}/stop/", {"reason": "r"}),
    ):
        assert answer.status_code == 409
        assert "has ended; there is nothing to stop" in answer.content.decode()


def test_a_sheet_is_a_fragment_for_the_dialog(scene: Scene, reader: Client, world: World) -> None:
    del scene
    whole = reader.get(f"/jobs/{world.worker}/stop/").content.decode()
    part = reader.get(f"/jobs/{world.worker}/stop/", headers={"HX-Request": "true"})
    text = part.content.decode()
    assert "<html" in whole
    assert "<html" not in text
    assert f'action="/jobs/{world.worker}/stop/"' in text


def test_a_run_and_a_task_are_terminated_from_their_pages(
    scene: Scene, reader: Client, world: World
) -> None:
    del world
    page = Page(reader, f"/runs/{scene.running}/")
    (href,) = [link for link in page.links() if link.endswith("/terminate/")]
    sheet = Page(reader, href)
    assert "Terminate run manual__running" in sheet.text
    assert "It is stopped on host-1:4711" in sheet.text
    assert "Terminate 6 unfinished tasks" in sheet.text
    task = TaskInstance.objects.get(run_id=scene.running, task_id="clean")
    (href,) = [
        link
        for link in Page(reader, f"/task-instances/{task.pk}/").links()
        if link.endswith("/terminate/")
    ]
    done = reader.post(href, {"reason": "no need"})
    assert done.headers["Location"] == f"/task-instances/{task.pk}/"
    after = Page(reader, f"/task-instances/{task.pk}/")
    assert "clean was terminated" in after.text
    assert "ana terminated it: no need" in after.text
    assert not [link for link in after.links() if link.endswith("/terminate/")]
    reader.post(f"/runs/{scene.running}/terminate/", {"reason": "wrong day"})
    running = TaskInstance.objects.get(run_id=scene.running, task_id="extract")
    assert running.stop_reason == "ana terminated the run: wrong day"
    ended = reader.get(f"/runs/{scene.healed}/terminate/")
    assert ended.status_code == 409
    assert "has ended as success" in ended.content.decode()


def test_the_next_try_is_shown_with_its_reason_and_moved_from_its_page(
    scene: Scene, reader: Client
) -> None:
    task = TaskInstance.objects.get(run_id=scene.running, task_id="clean")
    address = f"/task-instances/{task.pk}/"
    assert not [link for link in Page(reader, address).links() if link.endswith("/retry/")]
    TaskInstance.objects.filter(pk=task.pk).update(
        state="up_for_retry",
        next_retry_at=timezone.now() + timedelta(hours=1),
        next_retry_why={"position": 1, "of": 3, "error": "OSError", "delay_s": 3600.0},
    )
    page = Page(reader, address)
    (href,) = [link for link in page.links() if link.endswith("/retry/")]
    assert "Retry in 60 min." in page.text
    sheet = Page(reader, href)
    assert "Now: try 1 of 3 failed with OSError: retry in 60 min." in sheet.text
    refused = reader.post(href, {"reason": "hurry", "at": "tomorrow"})
    assert refused.status_code == 400
    assert "neither a time nor a duration" in refused.content.decode()
    assert 'value="tomorrow"' in refused.content.decode()
    done = reader.post(href, {"reason": "hurry", "at": "10m"})
    assert done.headers["Location"] == address
    assert "clean: The next try begins 600 s from now." in Page(reader, address).text
    reader.post(href, {"reason": "hurry"})
    task.refresh_from_db()
    assert task.next_retry_at is not None
    assert task.next_retry_at <= timezone.now()
    assert "ana moved it at" in Page(reader, address).text


def test_a_run_is_cleared_from_its_preview(scene: Scene, reader: Client) -> None:
    (href,) = [
        link for link in Page(reader, f"/runs/{scene.healed}/").links() if link.endswith("/clear/")
    ]
    page = Page(reader, href)
    assert "Clear run manual__healed" in page.text
    assert "Run attempt 2 begins, on version 1 of the flow." in page.text
    form = reader.get(href).content.decode()
    plan = ClearPlan.objects.latest("created_at")
    assert f'name="plan_id" value="{plan.pk}"' in form
    without = reader.post(href, {"plan_id": plan.pk, "reason": " "})
    assert (without.status_code, "Say why" in without.content.decode()) == (400, True)
    done = reader.post(href, {"plan_id": plan.pk, "reason": "late file", "note": "again"})
    assert done.headers["Location"] == f"/runs/{scene.healed}/"
    run = Run.objects.get(pk=scene.healed)
    assert (run.state, run.run_attempt, run.note) == ("queued", 2, "again")
    again = reader.post(href, {"plan_id": plan.pk, "reason": "late file"})
    assert again.status_code == 409
    assert "was carried out before" in again.content.decode()


def test_a_preview_that_no_longer_holds_shows_what_moved(scene: Scene, reader: Client) -> None:
    task = TaskInstance.objects.get(run_id=scene.running, task_id="extract")
    href = f"/task-instances/{task.pk}/clear/"
    page = Page(reader, f"{href}?include_downstream=1")
    assert "It is stopped first, then runs anew" in page.text
    plan = ClearPlan.objects.latest("created_at")
    assert plan.options["include_downstream"] is True
    TaskInstance.objects.filter(pk=task.pk).update(state="failed", is_open=False)
    form = {"plan_id": plan.pk, "reason": "r", "include_downstream": "1"}
    refused = reader.post(href, form)
    assert refused.status_code == 409
    text = " ".join(refused.content.decode().split())
    assert "The plan no longer holds" in text
    assert "extract was running, and is failed now." in text
    assert ClearPlan.objects.latest("created_at").options["include_downstream"] is True
    assert not Audit.objects.filter(action="clear").exists()


def test_an_empty_preview_offers_no_button(scene: Scene, reader: Client) -> None:
    page = reader.get(f"/runs/{scene.healed}/clear/?only=only_failed").content.decode()
    assert "nothing changes" in page
    assert 'name="plan_id"' not in page


def test_a_run_is_marked_from_its_preview(scene: Scene, reader: Client) -> None:
    (href,) = [
        link for link in Page(reader, f"/runs/{scene.running}/").links() if link.endswith("/mark/")
    ]
    page = Page(reader, f"{href}?state=failed")
    assert page.faults == []
    assert "It is stopped first, and is failed then, whatever it reports." in page.text
    assert "Nothing calls back" in page.text
    without = reader.post(href, {"state": "failed", "reason": " "})
    assert (without.status_code, "Say why" in without.content.decode()) == (400, True)
    done = reader.post(href, {"state": "failed", "reason": "wrong day", "note": "n"})
    assert done.headers["Location"] == f"/runs/{scene.running}/"
    run = Run.objects.get(pk=scene.running)
    assert run.mark is not None
    assert (run.mark["state"], run.mark["actor"], run.note) == ("failed", "ana", "n")
    assert "stopped first" in reader.get(f"/runs/{scene.running}/").content.decode()


def test_several_are_marked_together(scene: Scene, reader: Client) -> None:
    tis = list(TaskInstance.objects.filter(run_id=scene.running).order_by("id"))
    query = "&".join(f"id={ti.pk}" for ti in tis[:2])
    page = Page(reader, f"/task-instances/mark/?{query}&state=skipped")
    assert "Mark 2 task instances" in page.text
    form = {"id": [ti.pk for ti in tis[:2]], "state": "skipped", "reason": "not needed"}
    assert reader.post("/task-instances/mark/", form).status_code == 302
    assert Audit.objects.filter(action="mark").count() == 1
    both = {"id": [scene.running, scene.healed], "state": "failed", "reason": "r"}
    assert reader.post("/runs/mark/", both).status_code == 302
    assert Run.objects.get(pk=scene.healed).state == "failed"
    for wrong in ("", "?id=x", "?" + "&".join(f"id={n}" for n in range(1, 600))):
        assert reader.get(f"/runs/mark/{wrong}").status_code == 400
    assert reader.get("/runs/mark/?id=987654").status_code == 404


def test_rows_are_ticked_and_cleared_together(scene: Scene, reader: Client) -> None:
    page = Page(reader, "/runs/")
    boxes = [e.get("value") for e in page.all("input") if e.get("type") == "checkbox"]
    assert {str(scene.healed), str(scene.running)} <= set(boxes)
    assert page.faults == []
    sheet = Page(reader, f"/runs/clear/?id={scene.healed}&id={scene.running}")
    assert sheet.faults == []
    assert "Clear 2 runs" in sheet.text
    batch = ClearBatch.objects.latest("created_at")
    form = {"id": [scene.healed, scene.running], "plan_id": batch.pk}
    refused = reader.post("/runs/clear/", {**form, "reason": " "})
    assert (refused.status_code, "Say why" in refused.content.decode()) == (400, True)
    done = reader.post("/runs/clear/", {**form, "reason": "late file"})
    assert done.headers["Location"] == f"/clear-batches/{batch.pk}/"
    told = Page(reader, f"/clear-batches/{batch.pk}/")
    assert "2 of 2 runs are done" in " ".join(told.text.split())
    assert told.faults == []
    assert Run.objects.get(pk=scene.healed).run_attempt == 2
    (undo,) = [link for link in told.links() if link.endswith("/undo/")]
    assert "as before" in Page(reader, undo).text
    assert (
        reader.post(undo, {"reason": "wrong run"}).headers["Location"] == f"/runs/{scene.healed}/"
    )
    assert Run.objects.get(pk=scene.healed).run_attempt == 1
    assert reader.get(undo).status_code == 409


def test_all_that_match_a_filter_are_cleared_as_one_plan(scene: Scene, reader: Client) -> None:
    del scene
    page = Page(reader, "/task-instances/?state=success")
    (href,) = [link for link in page.links() if link.startswith("/task-instances/clear/?all=")]
    sheet = Page(reader, href)
    number = TaskInstance.objects.filter(state="success", filter_code__isnull=True).count()
    assert f"Clear {number} task instances" in sheet.text
    past = Page(reader, f"{href}&only=only_failed")
    assert "Nothing is in it" in past.text
    assert reader.get("/task-instances/clear/?all=state%3Dremoved").status_code == 400
    assert reader.get("/task-instances/clear/?all=nope%3D1").status_code == 400


def test_several_are_frozen_each_by_a_freeze_of_its_own(scene: Scene, reader: Client) -> None:
    sheet = Page(reader, f"/runs/freeze/?id={scene.running}&id={scene.healed}")
    assert sheet.faults == []
    assert "has ended as success" in sheet.text
    form = {"id": [scene.running, scene.healed], "reason": "look", "mode": "drain"}
    assert reader.post("/runs/freeze/", form).status_code == 302
    assert Freeze.objects.get().scope_id == str(scene.running)


def test_a_cleared_run_leads_to_its_undo_until_that_is_done(scene: Scene, reader: Client) -> None:
    address = f"/runs/{scene.failed}/"
    assert "can be undone" not in Page(reader, address).text
    made = plan_batch(actor="ana", run_ids=[scene.failed])
    carry_out_batch(made.batch_id, actor="ana", reason="wrong source")
    page = Page(reader, address)
    assert not page.faults
    (undo,) = [link for link in page.links() if link.startswith("/clears/")]
    assert f"/clear-batches/{made.batch_id}/" in page.links()
    assert reader.post(undo, {"reason": "not that one"}).status_code == 302
    assert "can be undone" not in Page(reader, address).text
