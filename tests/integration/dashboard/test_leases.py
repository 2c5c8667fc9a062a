"""The page of leases and fail-overs says first what an on-call reader needs."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from django.utils import timezone

from scheduler_app.models import Attempt, Lease, LeaseEvent, TakeOver
from tests.integration.dashboard.pages import Page

if TYPE_CHECKING:
    from django.test import Client

    from tests.integration.dashboard.scene import Scene


def _text(page: Page) -> str:
    return " ".join("".join(page.root.itertext()).split())


def test_the_first_line_says_who_leads_and_that_nothing_flaps(scene: Scene, reader: Client) -> None:
    page = Page(reader, "/leases/")
    assert "16 of 16 shards are led, by 1 scheduler." in page.text
    assert "There was no fail-over yet. Nothing flaps." in page.text
    assert len(page.rows()) == 16


def test_a_vacant_shard_is_named_in_words_and_drawn_as_vacant(scene: Scene, reader: Client) -> None:
    Lease.objects.filter(shard=7).update(expires_at=timezone.now() - timedelta(seconds=9))
    page = Page(reader, "/leases/")
    assert "15 of 16 shards are led" in page.text
    assert "Nobody decides for shard 7." in page.text
    (vacant,) = [e for e in page.rows() if "tile-vacant" in e.get("class", "")]
    assert "ran out" in " ".join(vacant.itertext())


def test_flapping_is_named_with_its_shards(scene: Scene, reader: Client) -> None:
    now = timezone.now()
    for number in range(3):
        LeaseEvent.objects.create(
            shard=4, kind="acquired", token=10 + number, at=now - timedelta(minutes=number)
        )
    page = Page(reader, "/leases/")
    assert "Flapping: shard 4 changed leaders again and again." in page.text
    (tile,) = [e for e in page.rows() if "tile-flapping" in e.get("class", "")]
    assert "4 leaders in 10 min" in " ".join(" ".join(tile.itertext()).split())


def test_a_fail_over_is_told_with_its_gap_and_its_report(scene: Scene, reader: Client) -> None:
    running = Attempt.objects.get(run_id=scene.running, is_live=True)
    assert running.shard is not None
    take = TakeOver.objects.get(shard=running.shard)
    TakeOver.objects.filter(pk=take.pk).update(
        cause="expired",
        old_expires_at=take.acquired_at - timedelta(seconds=1.5),  # type: ignore[operator] # it was acquired
    )
    assert "The last fail-over was" in Page(reader, "/leases/").text
    listed = _text(Page(reader, "/leases/?tab=take-overs&cause=expired"))
    assert "1.5 s" in listed
    assert "1 adopted" in listed
    page = Page(reader, f"/leases/take-overs/{take.pk}/")
    text = _text(page)
    assert "Nobody led for 1.5 s." in text
    assert "Its worker was asked and answered at" in text
    assert "1 of 1 workers answered" in text
    assert f"/attempts/{running.id}/" in page.links()
    for link in page.links():
        if link.startswith(("/executor-events/?", "/attempts/?", "/leases/?")):
            assert Page(reader, link).response.status_code == 200, link


def test_an_execution_near_a_change_of_leader_says_so_on_every_page_of_it(
    scene: Scene, reader: Client
) -> None:
    running = Attempt.objects.get(run_id=scene.running, is_live=True)
    assert running.shard is not None
    take = TakeOver.objects.get(shard=running.shard)
    for address in (
        f"/attempts/{running.id}/",
        f"/task-instances/{running.ti_id}/",
        f"/runs/{scene.running}/",
    ):
        page = Page(reader, address)
        assert "Near a change of leader" in page.text, address
        assert "while it was live" in page.text, address
        assert f"/leases/take-overs/{take.pk}/" in page.links(), address
    assert "Near a change of leader" not in Page(reader, f"/attempts/{scene.ghost}/").text


def test_an_unknown_take_over_and_a_wrong_filter_say_what_is_wrong(
    scene: Scene, reader: Client
) -> None:
    assert Page(reader, "/leases/take-overs/99999/").response.status_code == 404
    wrong = Page(reader, "/leases/?tab=take-overs&cause=magic")
    assert wrong.response.status_code == 400
    assert "is not one of first, expired, released, taken_back" in _text(wrong)
