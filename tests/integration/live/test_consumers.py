"""The socket of an open page: who may open it, what it takes, what it says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis
from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session

from scheduler_app.live import consumers, listener
from scheduler_app.live.consumers import LiveConsumer
from tests.integration.live.conftest import Socket, publish


async def test_a_page_hears_that_what_it_follows_changed(session: str) -> None:
    page = Socket(session)
    assert await page.open() == "websocket.accept"
    before = await page.follow("run:12", "home")
    assert set(before) == {"run:12", "home"}
    publish("run:12", "run:13", "runs")
    heard = await page.hear_until("t")
    assert (heard["t"], heard["k"]) == ("run:12", [])
    assert heard["rev"] > before["run:12"]
    after = await page.follow("run:12", "home")
    assert after == {"run:12": heard["rev"], "home": before["home"]}
    await page.close()


async def test_every_page_of_a_process_hears_through_one_listener(session: str) -> None:
    pages = [Socket(session) for _ in range(3)]
    for page in pages:
        await page.open()
        await page.follow("runs")
    assert listener.listener() is listener.listener()
    publish("runs")
    revisions = [(await page.hear_until("t"))["rev"] for page in pages]
    assert len(set(revisions)) == 1
    for page in pages:
        await page.close()
    assert LiveConsumer.open_sockets == 0


async def test_changes_of_one_short_while_share_a_revision(session: str) -> None:
    page = Socket(session)
    await page.open()
    await page.follow("run:1", "run:2")
    publish("run:1")
    publish("run:2")
    publish("run:1")
    heard = [await page.hear_until("t") for _ in range(2)]
    assert {message["t"] for message in heard} == {"run:1", "run:2"}
    assert len({message["rev"] for message in heard}) == 1
    assert await page.end.receive_nothing(0.4)
    await page.close()


async def test_a_new_subscription_replaces_the_old_one(session: str) -> None:
    page = Socket(session)
    await page.open()
    await page.follow("run:1")
    await page.follow("run:2")
    publish("run:1", "run:2")
    assert (await page.hear_until("t"))["t"] == "run:2"
    assert await page.end.receive_nothing(0.4)
    await page.close()


async def test_a_hint_that_nobody_understands_is_passed_over(session: str) -> None:
    page = Socket(session)
    await page.open()
    await page.follow("runs")
    client = redis.Redis.from_url(django_settings.CACHE_URL)
    for text in ("", "{", "[]", '{"topics": 5}', '{"topics": [1, null]}', b"\xff"):
        client.publish("daylight:changed", text)
    client.close()
    publish("runs")
    assert (await page.hear_until("t"))["t"] == "runs"
    await page.close()


async def test_the_heartbeat_tells_revisions_again(
    session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(consumers, "POLLING_HEARTBEAT_S", 0.05)
    page = Socket(session)
    await page.open()
    before = await page.follow("runs")
    beats = [await page.hear_until("hb") for _ in range(2)]
    assert beats == [{"hb": before, "mode": "live"}] * 2
    await page.close()


async def test_without_valkey_the_socket_stays_and_says_so(
    session: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = settings.CACHE_URL
    settings.CACHE_URL = "redis://127.0.0.1:1/0"
    monkeypatch.setattr(consumers, "POLLING_HEARTBEAT_S", 0.05)
    monkeypatch.setattr(listener, "RETRY_S", 0.05)
    page = Socket(session)
    await page.open()
    await page.say({"sub": ["runs"]})
    first, second = [await page.hear_until("hb") for _ in range(2)]
    assert first["mode"] == second["mode"] == "polling"
    assert second["hb"]["runs"] > first["hb"]["runs"], "each one makes the page ask again"
    listener.listener()._url = address
    while (await page.hear_until("mode"))["mode"] != "live":
        pass
    await page.close()


async def test_what_was_missed_while_signals_were_away_counts_as_changed(session: str) -> None:
    page = Socket(session)
    await page.open()
    before = await page.follow("run:1")

    def break_connections() -> None:
        client = redis.Redis.from_url(django_settings.CACHE_URL)
        client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        client.close()

    await sync_to_async(break_connections)()
    heard = [await page.hear() for _ in range(3)]
    assert {"mode": "polling"} in heard
    assert {"mode": "live"} in heard
    (changed,) = [message for message in heard if "t" in message]
    assert changed["rev"] > before["run:1"]
    await page.close()


@pytest.mark.parametrize(
    "message",
    [
        "{",
        "[]",
        {"sub": "run:1"},
        {"sub": ["nothing"]},
        {"sub": ["run:x"]},
        {"sub": ["run:" + "9" * 30]},
        {"sub": [{"run": 1}]},
        {"sub": ["log:5"]},
        {"sub": ["flow:a b"]},
        {"sub": ["x" * 1000]},
        {"sub": [f"run:{n}" for n in range(101)]},
        {"unsub": []},
        "[" * 5000,
    ],
    ids=lambda message: str(message)[:30],
)
async def test_a_bad_message_is_told_and_changes_nothing(session: str, message: Any) -> None:
    page = Socket(session)
    await page.open()
    await page.follow("home")
    await page.say(message)
    await page.hear_until("error")
    publish("home")
    assert (await page.hear_until("t"))["t"] == "home"
    await page.close()


async def test_a_message_that_is_too_long_ends_the_socket(session: str) -> None:
    page = Socket(session)
    await page.open()
    await page.say("x" * 20_000)
    await page.hear_until("error")
    assert await page.hear() == 1009
    await page.close()


async def test_too_many_messages_end_the_socket(session: str) -> None:
    page = Socket(session)
    await page.open()
    for _ in range(21):
        await page.say({"sub": []})
    heard = [await page.hear()]
    while isinstance(heard[-1], dict):
        heard.append(await page.hear())
    assert heard[-1] == 1008
    assert "error" in heard[-2]
    assert sum("hb" in message for message in heard[:-1]) == 20
    await page.close()


async def test_nobody_opens_it_without_a_login(session: str) -> None:
    for other in ("", "x" * 32):
        page = Socket(other)
        assert await page.open() == "websocket.close"
        await page.close()


async def test_there_is_no_other_feed(session: str) -> None:
    for path in ("/ws/", "/ws/live/x", "/"):
        assert await Socket(session, path=path).open() == "websocket.close"


async def test_a_process_has_a_limit(session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "SOCKETS_MAX", 1)
    first, second = Socket(session), Socket(session)
    assert await first.open() == "websocket.accept"
    assert await second.open() == "websocket.close"
    await second.close()
    await first.close()
    third = Socket(session)
    assert await third.open() == "websocket.accept"
    await third.close()


@pytest.mark.parametrize("end", ["logout", "account", "password"])
async def test_a_socket_ends_with_its_login(
    session: str, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(consumers, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(consumers, "POLLING_HEARTBEAT_S", 0.05)
    monkeypatch.setattr(consumers, "LOGIN_CHECK_S", 0.0)
    page = Socket(session)
    await page.open()
    await page.follow("home")

    def log_out() -> None:
        if end == "logout":
            Session.objects.all().delete()
        elif end == "account":
            User.objects.update(is_active=False)
        else:
            User.objects.update(password="another")

    await sync_to_async(log_out)()
    async with asyncio.timeout(5):
        while (heard := await page.hear()) != 4401:
            assert isinstance(heard, dict)
    await page.close()
