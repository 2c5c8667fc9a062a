"""What children of a Celery worker are given, what lies behind, and what goes back to the broker."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery
from celery.worker import state

from scheduler_app.worker import celery_pool
from scheduler_app.worker.mouth import Mouth, set_mouth
from scheduler_app.worker.tasks import Taken
from tests.unit.worker.children import Stage, delivery, end, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Loop:
    """An event loop's readers and timers, turned by hand."""

    def __init__(self) -> None:
        self.readers: dict[int, tuple[Callable[..., None], tuple[Any, ...]]] = {}
        self.writers: dict[int, Any] = {}
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.repeated: list[Callable[[], None]] = []

    def add_reader(self, fd: int, callback: Callable[..., None], *args: Any) -> None:
        self.readers[fd] = (callback, args)

    def remove(self, fd: int) -> None:
        self.readers.pop(fd, None)

    def call_repeatedly(self, every_s: float, callback: Callable[[], None]) -> None:
        del every_s  # each turn: sooner than any
        self.repeated.append(callback)

    def call_later(self, in_s: float, callback: Callable[[], None]) -> None:
        self.timers.append((time.monotonic() + in_s, callback))

    def turn(self) -> None:
        """All that can be read is; timers that are due go off."""
        for callback, args in [*self.readers.values()]:
            callback(*args)
        now = time.monotonic()
        due = [timer for timer in self.timers if timer[0] <= now]
        self.timers = [timer for timer in self.timers if timer[0] > now]
        for callback in [*self.repeated, *(each for _, each in due)]:
            callback()


class Table:
    """A worker's pool; what it sends back to the broker is noted."""

    def __init__(self, stage: Stage, patch: pytest.MonkeyPatch, size: int) -> None:
        self.stage = stage
        self.sent_back: list[str] = []
        app = Celery(broker="memory://", fixups=[])
        # However busy the machine is, what ends at once is quick, and nothing waits for too long.
        patch.setattr(celery_pool, "QUICK_S", 5.0)
        patch.setattr(celery_pool, "WAIT_MAX_S", 60.0)
        patch.setattr(celery_pool, "CeleryExecutor", lambda app: self)
        patch.setattr(signal, "set_wakeup_fd", lambda fd, **_: None)
        set_mouth(Mouth(size=size, executing=lambda: 0))
        self.pool: Any = celery_pool.ChildPool(size, app=app)
        self.loop = Loop()
        self.pool.on_start()
        self.pool.register_with_event_loop(self.loop)

    def send_back(self, messages: Any, *, identity: str) -> None:
        del identity
        self.sent_back += [str(message.attempt_id) for message in messages]

    def take(self, arguments: list[Any]) -> None:
        """A delivery comes from the broker."""
        self.pool.execute(Taken(arguments[0], arguments, "daylight.default", lambda: None))

    def warm(self) -> None:
        """Each child has been quick of late."""
        quick = delivery()
        self.stage.let_end(quick)
        self.take(quick)
        until(lambda: not state.reserved_requests, turn=self.loop.turn)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    """Two children."""
    made = Table(Stage(tmp_path, monkeypatch), monkeypatch, 2)
    yield made
    made.stage.let_end()
    until(lambda: not state.reserved_requests, turn=made.loop.turn)
    made.pool.on_stop()
    made.pool._wake_read.close()
    made.pool._wake_write.close()
    set_mouth(None)  # type: ignore[arg-type]


def _running(table: Table, number: int) -> list[list[Any]]:
    made = [delivery() for _ in range(number)]
    for each in made:
        table.take(each)
    return made


def test_while_all_are_quick_each_child_has_another_to_go_on_with(table: Table) -> None:
    table.warm()
    first, second, third, fourth, fifth = _running(table, 5)
    until(lambda: len(table.stage.begun()) == 3)
    table.stage.let_end(first, second)
    # Nobody hears them, and yet they go on; the fifth has to wait for the parent.
    until(lambda: len(table.stage.begun()) == 5)
    assert set(table.stage.begun()[1:3]) == {first[0], second[0]}
    assert set(table.stage.begun()[3:]) == {third[0], fourth[0]}
    table.stage.let_end()
    until(lambda: not state.reserved_requests, turn=table.loop.turn)
    assert table.stage.begun()[5] == fifth[0]
    assert table.sent_back == []


def test_a_worker_that_knows_nothing_yet_lays_nothing_behind(table: Table) -> None:
    running = _running(table, 3)
    until(lambda: len(table.stage.begun()) == 2)
    table.stage.let_end(*running)
    time.sleep(0.05)
    assert len(table.stage.begun()) == 2


def test_what_lies_behind_slow_ones_goes_back_to_the_broker(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(celery_pool, "WAIT_MAX_S", 0.05)
    table.warm()
    first, second, third, fourth, fifth = _running(table, 5)
    until(lambda: len(table.sent_back) == 3, turn=table.loop.turn)
    assert set(table.sent_back) == {third[0], fourth[0], fifth[0]}
    assert len(state.reserved_requests) == 2
    table.stage.let_end(first, second)
    until(lambda: not state.reserved_requests, turn=table.loop.turn)
    assert set(table.stage.begun()[1:]) == {first[0], second[0]}


def test_a_child_that_is_free_gets_what_lies_behind_another(table: Table) -> None:
    table.warm()
    first, second, third = _running(table, 3)
    until(lambda: len(table.stage.begun()) == 3)
    # The third lies behind one of the two; the other one ends.
    behind = next(iter(table.pool._children._children.values())).attempt_id
    other = next(each for each in (first, second) if each[0] != behind)
    table.stage.let_end(other)
    until(lambda: third[0] in table.stage.begun(), turn=table.loop.turn)
    assert table.sent_back == []


def test_what_lay_behind_what_a_child_died_with_is_executed_by_another(table: Table) -> None:
    table.warm()
    first, second, third, fourth = _running(table, 4)
    until(lambda: len(table.stage.begun()) == 3)
    victim = next(c for c in table.pool._children._children.values() if c.attempt_id == first[0])
    behind = victim.behind
    assert behind in {third[0], fourth[0]}
    end(victim.pid)
    until(lambda: behind in table.stage.begun(), turn=table.loop.turn)
    assert ("lost -9", first[0]) in table.stage.observer.told
    assert table.stage.begun().count(behind) == 1
    table.stage.let_end(second)


def test_a_worker_that_stops_gives_back_what_lies_behind(table: Table) -> None:
    table.warm()
    first, second, third, fourth, fifth = _running(table, 5)
    until(lambda: len(table.stage.begun()) == 3)
    table.pool.on_close()
    assert set(table.sent_back) == {third[0], fourth[0], fifth[0]}
    table.stage.let_end(first, second)
    until(lambda: not state.reserved_requests, turn=table.loop.turn)
    assert len(table.stage.begun()) == 3


def test_what_lies_behind_makes_room_for_what_may_be_fetched(table: Table) -> None:
    table.warm()
    _running(table, 4)
    assert table.pool.wanted() == celery_pool.AHEAD
    _running(table, 4)
    assert table.pool.wanted() <= 0, "four wait for a child already"
