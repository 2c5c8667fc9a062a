"""What triggers came to, on its way to the database: kept until that has taken it, in batches."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import psycopg

from scheduler_app.processes import failpoints
from scheduler_app.transitions.trigger import Fire, Fired, fire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scheduler_app.hints.notices import Notices
    from scheduler_app.triggerer.link import Link

BATCH_MAX: Final = 500
GATHER_S: Final = 0.005  # results that come closer than this share a transaction
AGAIN_S: Final = 0.05  # for those whose task instance was locked
RETRY_S: Final = 1.0  # while the database is away

logger = logging.getLogger(__name__)


class Fires:
    """A queue with one writer; ``put`` never waits."""

    def __init__(
        self, link: Link, notices: Notices, *, on_done: Callable[[Iterable[int]], None]
    ) -> None:
        self._link = link
        self._notices = notices
        self._on_done = on_done
        self._waiting: dict[int, Fire] = {}  # by trigger: the first result of each counts
        self._some = asyncio.Event()
        self._none = asyncio.Event()
        self._none.set()

    def put(self, one: Fire) -> None:
        """The database will be told until it has answered."""
        self._waiting.setdefault(one.trigger_id, one)
        self._none.clear()
        self._some.set()

    async def write(self) -> None:
        """Writes what is put, until cancelled."""
        while True:
            await self._some.wait()
            await asyncio.sleep(GATHER_S)
            batch = [self._waiting[one] for one in sorted(self._waiting)[:BATCH_MAX]]
            try:
                fired = await self._link.ask(partial(self._fire, fires=batch))
            except psycopg.Error as error:
                logger.warning("fires wait for the database", extra={"error": str(error).strip()})
                await asyncio.sleep(RETRY_S)
                continue
            again = {one.trigger_id for one in fired if one.what == "again"}
            known = [one.trigger_id for one in batch if one.trigger_id not in again]
            for trigger_id in known:
                del self._waiting[trigger_id]
            self._on_done(known)
            if not self._waiting:
                self._some.clear()
                self._none.set()
            elif again:
                await asyncio.sleep(AGAIN_S)

    async def flush(self, within_s: float) -> None:
        """Everything put so far is written, or so much time passed."""
        try:
            async with asyncio.timeout(within_s):
                await self._none.wait()
        except TimeoutError:
            logger.warning("results were not written", extra={"count": len(self._waiting)})

    def _fire(self, connection: psycopg.Connection[Any], fires: list[Fire]) -> list[Fired]:
        failpoints.reach("triggerer.before_fire")
        fired = fire(connection, fires=fires)
        failpoints.reach("triggerer.after_fire")
        tell(self._notices, fired)
        return fired


def tell(notices: Notices, fired: Iterable[Fired]) -> None:
    """The schedulers and the pages hear of the runs that moved."""
    moved = [one for one in fired if one.what == "moved"]
    if moved:
        runs = sorted({one.run_id for one in moved})
        topics = {f"run:{run_id}" for run_id in runs} | {f"ti:{one.ti_id}" for one in moved}
        notices.both(runs=runs, topics=["runs", "triggers", *topics], by_itself=True)
