"""Hints are gathered while the loop is busy, and none is kept from it while it waits."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.scheduler import doorbell
from scheduler_app.scheduler.doorbell import Doorbell, Wake

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

WITHIN_S = 30.0
BUSY_S = 0.1


class Carrier:
    """What is said to it is heard by the one who listens."""

    def __init__(self) -> None:
        self.is_listening = False
        self.is_resting = False
        self._said: asyncio.Queue[str] = asyncio.Queue()
        self._loop: asyncio.AbstractEventLoop | None = None

    @asynccontextmanager
    async def listen(self, url: str, channel: str) -> AsyncIterator[Carrier]:
        del url, channel
        self._loop = asyncio.get_running_loop()
        yield self

    def say(self, *run_ids: int, **more: Any) -> None:
        assert self._loop is not None
        text = json.dumps({"runs": run_ids, **more})
        self._loop.call_soon_threadsafe(self._said.put_nowait, text)

    async def hear(self, timeout_s: float) -> str | None:
        if timeout_s == 0.0:
            return None if self._said.empty() else self._said.get_nowait()
        self.is_listening = True
        try:
            return await asyncio.wait_for(self._said.get(), timeout_s)
        except TimeoutError:
            return None
        finally:
            self.is_listening = False

    @contextmanager
    def resting(self) -> Iterator[None]:
        self.is_resting = True
        try:
            yield
        finally:
            self.is_resting = False


@pytest.fixture
def carrier(monkeypatch: pytest.MonkeyPatch) -> Carrier:
    made = Carrier()
    monkeypatch.setattr(doorbell, "listen", made.listen)
    return made


@pytest.fixture
def bell(carrier: Carrier) -> Iterator[Doorbell]:
    made = Doorbell("")
    made.start()
    assert heard(made, lambda wake: wake.events).flows, "it looks at everything once"
    yield made
    made.stop()


def heard(bell: Doorbell, is_enough: Callable[[Wake], bool]) -> Wake:
    """All that rang until it was enough."""
    whole, deadline = Wake(), time.monotonic() + WITHIN_S
    while not is_enough(whole):
        assert time.monotonic() < deadline, whole
        wake = bell.wait(0.05)
        whole.runs |= wake.runs
        whole.acted_on |= wake.acted_on
        whole.events |= wake.events
        whole.flows |= wake.flows
    return whole


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_nothing_is_listened_to_while_the_loop_is_busy_and_all_is_heard_when_it_waits(
    carrier: Carrier, bell: Doorbell
) -> None:
    carrier.say(1)
    assert heard(bell, lambda wake: 1 in wake.runs).acted_on == {1}
    until(lambda: carrier.is_resting)
    carrier.say(2, by_itself=1)
    carrier.say(3)
    carrier.say(4, by_itself=1)
    time.sleep(BUSY_S)
    assert carrier.is_resting
    assert not carrier.is_listening
    wake = heard(bell, lambda wake: wake.runs >= {2, 3, 4})
    assert (wake.runs, wake.acted_on) == ({2, 3, 4}, {3})


def test_it_listens_for_as_long_as_the_loop_waits(carrier: Carrier, bell: Doorbell) -> None:
    for number in range(1, 20):
        carrier.say(number)
        assert heard(bell, lambda wake: bool(wake.runs)).runs == {number}
    assert bell.wait(0.0).runs == set()
    until(lambda: carrier.is_listening)


def test_it_listens_again_after_a_while_however_busy_the_loop_is(
    carrier: Carrier, bell: Doorbell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorbell, "DEAF_MAX_S", BUSY_S)
    carrier.say(1)
    heard(bell, lambda wake: 1 in wake.runs)
    until(lambda: carrier.is_listening)


def test_its_own_threads_ring_while_nothing_is_listened_to(
    carrier: Carrier, bell: Doorbell
) -> None:
    carrier.say(1)
    heard(bell, lambda wake: 1 in wake.runs)
    bell.ring(runs={7}, by_itself=True)
    wake = bell.wait(WITHIN_S)
    assert (wake.runs, wake.acted_on) == ({7}, set())


def test_a_run_with_a_number_that_none_can_have_is_not_looked_at(
    carrier: Carrier, bell: Doorbell
) -> None:
    carrier.say(10**30, -(10**30), 2**63, 5)
    wake = heard(bell, lambda wake: bool(wake.runs))
    assert (wake.runs, wake.acted_on) == ({5}, {5})
