"""What goes into Redis by one command is what kombu would have stored, one by one."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery import Celery
from django.conf import settings
from kombu import Queue

from scheduler_app.executors.celery import TASK_NAME, CeleryExecutor, broker_queue
from scheduler_app.transitions.attempt import Message

QUEUES = ("pushed", "pushed too")
IDENTITY = "7412345678901234567:16384"


@pytest.fixture
def server() -> Iterator[redis.Redis]:
    with redis.Redis.from_url(settings.BROKER_URL) as client:
        keys = [broker_queue(queue) for queue in QUEUES]
        client.delete(*keys)
        yield client
        client.delete(*keys)


@pytest.fixture
def app() -> Iterator[Celery]:
    made = Celery(broker=settings.BROKER_URL, fixups=[])
    made.conf.task_queues = [Queue(broker_queue(queue)) for queue in QUEUES]
    yield made
    made.close()


def _message(queue: str = QUEUES[0], number: int = 1) -> Message:
    return Message(
        attempt_id=uuid.uuid4(), ti_id=number, run_id=9, fence=2, lease_token=3, queue=queue
    )


def _stored(server: redis.Redis, queue: str = QUEUES[0]) -> list[dict[str, Any]]:
    """The next one to be taken first."""
    return [json.loads(text) for text in reversed(server.lrange(broker_queue(queue), 0, -1))]


def _ids(server: redis.Redis, queue: str = QUEUES[0]) -> list[str]:
    return [message["headers"]["id"] for message in _stored(server, queue)]


def test_a_message_is_stored_as_kombu_stores_it(server: redis.Redis, app: Celery) -> None:
    message = _message()
    executor = CeleryExecutor(app)
    assert executor.publish([message], identity=IDENTITY) == {message.attempt_id}
    with app.producer_or_acquire() as producer:
        executor._publish_one(producer, message, IDENTITY, declares=True)
    ours, kombus = _stored(server)
    tags = {each["properties"].pop("delivery_tag") for each in (ours, kombus)}
    assert len({uuid.UUID(tag) for tag in tags}) == 2
    bodies = [_body(each.pop("body")) for each in (ours, kombus)]
    assert bodies[0] == bodies[1]
    assert bodies[0][0] == [str(message.attempt_id), 1, 2, 3, IDENTITY]
    assert ours == kombus
    assert ours["headers"]["task"] == TASK_NAME


def _body(text: str) -> Any:
    """A stored body, as a consumer reads it."""
    return json.loads(base64.b64decode(text))


def test_messages_of_several_queues_are_in_their_order(server: redis.Redis, app: Celery) -> None:
    messages = [_message(QUEUES[number % 2], number) for number in range(6)]
    taken = CeleryExecutor(app).publish(messages, identity=IDENTITY)
    assert taken == {message.attempt_id for message in messages}
    for at, queue in enumerate(QUEUES):
        assert _ids(server, queue) == [str(m.attempt_id) for m in messages[at::2]]


def test_what_is_sent_back_comes_before_all_others_in_its_order(
    server: redis.Redis, app: Celery
) -> None:
    executor = CeleryExecutor(app)
    waiting, back = [_message() for _ in range(2)], [_message() for _ in range(3)]
    executor.publish(waiting, identity=IDENTITY)
    executor.send_back(back, identity=IDENTITY)
    assert _ids(server) == [str(message.attempt_id) for message in [*back, *waiting]]


def test_a_connection_that_died_unseen_costs_nothing(server: redis.Redis, app: Celery) -> None:
    executor = CeleryExecutor(app)
    executor.publish([_message()], identity=IDENTITY)
    server.client_kill_filter(_type="normal", skipme=True)
    message = _message()
    assert executor.publish([message], identity=IDENTITY) == {message.attempt_id}
    assert _ids(server)[-1] == str(message.attempt_id)


def test_a_broker_that_is_away_takes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    app = Celery(broker="redis://127.0.0.1:1/0", fixups=[])
    app.conf.task_publish_retry_policy = {"max_retries": 1, "interval_start": 0}
    try:
        executor = CeleryExecutor(app)
        assert executor.publish([_message()], identity=IDENTITY) == frozenset()
        executor.send_back([_message()], identity=IDENTITY)
    finally:
        app.close()
    assert "the broker took no messages" in caplog.messages
    assert "deliveries did not go back" in caplog.messages


def test_a_broker_that_refuses_takes_nothing(
    server: redis.Redis, app: Celery, caplog: pytest.LogCaptureFixture
) -> None:
    executor = CeleryExecutor(app)
    server.set(broker_queue(QUEUES[0]), "not a list")
    assert executor.publish([_message()], identity=IDENTITY) == frozenset()
    assert "the broker took no messages" in caplog.messages
