"""Looks that many triggers share: at files in a few threads, at runs in one query."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import psycopg

from scheduler_app.processes.ended_runs import ended_runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler_app.authoring.triggers import PollTrigger, RunTrigger
    from scheduler_app.triggerer.link import Link

FILE_BATCH_MAX: Final = 500
FILE_THREADS: Final = 4  # a disk that hangs holds one of them
FILE_TURN_S: Final = 0.1  # while there are files to be looked at
RUN_BATCH_MAX: Final = 2000
RUN_INTERVAL_S: Final = 1.0

logger = logging.getLogger(__name__)

# When, in which order, what is looked at, who waits for it, and how often it was looked at before.
Due = tuple[float, int, "PollTrigger", "asyncio.Future[Any]", int]


class QuickLooks:
    """Looks that take microseconds each, a batch of them in a thread."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(FILE_THREADS, thread_name_prefix="looks")
        self._due: list[Due] = []
        self._numbers = itertools.count()
        self._is_wanted = asyncio.Event()  # somebody waits for a look

    async def until(self, trigger: PollTrigger) -> Any:
        """The first answer of the trigger's ``look``; raises what that raises."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._put(time.monotonic(), trigger, future, 0)
        return await future

    async def run(self) -> None:
        """Looks until cancelled."""
        running: set[asyncio.Future[Any]] = set()
        while True:
            batch = self._take()
            if batch and len(running) < FILE_THREADS:
                one = asyncio.ensure_future(self._look(batch))
                running.add(one)
                one.add_done_callback(running.discard)
                continue
            for item in batch:
                heapq.heappush(self._due, item)
            if not self._due:
                self._is_wanted.clear()
                await self._is_wanted.wait()
            else:
                await asyncio.sleep(FILE_TURN_S)

    def close(self) -> None:
        """Threads end when their look does."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _put(
        self, at: float, trigger: PollTrigger, future: asyncio.Future[Any], looked: int
    ) -> None:
        heapq.heappush(self._due, (at, next(self._numbers), trigger, future, looked))
        self._is_wanted.set()

    def _take(self) -> list[Due]:
        now = time.monotonic()
        batch: list[Due] = []
        while self._due and self._due[0][0] <= now and len(batch) < FILE_BATCH_MAX:
            item = heapq.heappop(self._due)
            if not item[3].done():  # its trigger was dropped
                batch.append(item)
        return batch

    async def _look(self, batch: list[Due]) -> None:
        loop = asyncio.get_running_loop()
        answers = await loop.run_in_executor(self._threads, _look_at_all, [one[2] for one in batch])
        now = time.monotonic()
        for (_, _, trigger, future, looked), answer in zip(batch, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            elif answer is not None:
                future.set_result(answer)
            else:
                pause_s = trigger.interval(looked).total_seconds()
                self._put(now + pause_s, trigger, future, looked + 1)


def _look_at_all(triggers: Sequence[PollTrigger]) -> list[Any]:
    answers: list[Any] = []
    for trigger in triggers:
        try:
            answers.append(trigger.looked())
        except Exception as error:  # noqa: BLE001 - goes to the trigger whose look it was
            answers.append(error)
    return answers


class RunLooks:
    """Runs and tasks that have ended, asked for all triggers together."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._waiting: dict[asyncio.Future[Any], RunTrigger] = {}
        self._is_wanted = asyncio.Event()  # somebody waits for a run

    async def until(self, trigger: RunTrigger) -> dict[str, Any]:
        """How the run or task ended: flow_id, run_id, task_id, state, ended_at."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[future] = trigger
        self._is_wanted.set()
        try:
            found: dict[str, Any] = await future
            return found
        finally:
            self._waiting.pop(future, None)

    async def run(self) -> None:
        """Looks until cancelled."""
        while True:
            if not self._waiting:
                self._is_wanted.clear()
                await self._is_wanted.wait()
            waiting = list(self._waiting.items())
            for start in range(0, len(waiting), RUN_BATCH_MAX):
                batch = waiting[start : start + RUN_BATCH_MAX]
                try:
                    ended = await self._link.ask(
                        partial(ended_runs, triggers=[one for _, one in batch])
                    )
                except psycopg.Error as error:
                    logger.warning("runs were not looked at", extra={"error": str(error).strip()})
                    break
                for number, event in ended.items():
                    if not batch[number][0].done():
                        batch[number][0].set_result(event)
            await asyncio.sleep(RUN_INTERVAL_S)
