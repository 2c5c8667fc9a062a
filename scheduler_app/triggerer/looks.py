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
from psycopg.rows import dict_row

from scheduler_app.rules.states import RUN_TERMINAL, TASK_TERMINAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler_app.authoring.triggers import PollTrigger, RunTrigger
    from scheduler_app.triggerer.link import Link

FILE_BATCH_MAX: Final = 500
FILE_THREADS: Final = 4  # a disk that hangs holds one of them
FILE_TURN_S: Final = 0.1
RUN_BATCH_MAX: Final = 2000
RUN_INTERVAL_S: Final = 1.0

logger = logging.getLogger(__name__)


class QuickLooks:
    """Looks that take microseconds each, a batch of them in a thread."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(FILE_THREADS, thread_name_prefix="looks")
        self._due: list[tuple[float, int, PollTrigger, asyncio.Future[Any]]] = []
        self._numbers = itertools.count()

    async def until(self, trigger: PollTrigger) -> Any:
        """The first answer of the trigger's ``look``; raises what that raises."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._put(time.monotonic(), trigger, future)
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
            await asyncio.sleep(FILE_TURN_S)

    def close(self) -> None:
        """Threads end when their look does."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _put(self, at: float, trigger: PollTrigger, future: asyncio.Future[Any]) -> None:
        heapq.heappush(self._due, (at, next(self._numbers), trigger, future))

    def _take(self) -> list[tuple[float, int, PollTrigger, asyncio.Future[Any]]]:
        now = time.monotonic()
        batch: list[tuple[float, int, PollTrigger, asyncio.Future[Any]]] = []
        while self._due and self._due[0][0] <= now and len(batch) < FILE_BATCH_MAX:
            item = heapq.heappop(self._due)
            if not item[3].done():  # its trigger was dropped
                batch.append(item)
        return batch

    async def _look(self, batch: list[tuple[float, int, PollTrigger, asyncio.Future[Any]]]) -> None:
        loop = asyncio.get_running_loop()
        answers = await loop.run_in_executor(self._threads, _look_at_all, [one[2] for one in batch])
        now = time.monotonic()
        for (_, _, trigger, future), answer in zip(batch, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            elif answer is not None:
                future.set_result(answer)
            else:
                self._put(now + trigger.poll_interval.total_seconds(), trigger, future)


def _look_at_all(triggers: Sequence[PollTrigger]) -> list[Any]:
    answers: list[Any] = []
    for trigger in triggers:
        try:
            answers.append(trigger.look())
        except Exception as error:  # noqa: BLE001 - goes to the trigger whose look it was
            answers.append(error)
    return answers


# Per trigger: the run by its id, or the newest of its date; then the run or its task, once ended.
_ENDED = """
SELECT u.number, r.flow_id, r.run_key AS run_id, u.task_id,
       CASE WHEN u.task_id IS NULL THEN r.state ELSE i.state END AS state,
       CASE WHEN u.task_id IS NULL THEN r.ended_at ELSE i.ended_at END AS ended_at
  FROM unnest(%(number)s::int[], %(flow_id)s::text[], %(run_id)s::text[],
              %(logical_date)s::timestamptz[], %(task_id)s::text[], %(map_index)s::int[])
         AS u(number, flow_id, run_key, logical_date, task_id, map_index)
  JOIN LATERAL (
    (SELECT r.id, r.flow_id, r.run_key, r.state, r.ended_at FROM run r
      WHERE r.flow_id = u.flow_id AND r.run_key = u.run_key AND r.filter_code IS NULL)
    UNION ALL
    (SELECT r.id, r.flow_id, r.run_key, r.state, r.ended_at FROM run r
      WHERE r.flow_id = u.flow_id AND r.logical_date = u.logical_date AND r.filter_code IS NULL
      ORDER BY r.id DESC LIMIT 1)) r ON true
  LEFT JOIN task_instance i ON u.task_id IS NOT NULL AND i.run_id = r.id
        AND i.task_id = u.task_id AND i.map_index = u.map_index
 WHERE CASE WHEN u.task_id IS NULL THEN r.state = ANY(%(run_ended)s)
            ELSE i.state = ANY(%(task_ended)s) END
"""


class RunLooks:
    """Runs and tasks that have ended, asked for all triggers together."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._waiting: dict[asyncio.Future[Any], RunTrigger] = {}

    async def until(self, trigger: RunTrigger) -> dict[str, Any]:
        """How the run or task ended: flow_id, run_id, task_id, state, ended_at."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[future] = trigger
        try:
            found: dict[str, Any] = await future
            return found
        finally:
            self._waiting.pop(future, None)

    async def run(self) -> None:
        """Looks until cancelled."""
        while True:
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


def ended_runs(
    connection: psycopg.Connection[Any], triggers: Sequence[RunTrigger]
) -> dict[int, dict[str, Any]]:
    """What has ended, by its place in ``triggers``. Walks ``run_key_unique`` or ``run_of_date``."""
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            _ENDED,
            {
                "number": list(range(len(triggers))),
                "flow_id": [one.flow_id for one in triggers],
                "run_id": [one.run_id for one in triggers],
                "logical_date": [one.logical_date for one in triggers],
                "task_id": [one.task_id for one in triggers],
                "map_index": [one.map_index for one in triggers],
                "run_ended": sorted(RUN_TERMINAL),
                "task_ended": sorted(TASK_TERMINAL),
            },
        )
        return {row.pop("number"): row for row in cursor.fetchall()}
