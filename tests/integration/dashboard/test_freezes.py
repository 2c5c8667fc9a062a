"""Freezing and thawing by hand: the sheets, the buttons, and the banner on what a freeze touches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler_app.models import Audit, Freeze, TaskInstance
from scheduler_app.operations.freeze import freeze
from tests import factories

if TYPE_CHECKING:
    from django.test import Client


def test_a_run_is_frozen_and_thawed_from_its_page(reader: Client, transactional_db: None) -> None:
    del transactional_db
    run = factories.make_run()
    factories.make_task_instance(run=run, task_id="load", state="scheduled")
    page = f"/runs/{run.pk}/"
    assert f'href="{page}freeze/' in reader.get(page).content.decode()
    sheet = reader.get(f"{page}freeze/").content.decode()
    assert "Freeze 1 unfinished task<" in sheet
    assert "does not start before the thaw" in sheet
    refused = reader.post(f"{page}freeze/", {"mode": "drain", "reason": " "})
    assert refused.status_code == 400
    bad = reader.post(f"{page}freeze/", {"mode": "drain", "reason": "r", "until": "tea time"})
    assert (bad.status_code, "is not a time" in bad.content.decode()) == (400, True)
    done = reader.post(f"{page}freeze/", {"mode": "drain", "reason": "look first"})
    assert done.headers["Location"] == page
    shown = reader.get(page).content.decode()
    assert "is frozen</strong>" in shown
    assert "look first" in shown
    assert f'href="{page}thaw/' in shown
    assert f'href="{page}freeze/' not in shown
    fragment = reader.get(page, headers={"HX-Request": "true"}).content.decode()
    assert "freeze-banner" in fragment, "a live refresh keeps the banner"
    reader.post(f"{page}thaw/", {"reason": "looked"})
    assert "freeze-banner" not in reader.get(page).content.decode()
    assert [one.actor for one in Audit.objects.filter(action__in=["freeze", "thaw"])] == ["ana"] * 2


def test_the_banner_stands_on_what_a_freeze_touches_and_nowhere_else(
    reader: Client, transactional_db: None
) -> None:
    del transactional_db
    run, other = factories.make_run(), factories.make_run(flow=factories.make_flow())
    ti = factories.make_task_instance(run=run, task_id="load", state="scheduled")
    freeze(scope_kind="task_instance", scope_id=ti.pk, actor="ada", reason="only this")
    for page in (
        "/",
        "/runs/",
        f"/runs/{run.pk}/",
        f"/task-instances/{ti.pk}/",
        f"/flows/{run.flow_id}/",
    ):
        assert "only this" in reader.get(page).content.decode(), page
    for page in (f"/runs/{other.pk}/", f"/flows/{other.flow_id}/"):
        assert "freeze-banner" not in reader.get(page).content.decode(), page
    freeze(scope_kind="all", actor="ada", reason="all of it")
    for page in ("/pools/", f"/runs/{other.pk}/"):
        assert "all of it" in reader.get(page).content.decode(), page


def test_everything_is_frozen_only_when_its_name_is_typed(
    reader: Client, transactional_db: None
) -> None:
    del transactional_db
    factories.make_task_instance(state="scheduled")
    assert reader.post("/freeze/", {"mode": "drain", "reason": "r"}).status_code == 400
    assert not Freeze.objects.exists()
    reader.post("/freeze/", {"mode": "drain", "reason": "r", "typed": "everything"})
    assert TaskInstance.objects.filter(held_by__isnull=False).count() == 1
