"""Both carriers of hints, and everybody who listens, over each of them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
from asgiref.sync import sync_to_async
from django.conf import settings

from scheduler_app.hints import postgres
from scheduler_app.hints.carrier import CHANGED, TRIGGER, WAKE, HintsAway
from scheduler_app.hints.listening import listen
from scheduler_app.hints.notices import Notices
from scheduler_app.hints.valkey import ValkeySender
from scheduler_app.processes import database
from scheduler_app.scheduler.doorbell import Doorbell, Wake
from scheduler_app.triggerer.doorbell import Doorbell as TriggererDoorbell
from scheduler_app.worker.link import Link

HEARD_S = 10.0


@pytest.fixture(params=["valkey", "postgres"])
def url(request: pytest.FixtureRequest, transactional_db: None) -> str:
    """The address that chooses the carrier."""
    del transactional_db
    return settings.CACHE_URL if request.param == "valkey" else ""


def break_connections(url: str) -> None:
    """Every listener of this carrier has lost its connection."""
    if url:
        client = redis.Redis.from_url(url)
        client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        client.close()
        return
    with database.connect("worker") as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'daylight hints listener'"
        )


async def said(url: str, act: Callable[[Notices], None]) -> None:
    """The hint was sent, from a thread as in a process that has no loop."""

    def send() -> None:
        notices = Notices(url)
        act(notices)
        notices.close()

    await asyncio.to_thread(send)


async def test_each_channel_hears_its_own_hints_alone(url: str) -> None:
    async with (
        listen(url, WAKE) as wake,
        listen(url, CHANGED) as changed,
        listen(url, TRIGGER) as trigger,
    ):
        await said(url, lambda n: n.deferred(runs=[7, 8], topics=["runs", "run:7", "runs"]))
        assert json.loads(await wake.hear(HEARD_S) or "") == {"runs": [7, 8]}
        assert json.loads(await changed.hear(HEARD_S) or "") == {"topics": ["run:7", "runs"]}
        assert json.loads(await trigger.hear(HEARD_S) or "") == {}
        for ear in (wake, changed, trigger):
            assert await ear.hear(0.05) is None


async def test_hints_that_come_while_nobody_looks_are_heard_in_order(url: str) -> None:
    async with listen(url, WAKE) as ear:
        for number in range(5):
            await said(url, lambda n, number=number: n.wake([number]))  # type: ignore[misc]
        heard = [json.loads(await ear.hear(HEARD_S) or "")["runs"] for _ in range(5)]
        assert heard == [[0], [1], [2], [3], [4]]


async def test_what_is_said_while_a_listener_rests_waits_and_is_heard_in_order(url: str) -> None:
    async with listen(url, WAKE) as ear:
        numbers = []
        for number in range(4):
            with ear.resting():
                await said(url, lambda n, number=number: n.wake([number, number]))  # type: ignore[misc]
                await said(url, lambda n: n.wake([9]))
                await asyncio.sleep(0.05)
            heard = [await ear.hear(HEARD_S) for _ in range(2)]
            numbers += [json.loads(hint or "")["runs"][0] for hint in heard]
        assert numbers == [0, 9, 1, 9, 2, 9, 3, 9]
        assert await ear.hear(0.05) is None


async def test_a_connection_that_broke_while_a_listener_rests_is_told(url: str) -> None:
    async with listen(url, WAKE) as ear:
        with ear.resting():
            await asyncio.to_thread(break_connections, url)
        with pytest.raises(HintsAway):
            await ear.hear(HEARD_S)


async def test_nothing_is_read_while_a_listener_of_valkey_rests() -> None:
    async with listen(settings.CACHE_URL, WAKE) as ear:
        stream = ear._subscription.connection._reader  # type: ignore[attr-defined]
        with ear.resting():
            await said(settings.CACHE_URL, lambda n: n.wake([1]))
            await asyncio.sleep(0.05)
            assert not stream._buffer
        await asyncio.sleep(0.05)
        assert stream._buffer


async def test_a_hint_of_any_length_arrives(url: str) -> None:
    topics = {f"run:{number}" for number in range(5000)}
    heard: set[str] = set()
    async with listen(url, CHANGED) as ear:
        await said(url, lambda n: n.changed(topics))
        while heard != topics:
            hint = await ear.hear(HEARD_S)
            assert hint is not None
            heard |= {*json.loads(hint)["topics"]}


async def test_a_listener_whose_connection_broke_is_told(url: str) -> None:
    async with listen(url, WAKE) as ear:
        await asyncio.to_thread(break_connections, url)
        with pytest.raises(HintsAway):
            await ear.hear(HEARD_S)


async def test_a_quiet_connection_is_tried_and_found_well(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("valkey", "postgres"):
        monkeypatch.setattr(f"scheduler_app.hints.{module}.QUIET_CHECK_S", 0.1)
    async with listen(url, WAKE) as ear:
        assert await ear.hear(1.0) is None  # ten times asked, ten times answered, no hint
        await said(url, lambda n: n.wake([1]))
        assert await ear.hear(HEARD_S) is not None


def test_a_carrier_that_is_away_costs_one_try_and_no_error(url: str) -> None:
    notices = Notices("redis://127.0.0.1:1/0" if url else "", lend=None if url else _refuse)
    notices.wake([1])
    began = time.monotonic()
    for _ in range(1000):
        notices.wake([1])
    assert time.monotonic() - began < 1.0
    notices.close()


async def test_a_hint_after_the_server_closed_the_connection_arrives() -> None:
    async with listen(settings.CACHE_URL, WAKE) as ear:
        notices = Notices(settings.CACHE_URL)
        for number in (1, 2):
            await asyncio.to_thread(notices.wake, [number])
            heard = await ear.hear(HEARD_S)
            assert heard is not None
            assert json.loads(heard)["runs"] == [number]
            with redis.Redis.from_url(settings.CACHE_URL) as client:
                client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        notices.close()


async def test_hints_arrive_through_a_server_that_cannot_be_told_to_answer_nothing() -> None:
    with redis.Redis.from_url(settings.CACHE_URL) as client:
        client.execute_command(
            *("ACL", "SETUSER", "answered", "on", ">secret", "~*", "&*", "+@all", "-client|reply")
        )
        parts = urlsplit(settings.CACHE_URL)
        url = parts._replace(netloc=f"answered:secret@{parts.hostname}:{parts.port}").geturl()
        sender = ValkeySender(url)
        try:
            async with listen(url, WAKE) as ear:
                for number in range(3):
                    hint = (WAKE, {"runs": [number]})
                    await asyncio.to_thread(sender.send, [hint, (CHANGED, {"topics": ["runs"]})])
                    assert json.loads(await ear.hear(HEARD_S) or "")["runs"] == [number]
            assert sender._is_answered
            assert not sender._is_over()  # nothing is left unread
        finally:
            sender.close()
            client.execute_command("ACL", "DELUSER", "answered")


def _refuse(say: Callable[[psycopg.Connection[Any]], None]) -> None:
    raise psycopg.OperationalError("away")


# -- those who listen -----------------------------------------------------------------------------


def _until(bell: Doorbell, found: Callable[[Wake], bool]) -> Wake:
    deadline = time.monotonic() + HEARD_S
    while time.monotonic() < deadline:
        wake = bell.wait(0.2)
        if found(wake):
            return wake
    raise AssertionError("nothing rang")


def test_the_scheduler_is_woken_and_again_after_its_connection_broke(url: str) -> None:
    bell = Doorbell(url)
    bell.start()
    _until(bell, lambda wake: wake.events and wake.flows)  # it listens: look at everything once
    notices = Notices(url)
    notices.wake([5], events=1)
    wake = _until(bell, lambda wake: bool(wake.runs))
    assert (wake.runs, wake.events, wake.flows) == ({5}, True, False)
    break_connections(url)
    _until(bell, lambda wake: wake.events and wake.flows)
    notices.wake([6])
    assert _until(bell, lambda wake: bool(wake.runs)).runs == {6}
    notices.close()
    bell.stop()


async def test_a_triggerer_is_woken(url: str) -> None:
    bell = TriggererDoorbell(url)
    rings = bell.bell()
    listening = asyncio.create_task(bell.listen())
    async with asyncio.timeout(HEARD_S):
        await rings.wait()  # it listens
        rings.clear()
        await said(url, Notices.triggers)
        await rings.wait()
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


# -- PostgreSQL alone -----------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
async def test_a_pooler_that_swallows_subscriptions_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Elsewhere:
        """A pooler hands the subscription to a connection that is not ours."""

        @staticmethod
        def SQL(text: str) -> Any:  # noqa: N802 - the name of psycopg's
            del text
            return psycopg.sql.SQL("SELECT 1 AS {}")

        Identifier = psycopg.sql.Identifier

    monkeypatch.setattr(postgres, "sql", Elsewhere)
    monkeypatch.setattr(postgres, "CONNECT_TIMEOUT_S", 0.3)
    with pytest.raises(HintsAway, match="pooler"):
        async with listen("", WAKE):
            pass


@pytest.mark.django_db(transaction=True)
async def test_a_database_that_falls_silent_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "QUIET_CHECK_S", 0.1)
    async with listen("", WAKE) as ear:
        assert isinstance(ear, postgres.PostgresEar)
        await ear._connection.execute("UNLISTEN *")
        with pytest.raises(HintsAway, match="no more"):
            await ear.hear(HEARD_S)


@pytest.mark.django_db(transaction=True)
async def test_a_child_says_its_hints_over_the_connection_that_it_has() -> None:
    link = Link(on_wait=lambda waits: None)

    def say() -> int:
        notices = Notices("", lend=link.once)
        notices.wake([3])
        with database.connect("worker") as connection:
            row = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'daylight hints'"
            ).fetchone()
            assert row is not None
        # Its commits wait for the disk as before.
        assert link.once(lambda c: c.execute("SHOW synchronous_commit").fetchone()) == _setting()
        link.close()
        return int(row[0])

    def _setting() -> Any:
        with database.connect("worker") as connection:
            return connection.execute("SHOW synchronous_commit").fetchone()

    async with listen("", WAKE) as ear:
        assert await sync_to_async(say, thread_sensitive=False)() == 0
        assert json.loads(await ear.hear(HEARD_S) or "") == {"runs": [3]}
