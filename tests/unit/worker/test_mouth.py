"""When a Celery worker tells a broker that pushes to stop, and to go on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from scheduler_app.worker.mouth import Mouth


class Messages:
    """A consumer of Celery's and its channel, and what the broker was told; it is never waited for."""

    def __init__(self, *, is_broken: bool = False) -> None:
        self.told: list[str] = []
        self.is_broken = is_broken
        self.channel = self
        self.queues = [SimpleNamespace(name="default")]
        self._active_tags = {"default": "1"}

    def _basic_consume(self, queue: Any, *, consumer_tag: str, nowait: bool) -> None:
        assert nowait
        assert (queue.name, consumer_tag) == ("default", "1"), "the tag of before"
        self._active_tags["default"] = consumer_tag
        self._tell("go on")

    def basic_cancel(self, tag: str, *, nowait: bool) -> None:
        assert (tag, nowait) == ("1", True)
        self._tell("stop")

    def _tell(self, what: str) -> None:
        if self.is_broken:
            raise ConnectionResetError("the connection is gone")
        self.told.append(what)


class Table:
    """A worker with two children."""

    def __init__(self) -> None:
        self.executing = 0
        self.messages = Messages()
        self.mouth = Mouth(size=2, executing=lambda: self.executing)
        self.mouth.attend(self.messages, is_pushed=True)

    def swallow(self) -> None:
        self.mouth.swallows()
        self.executing += 1

    def end(self) -> None:
        self.executing -= 1
        self.mouth.is_through()


@pytest.fixture
def table() -> Table:
    return Table()


def test_it_stops_before_the_message_that_fills_it_is_acknowledged(table: Table) -> None:
    table.swallow()
    assert table.messages.told == []
    table.mouth.swallows()
    assert table.messages.told == ["stop"], "while only one is executed by the books"


def test_it_goes_on_once_a_child_is_free_and_says_so_once(table: Table) -> None:
    for _ in range(2):
        table.swallow()
    table.end()
    table.end()
    assert table.messages.told == ["stop", "go on"]


def test_while_nothing_may_start_nothing_is_taken(table: Table) -> None:
    table.mouth.let(False)
    table.mouth.let(False)
    assert not table.mouth.may_eat
    table.swallow()
    table.end()
    assert table.messages.told == ["stop"]
    table.mouth.let(True)
    assert table.messages.told == ["stop", "go on"]


def test_a_broker_that_is_asked_for_each_message_is_told_nothing_by_a_full_one() -> None:
    messages = Messages()
    mouth = Mouth(size=1, executing=lambda: 1)
    mouth.attend(messages, is_pushed=False)
    mouth.swallows()
    mouth.is_through()
    assert messages.told == []


def test_a_full_worker_stops_the_broker_of_a_new_connection_at_once(table: Table) -> None:
    for _ in range(2):
        table.swallow()
    again = Messages()
    table.mouth.attend(again, is_pushed=True)
    assert again.told == ["stop"]
    table.mouth.attend(again, is_pushed=True)
    assert again.told == ["stop"], "it is known by then"


def test_a_broken_connection_hurts_nobody_and_is_told_again(table: Table) -> None:
    table.messages.is_broken = True
    table.mouth.let(False)
    table.messages.is_broken = False
    table.mouth.let(False)
    assert table.messages.told == ["stop"]


def test_a_worker_that_stops_consumes_no_more_whoever_becomes_free(table: Table) -> None:
    for _ in range(2):
        table.swallow()
    table.mouth.close()
    table.end()
    assert table.messages.told == ["stop"]
