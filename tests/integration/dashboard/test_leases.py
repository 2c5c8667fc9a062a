"""The page of leases and fail-overs says first what an on-call reader needs."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from django.utils import timezone

from scheduler_app.models import Attempt, Job, Lease, LeaseEvent, TakeOver
from scheduler_app.queries import shown
from tests import factories
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


def test_who_led_when_is_a_chart_with_a_table_that_says_the_same(
    scene: Scene, reader: Client
) -> None:
    page = Page(reader, "/leases/?tab=terms")
    assert page.response.status_code == 200
    assert not page.faults
    assert "Tokens only grew" in page.text
    bands = [e for e in page.all("rect") if "band" in e.get("class", "").split()]
    assert len(bands) >= 16
    (table,) = (e for e in page.all("table") if "Terms, newest first" in "".join(e.itertext()))
    assert (
        len(list(table.iter("tbody"))) == LeaseEvent.objects.filter(kind="acquired").count() == 32
    )
    one = Page(reader, "/leases/?tab=terms&shard=3&since=24h")
    assert "Who led when: shard 3" in _text(one)
    wrong = Page(reader, "/leases/?tab=terms&since=9y")
    assert wrong.response.status_code == 400
    assert "is not one of 15m, 1h" in _text(wrong)


def test_a_shard_is_released_from_its_tile_only_by_name_token_and_reason(
    scene: Scene, reader: Client
) -> None:
    lease = Lease.objects.get(shard=3)
    assert "/leases/3/release/" in Page(reader, "/leases/").links()
    sheet = Page(reader, "/leases/3/release/")
    assert f"gets token {lease.token + 1}" in _text(sheet)
    filled = {"reason": "it decides nothing", "token": str(lease.token), "typed": "shard 3"}
    for wrong in ({"typed": "3"}, {"token": "x"}, {"reason": " "}):
        assert reader.post("/leases/3/release/", {**filled, **wrong}).status_code == 400
    stale = reader.post("/leases/3/release/", {**filled, "token": "99"})
    assert stale.status_code == 409
    assert Lease.objects.get(shard=3).holder == lease.holder
    assert reader.post("/leases/3/release/", filled).status_code == 302
    assert Lease.objects.get(shard=3).holder is None
    assert "Nobody decides for shard 3" in Page(reader, "/leases/").text
    assert "/leases/3/release/" not in Page(reader, "/leases/").links()


def test_a_frozen_shard_says_so_on_its_tile_and_is_thawed_there(
    scene: Scene, reader: Client
) -> None:
    assert reader.post("/leases/5/freeze/", {"reason": "r", "mode": "drain"}).status_code == 302
    page = Page(reader, "/leases/")
    (tile,) = [e for e in page.rows() if e.get("id") == "lease-5"]
    assert "nothing in it starts" in " ".join(tile.itertext())
    assert "/leases/5/thaw/" in page.links()


def test_a_clock_that_is_off_is_told_on_the_map(scene: Scene, reader: Client) -> None:
    Job.objects.update(heartbeat_at=shown.CLOCK, clock_ahead_s=-301.0, clock_within_s=0.01)
    text = _text(Page(reader, "/leases/"))
    assert "clock off" in text
    assert "-5 m 1 s" in text


def test_a_fail_over_counts_the_ghosts_that_nobody_can_place(scene: Scene, reader: Client) -> None:
    take = TakeOver.objects.get(shard=3)
    before = _text(Page(reader, f"/leases/take-overs/{take.pk}/"))
    factories.make_ghost(shard=None, first_seen_at=timezone.now(), last_seen_at=timezone.now())
    factories.make_ghost(
        shard=3, subject="other", first_seen_at=timezone.now(), last_seen_at=timezone.now()
    )
    page = Page(reader, f"/leases/take-overs/{take.pk}/")
    assert "0 ghosts of no known shard" in before
    assert "1 ghost of no known shard first seen meanwhile" in _text(page)
    assert "1 ghost first seen in the shard in this term" in _text(page)
    for link in page.links():
        if link.startswith("/ghosts/?"):
            assert Page(reader, link).counts().total == 1, link


def test_a_scheduler_is_drained_and_undrained_from_the_list_of_jobs(
    scene: Scene, reader: Client
) -> None:
    job = factories.make_job(kind="scheduler", hostname="sched-2", pid=77)
    Job.objects.filter(pk=job.pk).update(heartbeat_at=shown.CLOCK)
    assert f"/jobs/{job.pk}/drain/" in " ".join(Page(reader, "/jobs/").links())
    assert "Drain scheduler sched-2:77" in _text(Page(reader, f"/jobs/{job.pk}/drain/"))
    posted = reader.post(f"/jobs/{job.pk}/drain/", {"reason": "patch the host"})
    assert posted.status_code == 302
    text = _text(Page(reader, "/jobs/"))
    assert "drained" in text
    assert "by ana: patch the host" in text
    assert reader.post(f"/jobs/{job.pk}/undrain/", {"reason": "done"}).status_code == 302
    assert "patch the host" not in _text(Page(reader, "/jobs/"))
