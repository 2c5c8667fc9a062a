"""The log: its end on the page, its bytes by offset, and never as HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dashboard import logs
from scheduler_app.models import Attempt
from scheduler_app.transitions.attempt_log import LogChunk, append_log_chunks
from tests.integration.dashboard.pages import Page
from tests.integration.dashboard.scene import printing

if TYPE_CHECKING:
    from django.test import Client

    from tests.integration.dashboard.scene import Scene
    from tests.world import World


def test_the_page_shows_the_end_of_the_log_without_terminal_codes(
    scene: Scene, reader: Client
) -> None:
    attempt = printing(scene)
    page = Page(reader, f"/task-instances/{attempt.ti_id}/?tab=log")
    (log,) = page.all("pre")
    assert "".join(log.itertext()) == "page 1 of 10\nrows 4096\n"
    assert log.get("data-coloured") == "1"
    assert log.get("data-live") == "1"


def test_the_bytes_after_an_offset_are_what_was_printed_since(
    scene: Scene, reader: Client, world: World
) -> None:
    attempt = printing(scene)
    address = f"/attempts/{attempt.id}/log/"
    first = reader.get(f"{address}?from=0")
    assert first.content == b"page 1 of 10\n\x1b[32mrows 4096\x1b[0m\n"
    assert first["Daylight-Log-Live"] == "1"
    offset = int(first["Daylight-Log-Next"])
    assert offset == len(first.content)
    assert reader.get(f"{address}?from={offset}").content == b""
    chunk = LogChunk(attempt_id=attempt.id, start_offset=offset, data=b"page 2\xff\n")
    append_log_chunks(world.connection, chunks=[chunk])
    assert reader.get(f"{address}?from={offset}").content == b"page 2\xff\n"


def test_the_whole_log_is_a_download(scene: Scene, reader: Client) -> None:
    attempt = printing(scene)
    response = reader.get(f"/attempts/{attempt.id}/log/")
    assert response.content.startswith(b"page 1 of 10")
    assert response["Content-Disposition"] == f'attachment; filename="{attempt.id}.log"'


def test_a_log_is_never_read_as_html(scene: Scene, reader: Client, world: World) -> None:
    attempt = Attempt.objects.get(ti_id=scene.retried, filter_code__isnull=True)
    evil = b"<script>alert(1)</script>\n"
    append_log_chunks(
        world.connection, chunks=[LogChunk(attempt_id=attempt.id, start_offset=0, data=evil)]
    )
    response = reader.get(f"/attempts/{attempt.id}/log/?from=0")
    assert response["Content-Type"].startswith("text/plain")
    assert response["X-Content-Type-Options"] == "nosniff"
    assert "<script>alert" not in Page(reader, f"/attempts/{attempt.id}/").text


def test_a_long_log_begins_at_a_whole_line(
    scene: Scene, reader: Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "TAIL_BYTES", 40)
    attempt = Attempt.objects.get(ti_id=scene.retried, filter_code__isnull=True)
    lines = b"".join(b"line %03d\n" % number for number in range(100))
    append_log_chunks(
        world.connection, chunks=[LogChunk(attempt_id=attempt.id, start_offset=0, data=lines)]
    )
    page = Page(reader, f"/attempts/{attempt.id}/")
    (log,) = (e for e in page.all("pre") if e.get("data-log"))
    assert "".join(log.itertext()) == "line 096\nline 097\nline 098\nline 099\n"
    assert log.get("data-start") == str(96 * 9)


def test_an_attempt_that_printed_nothing_says_so(scene: Scene, reader: Client) -> None:
    attempt = Attempt.objects.filter(run_id=scene.failed, outcome="success").first()
    assert attempt is not None
    assert "Nothing was printed" in Page(reader, f"/attempts/{attempt.id}/").text


def test_the_switcher_offers_filtered_attempts_only_under_the_lens(
    scene: Scene, reader: Client
) -> None:
    address = f"/task-instances/{scene.retried}/?tab=log"
    assert len(Page(reader, address).rows()) == 1
    both = Page(reader, f"{address}&filtered=1")
    assert len(both.rows()) == 2
    (aside,) = both.filtered_rows()
    (link,) = aside.iter("a")
    chosen = Page(reader, f"/task-instances/{scene.retried}/{link.get('href')}")
    assert "TimeoutError" in chosen.text


@pytest.mark.parametrize("offset", ["-1", "x", "9" * 40])
def test_an_offset_that_is_none_is_refused(scene: Scene, reader: Client, offset: str) -> None:
    address = f"/attempts/{printing(scene).id}/log/?from={offset}"
    assert reader.get(address).status_code == 400


def test_another_ones_attempt_id_is_not_guessed(reader: Client) -> None:
    assert reader.get("/task-instances/1/?tab=log&attempt=nonsense").status_code == 404
