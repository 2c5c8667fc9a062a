"""A live refresh: the same address, only the region, and nothing when nothing changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler_app.models import Run
from tests.integration.dashboard.pages import Page

if TYPE_CHECKING:
    from django.test import Client

    from tests.integration.dashboard.scene import Scene
    from tests.world import World

REFRESH = {"HX-Request": "true"}


def test_a_refresh_brings_the_region_alone(scene: Scene, reader: Client) -> None:
    whole = Page(reader, f"/runs/{scene.healed}/")
    (region,) = (e for e in whole.all("div") if e.get("id") == "page")
    assert region.get("data-topics") == f"run:{scene.healed}"
    assert region.get("hx-get") == f"/runs/{scene.healed}/"
    part = reader.get(f"/runs/{scene.healed}/", headers=REFRESH)
    text = part.content.decode()
    assert "<html" not in text
    assert 'class="rail"' not in text
    assert "manual__healed" in text
    assert "HX-Request" in part["Vary"]


def test_the_revision_grows_and_is_on_page_and_fragment(scene: Scene, reader: Client) -> None:
    whole = Page(reader, "/runs/")
    (region,) = (e for e in whole.all("div") if e.get("id") == "page")
    part = reader.get("/runs/", headers=REFRESH)
    assert int(str(region.get("data-rev"))) < int(part["Daylight-Rev"])
    assert int(Run.objects.get(pk=scene.healed).created_at.timestamp() * 1e6) < int(
        part["Daylight-Rev"]
    )


def test_an_unchanged_page_answers_304_and_a_changed_one_does_not(
    scene: Scene, reader: Client, world: World
) -> None:
    address = f"/runs/{scene.running}/?tab=attempts"
    first = reader.get(address, headers=REFRESH)
    tag = {**REFRESH, "If-None-Match": first["ETag"]}
    again = reader.get(address, headers=tag)
    assert again.status_code == 304
    assert again.content == b""
    assert int(again["Daylight-Rev"]) > int(first["Daylight-Rev"])
    world.tick(scene.running)
    world.serve()
    Run.objects.filter(pk=scene.running).update(note="seen")
    assert reader.get(address, headers=tag).status_code == 200


def test_forms_do_not_make_a_page_look_changed(scene: Scene, reader: Client) -> None:
    del scene
    first = reader.get("/flows/hourly_sync/", headers=REFRESH)
    tag = {**REFRESH, "If-None-Match": first["ETag"]}
    assert b"csrfmiddlewaretoken" in first.content
    assert reader.get("/flows/hourly_sync/", headers=tag).status_code == 304


def test_another_lens_is_another_picture(scene: Scene, reader: Client) -> None:
    clean = reader.get(f"/runs/{scene.healed}/?tab=events", headers=REFRESH)
    both = reader.get(f"/runs/{scene.healed}/?tab=events&filtered=1", headers=REFRESH)
    assert clean["ETag"] != both["ETag"]
