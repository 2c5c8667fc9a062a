"""The live feed of a stack that has no Valkey: the database carries the hints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import sync_to_async

from scheduler_app.hints.notices import Notices
from scheduler_app.processes import database
from tests.integration.live.conftest import Socket

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def notices(settings: Any) -> Iterator[Notices]:
    """What a process of such a stack sends hints with."""
    settings.CACHE_URL = ""
    made = Notices("")
    yield made
    made.close()


async def test_a_page_hears_at_once_that_what_it_follows_changed(
    session: str, notices: Notices
) -> None:
    page = Socket(session)
    await page.open()
    before = await page.follow("run:12", "home")
    await sync_to_async(notices.changed)(["run:12", "run:13"])
    heard = await page.hear_until("t")
    assert heard["t"] == "run:12"
    assert heard["rev"] > before["run:12"]
    await page.close()


async def test_what_was_missed_while_the_connection_was_broken_counts_as_changed(
    session: str,
) -> None:
    page = Socket(session)
    await page.open()
    before = await page.follow("run:1")

    def break_connections() -> None:
        with database.connect("worker") as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'daylight hints listener'"
            )

    await sync_to_async(break_connections)()
    heard = [await page.hear() for _ in range(3)]
    assert {"mode": "polling"} in heard
    assert {"mode": "live"} in heard
    (changed,) = [message for message in heard if "t" in message]
    assert changed["rev"] > before["run:1"]
    await page.close()
