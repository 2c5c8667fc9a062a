"""Several messages of a queue come in one answer, where the worker has a use for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from django.conf import settings
from kombu import Connection, Consumer, Producer, Queue

from scheduler_app.worker.redis_many import TRANSPORT, ManyChannel

QUEUE = "of many"


@pytest.fixture
def server() -> Iterator[redis.Redis]:
    with redis.Redis.from_url(settings.BROKER_URL) as client:
        client.delete(QUEUE)
        yield client
        client.delete(QUEUE)


class Taker:
    """Consumes as a worker does, of a queue with so many messages."""

    def __init__(self, url: str, messages: int, *, wanted: int) -> None:
        self.connection = Connection(url, transport=TRANSPORT)
        self.channel: Any = self.connection.channel()
        assert isinstance(self.channel, ManyChannel)
        self.channel.wanted = lambda: wanted
        queue = Queue(QUEUE, routing_key=QUEUE, no_ack=True)
        self.taken: list[int] = []
        self.consumer = Consumer(self.channel, [queue], callbacks=[self.take])
        with Connection(url) as connection:
            producer = Producer(connection.channel(), routing_key=QUEUE)
            for number in range(messages):
                producer.publish(number, serializer="json", declare=[queue], retry=False)
        self.consumer.consume()

    def take(self, body: Any, message: Any) -> None:
        del message
        self.taken.append(int(body))

    def look(self) -> list[int]:
        """What came of one answer of the broker."""
        self.taken.clear()
        self.connection.drain_events(timeout=5)
        return [*self.taken]


def test_one_answer_brings_as_many_as_are_wanted_in_their_order(server: redis.Redis) -> None:
    taker = Taker(settings.BROKER_URL, 7, wanted=4)
    with taker.connection:
        assert taker.look() == [0, 1, 2, 3]
        assert taker.look() == [4, 5, 6]
    assert server.llen(QUEUE) == 0


def test_one_that_is_wanted_is_asked_for_as_celery_does(server: redis.Redis) -> None:
    taker = Taker(settings.BROKER_URL, 3, wanted=1)
    with taker.connection:
        assert [taker.look(), taker.look()] == [[0], [1]]
    del server


def test_a_message_that_breaks_takes_no_other_with_it(server: redis.Redis) -> None:
    taker = Taker(settings.BROKER_URL, 3, wanted=3)
    take = taker.take

    def break_at_first(body: Any, message: Any) -> None:
        take(body, message)
        if body == 0:
            raise ValueError("cannot be taken")

    taker.consumer.callbacks = [break_at_first]
    with taker.connection, pytest.raises(ValueError, match="cannot be taken"):
        taker.look()
    assert taker.taken == [0, 1, 2]
    del server


def test_a_server_that_does_not_know_the_command_is_asked_for_one_at_a_time(
    server: redis.Redis,
) -> None:
    server.execute_command(
        *("ACL", "SETUSER", "old", "on", ">secret", "~*", "&*", "+@all", "-blmpop")
    )
    parts = urlsplit(settings.BROKER_URL)
    url = parts._replace(netloc=f"old:secret@{parts.hostname}:{parts.port}").geturl()
    taker = Taker(url, 3, wanted=4)
    try:
        with taker.connection:
            assert [taker.look() for _ in range(3)] == [[0], [1], [2]]
    finally:
        server.execute_command("ACL", "DELUSER", "old")
