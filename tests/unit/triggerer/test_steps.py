"""Steps of user code: whose they are, and how one that does not end is ended."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from typing import Any
from uuid import UUID

import pytest

from scheduler_app.triggerer.steps import Blocked, Exited, Owner, Steps, run_as, task_factory
from scheduler_app.triggerer.watchdog import SIGNAL, Watchdog


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def watchdog(steps: Steps) -> Iterator[Watchdog]:
    """Steps of 0.1 s and more are ended."""
    before = signal.getsignal(SIGNAL)
    made = Watchdog(steps, job_id=UUID(int=1), limit_s=0.1)
    made.start()
    yield made
    made.stop()
    signal.signal(SIGNAL, before)


def _run(coroutine: Coroutine[Any, Any, Any], owner: Owner, steps: Steps) -> Any:
    """What the coroutine comes to as the owner's, in a loop of its own."""

    async def main() -> Any:
        asyncio.get_running_loop().set_task_factory(task_factory(steps))
        return await asyncio.create_task(run_as(owner, coroutine, steps))

    return asyncio.run(main())


def _owner(**changed: Any) -> Owner:
    return Owner(**{"trigger_id": 1, "label": "Trigger 1", **changed})


def test_what_a_coroutine_returns_raises_and_awaits_is_as_without_steps(steps: Steps) -> None:
    async def inner() -> int:
        async with asyncio.timeout(5):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.sleep(60), 0.01)
            return sum(await asyncio.gather(asyncio.sleep(0, 1), asyncio.to_thread(lambda: 2)))

    async def fails() -> None:
        await asyncio.sleep(0)
        raise OSError("gone")

    assert _run(inner(), _owner(), steps) == 3
    with pytest.raises(OSError, match="gone"):
        _run(fails(), _owner(), steps)
    assert steps.current is None


def test_every_step_is_the_owners_and_enters_its_source(steps: Steps) -> None:
    entered: list[str] = []
    seen: list[object] = []
    owner = _owner(enter=lambda: entered.append("in"))

    def look() -> None:
        seen.append(steps.current and steps.current.owner)

    async def child() -> None:
        look()
        await asyncio.sleep(0)
        look()

    async def inner() -> None:
        look()
        await asyncio.create_task(child())
        look()

    _run(inner(), owner, steps)
    assert seen == [owner] * 4
    assert len(entered) >= 4


def test_tasks_of_the_product_are_nobodys_steps(steps: Steps) -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(task_factory(steps))

        async def plain() -> None:
            assert steps.current is None

        await asyncio.create_task(plain())

    asyncio.run(main())


def test_tasks_that_were_left_behind_are_cancelled(steps: Steps) -> None:
    ended: list[str] = []

    async def child() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("child")

    async def inner() -> str:
        inner_task = asyncio.create_task(child())
        await asyncio.sleep(0)
        assert not inner_task.done()
        return "done"

    assert _run(inner(), _owner(), steps) == "done"
    assert ended == ["child"]


def test_an_exit_in_user_code_does_not_end_the_loop(steps: Steps) -> None:
    async def leaves() -> None:
        sys.exit(3)

    with pytest.raises(Exited, match=r"SystemExit\(3\)"):
        _run(leaves(), _owner(), steps)


def test_a_step_that_keeps_the_loop_is_ended(steps: Steps, watchdog: Watchdog) -> None:
    async def blocks() -> None:
        time.sleep(30)

    owner = _owner()
    began = time.monotonic()
    with pytest.raises(Blocked, match="Trigger 1 kept"):
        _run(blocks(), owner, steps)
    assert time.monotonic() - began < 2
    assert owner.is_blocked
    assert steps.current is None


def test_a_step_that_catches_its_end_is_ended_after_it(steps: Steps, watchdog: Watchdog) -> None:
    async def stubborn() -> None:
        with contextlib.suppress(BaseException):
            time.sleep(0.5)
        await asyncio.sleep(60)

    with pytest.raises(Blocked):
        _run(stubborn(), _owner(), steps)


def test_a_task_that_keeps_the_loop_ends_the_trigger_that_started_it(
    steps: Steps, watchdog: Watchdog
) -> None:
    async def child() -> None:
        time.sleep(30)

    async def inner() -> None:
        task = asyncio.create_task(child())
        await asyncio.wait([task])
        task.exception()
        await asyncio.sleep(60)

    owner = _owner()
    with pytest.raises(asyncio.CancelledError):
        _run(inner(), owner, steps)
    assert owner.is_blocked


def test_short_steps_and_the_loop_itself_are_left_alone(steps: Steps, watchdog: Watchdog) -> None:
    async def patient() -> str:
        for _ in range(30):
            time.sleep(0.01)
            await asyncio.sleep(0.005)
        return "done"

    async def main() -> None:
        time.sleep(0.4)  # nobody's step

    assert _run(patient(), _owner(), steps) == "done"
    asyncio.run(main())


def test_an_interrupt_that_comes_too_late_hits_no_other_step(steps: Steps) -> None:
    owner = _owner()
    with steps.of(owner):
        late = steps.current
    assert late is not None
    steps.interrupt(late)
    with steps.of(owner):
        steps.on_signal()
    steps.on_signal()
    assert not owner.is_blocked
    assert threading.current_thread() is threading.main_thread()
