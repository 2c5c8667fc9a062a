"""The explorer of what was set aside, ghosts, and the audits that look for them."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

from dashboard.addresses import in_address
from scheduler_app.models import Ghost, Record, TakeOver
from scheduler_app.rules import ghosts
from scheduler_app.transitions.ghost import note_audit, see
from scheduler_app.transitions.ids import uuid7
from tests import factories
from tests.integration.dashboard.pages import Page

if TYPE_CHECKING:
    from django.test import Client

    from tests.integration.dashboard.scene import Scene
    from tests.world import World


def text_of(page: Page) -> str:
    return " ".join("".join(page.root.itertext()).split())


def haunt(world: World, **changed: Any) -> Ghost:
    """An execution that the database knows nothing of."""
    execution = ghosts.Execution(
        attempt_id=uuid7(),
        worker_job_id=world.worker,
        hostname="host-9",
        pid=321,
        reported_at=None,  # type: ignore[arg-type] # not looked at
    )
    sighting = ghosts.of_execution(execution, None)
    assert sighting is not None
    (seen,) = see(
        world.connection,
        sightings=[sighting],
        seen_by="beat",
        policy=changed.get("policy", "human"),
    )
    return Ghost.objects.get(pk=seen.id)


def test_the_explorer_lists_what_is_filtered_of_every_kind(scene: Scene, reader: Client) -> None:
    del scene
    page = Page(reader, "/filtered/")
    counts = page.counts()
    assert counts.filtered == Record.objects.filter(filter_code__isnull=False).count() > 4
    assert counts.total == Record.objects.count()
    assert len(page.rows()) == len(page.filtered_rows()) == counts.filtered
    kinds = {str(row.get("id")).split(":")[0] for row in page.rows()}
    assert kinds >= {"attempt", "executor_event", "job"}


@pytest.mark.parametrize(
    ("asked", "arrow", "other"),
    [
        ("", "↓", "order=at"),
        ("?order=-at", "↓", "order=at"),
        ("?order=at", "↑", "order=-at"),
        ("?filtered=1&order=at", "↑", "order=-at"),
        ("?filtered=1", "↓", "order=at"),
    ],
)
@pytest.mark.usefixtures("scene")
def test_the_heading_of_the_time_turns_the_order_round(
    reader: Client, asked: str, arrow: str, other: str
) -> None:
    text = reader.get(f"/filtered/{asked}").content.decode()
    ((href, shown),) = re.findall(r'<a class="sort" href="([^"]*)">Set aside ([↑↓])</a>', text)
    assert shown == arrow
    assert html.unescape(href).removeprefix("?").split("&")[-1] == other
    assert reader.get(f"/filtered/{html.unescape(href)}").status_code == 200


def test_in_context_the_current_records_are_listed_too(scene: Scene, reader: Client) -> None:
    del scene
    page = Page(reader, "/filtered/?filtered=1&limit=500")
    counts = page.counts()
    assert len(page.rows()) == counts.total
    assert len(page.filtered_rows()) == counts.filtered


def test_a_filtered_row_names_reason_values_rule_time_lease_and_winner(
    scene: Scene, reader: Client
) -> None:
    page = Page(reader, "/filtered/?why=superseded_by_retry")
    (row,) = page.rows()
    text = " ".join(" ".join(row.itertext()).split())
    assert "SUPERSEDED" in text
    assert "Try 1 ended as failed; try 2 replaced it" in text
    assert "try 1 ≠ 2" in text
    assert "by rule dispatch" in text
    assert "shard 3" in text
    assert "token 1" in text
    (winner,) = [a for a in row.iter("a") if "replaced by" in "".join(a.itertext())]
    assert Page(reader, str(winner.get("href"))).response.status_code == 200
    late = Page(reader, "/filtered/?noun=executor_event&why=duplicate_delivery").rows()
    assert len(late) == 1
    assert "delivery" in " ".join(late[0].itertext())
    del scene


def test_every_filtered_record_says_by_which_rule_and_most_under_which_lease(
    scene: Scene, reader: Client
) -> None:
    del scene
    for row in Page(reader, "/filtered/?noun=attempt&noun=executor_event").rows():
        text = " ".join(" ".join(row.itertext()).split())
        assert "by rule " in text, text
        if "No attempt with id" not in text:  # of no shard
            assert "under the lease of shard 3" in text, text


def test_the_denominator_is_said_even_when_nothing_is_filtered(reader: Client) -> None:
    text = text_of(Page(reader, "/filtered/"))
    assert "0 executor events judged" in text
    assert "No filtered records." in text
    assert "No scheduler has compared database, broker and workers" in text


def test_the_newest_comparison_is_said_with_what_it_compared(
    scene: Scene, reader: Client, world: World
) -> None:
    del scene
    for compared in (5, 31):
        note_audit(
            world.connection,
            holder=world.leases.holder,
            compared=compared,
            numbers={"workers": 1},
            open_ghosts={},
            duration_ms=3,
            is_complete=True,
        )
    for address in ("/filtered/", "/ghosts/", "/ghosts/audits/"):
        assert "31 records, executions and messages against each other" in text_of(
            Page(reader, address)
        ), address
    audits = Page(reader, "/ghosts/audits/")
    (row,) = audits.rows()
    assert "36" in " ".join(row.itertext())


def test_presets_are_addresses_that_answer(scene: Scene, reader: Client, world: World) -> None:
    del scene
    haunt(world)
    page = Page(reader, "/filtered/")
    text = text_of(page)
    assert "1 ghost haunts now: host-9:321 executes attempt" in text
    presets = [
        str(a.get("href"))
        for nav in page.all("nav")
        if nav.get("aria-label") == "Views of what was set aside"
        for a in nav.iter("a")
    ]
    assert len(presets) == 6, "a shard of the scene was handed over: since then is one of them"
    for href in presets:
        assert Page(reader, href).response.status_code == 200


def test_a_planned_change_of_leader_is_no_fail_over(scene: Scene, reader: Client) -> None:
    del scene
    first = TakeOver.objects.earliest("id")
    now = timezone.now()
    for number, cause in ((2, "released"), (3, "taken_back")):
        TakeOver.objects.create(
            shard=3, holder=first.holder, new_token=number, cause=cause, started_at=now
        )
    page = Page(reader, "/filtered/")
    (since,) = [a for a in page.links() if "at_gte=" in a]
    assert "Since the last planned change" in text_of(page)
    assert [e for e in page.all("span") if "tab-off" in e.get("class", "")], "no fail-over yet"
    assert Page(reader, since).response.status_code == 200
    for number, cause, hours in ((4, "expired", 1), (5, "forced", 2)):
        at = now + timedelta(hours=hours)
        TakeOver.objects.create(
            shard=3,
            holder=first.holder,
            new_token=number,
            cause=cause,
            started_at=at,
            acquired_at=at,
        )
        page = Page(reader, "/filtered/")
        newest = max(a for a in page.links() if "at_gte=" in a)
        assert in_address(at) in newest
        assert Page(reader, newest).counts().total == 0, "nothing was set aside since"


def test_a_late_success_of_a_lost_attempt_may_have_written_twice(
    scene: Scene, reader: Client
) -> None:
    del scene
    page = Page(reader, "/filtered/?possible=double_write")
    assert page.counts().filtered == len(page.rows())
    kept = Page(reader, "/filtered/").counts()
    assert page.counts().filtered < kept.filtered


@pytest.mark.parametrize(
    "query", ["hostname=host-1", "noun=attempt", "flow_id=nightly_sales", "shard=3", "kind=task"]
)
def test_each_filter_keeps_both_halves(scene: Scene, reader: Client, query: str) -> None:
    del scene
    counts = Page(reader, f"/filtered/?{query}").counts()
    everything = Page(reader, "/filtered/").counts()
    assert 0 < counts.total < everything.total
    for lens in ("1", "only"):
        assert Page(reader, f"/filtered/?{query}&filtered={lens}").counts() == counts


def test_the_explorer_pages_by_time_without_losing_or_doubling_a_row(
    scene: Scene, reader: Client
) -> None:
    del scene
    address, seen = "/filtered/?limit=2", []
    while address:
        page = Page(reader, address)
        seen += [row.get("id") for row in page.rows()]
        following = [e for e in page.all("a") if e.get("rel") == "next"]
        address = f"/filtered/{following[0].get('href')}" if following else ""
    assert len(seen) == len(set(seen)) == Page(reader, "/filtered/").counts().filtered


def test_a_ghost_is_stopped_with_a_reason_and_the_act_is_audited(
    scene: Scene, reader: Client, world: World
) -> None:
    del scene
    ghost = haunt(world)
    address = f"/ghosts/{ghost.id}/"
    page = Page(reader, address)
    assert "Stop host-9:321" in text_of(page)
    assert "What to do:" in text_of(page)
    refused = reader.post(f"{address}stop/", {"reason": " "})
    assert refused.status_code == 400
    assert "say why the process is stopped" in refused.content.decode()
    assert reader.post(f"{address}stop/", {"reason": "it writes twice"}).status_code == 302
    ghost.refresh_from_db()
    assert ghost.stop_requested_by == "ana"
    assert "asked for its end" in text_of(Page(reader, address))
    assert "Stop host-9:321" not in text_of(Page(reader, address))


def test_a_ghost_that_its_worker_stops_anyway_has_no_button(
    scene: Scene, reader: Client, world: World
) -> None:
    del scene
    ghost = haunt(world, policy="stop")
    assert "Stop host-9:321" not in text_of(Page(reader, f"/ghosts/{ghost.id}/"))


def test_ghosts_that_are_over_are_one_switch_away(
    scene: Scene, reader: Client, world: World
) -> None:
    del scene
    ghost = haunt(world)
    Ghost.objects.filter(pk=ghost.pk).update(
        ended_at=ghost.last_seen_at, end_reason="its process ended"
    )
    clean = Page(reader, "/ghosts/")
    assert clean.rows() == []
    assert clean.counts().by_reason == {"ghost_over": 1}
    assert "Nothing haunts now." in text_of(clean)
    (row,) = Page(reader, "/ghosts/?filtered=1").filtered_rows()
    assert "its process ended" in " ".join(row.itertext())


def test_what_was_looked_at_is_marked_from_the_list_and_can_be_left_out(
    scene: Scene, reader: Client, world: World
) -> None:
    ghost = haunt(world)
    page = Page(reader, "/filtered/")
    picks = [e.get("value") for e in page.all("input") if e.get("name") == "key"]
    assert len(picks) == len(page.filtered_rows())
    keys = [f"attempt:{scene.ghost}", f"ghost:{ghost.pk}"]
    query = "&".join(f"key={key}" for key in keys)
    sheet = Page(reader, f"/filtered/reviewed/?{query}")
    assert "Mark 2 records as reviewed" in text_of(sheet)
    assert not sheet.faults
    kept = [e.get("value") for e in sheet.all("input") if e.get("name") == "key"]
    assert kept == keys
    assert reader.post("/filtered/reviewed/", {"key": keys, "reason": " "}).status_code == 400
    posted = reader.post("/filtered/reviewed/", {"key": keys, "reason": "its row was removed"})
    assert posted.status_code == 302
    for address in (f"/ghosts/{ghost.pk}/", "/ghosts/", "/filtered/?reviewed=yes"):
        assert "Reviewed by ana" in text_of(Page(reader, address)), address
        assert "its row was removed" in text_of(Page(reader, address)), address
    before, after = Page(reader, "/filtered/"), Page(reader, "/filtered/?reviewed=no")
    assert after.counts().filtered == before.counts().filtered - 1
    for lens in ("1", "only"):
        other = Page(reader, f"/filtered/?reviewed=no&filtered={lens}")
        assert other.counts() == after.counts()
    assert Page(reader, "/filtered/reviewed/").response.status_code == 400
    assert Page(reader, "/filtered/reviewed/?key=ghost:999").response.status_code == 404
    undone = reader.post("/filtered/unreviewed/", {"key": keys, "reason": "not yet"})
    assert undone.status_code == 302
    assert Page(reader, "/filtered/?reviewed=yes").counts().filtered == 0


def test_a_ghost_near_a_fail_over_says_so_with_and_without_a_shard(
    scene: Scene, reader: Client
) -> None:
    del scene
    take = TakeOver.objects.get(shard=3)
    at = take.acquired_at
    assert at is not None
    placed = factories.make_ghost(shard=3, first_seen_at=at, last_seen_at=at)
    lost = factories.make_ghost(
        shard=None, subject="x", attempt_id=None, first_seen_at=at, last_seen_at=at
    )
    assert "Near a change of leader" in Page(reader, f"/ghosts/{placed.pk}/").text
    assert "Near a change of leader" not in Page(reader, f"/ghosts/{lost.pk}/").text
    TakeOver.objects.filter(pk=take.pk).update(cause="expired")
    page = Page(reader, f"/ghosts/{lost.pk}/")
    assert "Near a change of leader" in page.text
    assert f"/leases/take-overs/{take.pk}/" in page.links()
