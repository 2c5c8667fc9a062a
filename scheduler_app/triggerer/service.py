"""The triggerer's loop: what is due fires, what nobody watches is claimed, results are written."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import psycopg
from django.conf import settings

from scheduler_app.couriers.teller import Teller
from scheduler_app.hints.notices import Notices
from scheduler_app.processes.job import JobRow
from scheduler_app.transitions.incident import raise_incident
from scheduler_app.transitions.trigger import (
    claim_triggers,
    fire_due,
    note_blocked,
    release_triggers,
    watched_by,
)
from scheduler_app.triggerer.doorbell import Doorbell, heard
from scheduler_app.triggerer.fires import Fires, tell
from scheduler_app.triggerer.isolate import Isolation
from scheduler_app.triggerer.last_step import LastStep, left_behind
from scheduler_app.triggerer.link import Link
from scheduler_app.triggerer.looks import QuickLooks, RunLooks
from scheduler_app.triggerer.schedulers import watch_for_schedulers
from scheduler_app.triggerer.steps import Steps, task_factory
from scheduler_app.triggerer.watch import Watch
from scheduler_app.triggerer.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler_app.transitions.trigger import ClaimedTrigger, Round

DUE_MAX: Final = 500  # fired in one transaction
TURN_S: Final = 1.0  # between looks, while no hints are heard and nothing is due
QUIET_TURN_S: Final = 2.5  # likewise, while hints are heard and none comes
AGAIN_S: Final = 0.05  # for what was locked
CLAIM_MAX: Final = 500  # in one statement, so that several triggerers share what comes
RETRY_S: Final = 1.0  # while the database is away
FLUSH_S: Final = 3.0
LOOK_THREADS: Final = 32  # for looks that take long: web servers, databases

logger = logging.getLogger(__name__)


class Triggerer:
    """One triggerer process. ``run`` returns after ``stop`` with its triggers given up."""

    def __init__(self, *, capacity: int, environ: Mapping[str, str], name: str = "") -> None:
        self._capacity = capacity
        self._stopping = threading.Event()
        self._job = JobRow(
            kind="triggerer", name=name, detail={"capacity": capacity}, on_stop=self.stop
        )
        self._notices = Notices(settings.CACHE_URL)
        self._teller = Teller(
            on_told=lambda: self._notices.changed(["incidents", "home"]), look=self._look
        )
        self._started = time.monotonic()
        self._link = Link()
        self._folder = settings.DATA_DIR / "triggerers"
        self._last_step = LastStep(self._folder, self._job.id)
        self._steps = Steps(self._last_step.set)
        self._watchdog = Watchdog(
            self._steps, job_id=self._job.id, limit_s=settings.TRIGGER_BLOCK_S
        )
        self._doorbell = Doorbell(settings.CACHE_URL)
        self._isolation = Isolation(job_id=self._job.id, environ=environ)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_heard = asyncio.Event()
        self._watched_told = 0

    def stop(self, *_: object) -> None:
        """The loop ends soon. Callable from a signal handler or a thread."""
        self._stopping.set()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop_heard.set)

    def run(self) -> None:
        """Watches until stopped. Raises ``psycopg.OperationalError`` if the database is not there."""
        self._job.start()
        self._teller.start()
        try:
            asyncio.run(self._main())
        finally:
            self._teller.stop()
            self._watchdog.stop()
            self._link.close()
            self._last_step.remove()
            self._job.end()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_task_factory(task_factory(self._steps))
        self._loop.set_default_executor(ThreadPoolExecutor(LOOK_THREADS, "looks"))
        self._files = QuickLooks()
        self._runs = RunLooks(self._link)
        self._fires = Fires(self._link, self._notices, on_done=self._told)
        self._watch = Watch(
            link=self._link,
            fires=self._fires,
            steps=self._steps,
            files=self._files,
            runs=self._runs,
            isolation=self._isolation,
            cache_dir=settings.DATA_DIR / "bundles",
        )
        self._watchdog.start()
        await self._link.ask(self._name_killers)
        if self._stopping.is_set():
            self._stop_heard.set()
        steady = [
            asyncio.create_task(each)
            for each in (
                self._fire_due(),
                self._claim(),
                self._fires.write(),
                self._files.run(),
                self._runs.run(),
                self._doorbell.listen(),
            )
        ]
        stop = asyncio.create_task(self._stop_heard.wait())
        try:
            # One of them ends only by a fault of this program; the supervisor starts it again.
            await asyncio.wait([stop, *steady], return_when=asyncio.FIRST_COMPLETED)
            for task in steady:
                if task.done():
                    task.result()
        finally:
            await self._give_up(steady)

    async def _give_up(self, steady: list[asyncio.Task[None]]) -> None:
        """What came to something is written; the rest may be watched by others at once."""
        logger.info("the triggerer stops", extra={"watched": len(self._watch)})
        claiming = steady[1]
        claiming.cancel()
        await asyncio.wait([claiming])
        await self._watch.stop()
        await self._fires.flush(FLUSH_S)
        for task in steady:
            task.cancel()
        await asyncio.wait(steady)
        self._files.close()
        try:
            await self._link.ask(self._release)
        except psycopg.Error as error:
            logger.warning("triggers were not given up", extra={"error": str(error).strip()})

    def _look(self, connection: psycopg.Connection[Any]) -> None:
        # Not in the first moments of a stack, when a scheduler may still be on its way.
        if time.monotonic() - self._started > settings.HEARTBEAT_DEAD_AFTER_S:
            watch_for_schedulers(connection, dead_after_s=settings.HEARTBEAT_DEAD_AFTER_S)

    def _name_killers(self, connection: psycopg.Connection[Any]) -> None:
        """Triggers at whose steps triggerers of this host died are run by themselves from now on."""
        for trigger_id in left_behind(self._folder):
            logger.warning("a triggerer died in a trigger", extra={"trigger_id": trigger_id})
            note_blocked(connection, trigger_id=trigger_id)
            raise_incident(
                connection,
                kind="trigger_blocks",
                subject=f"trigger {trigger_id}",
                message=(
                    f"A triggerer died while it ran code of trigger {trigger_id}. The trigger goes "
                    "on in a process of its own."
                ),
            )

    def _told(self, trigger_ids: Iterable[int]) -> None:
        self._watch.told(trigger_ids)

    # -- what is due --------------------------------------------------------------------------

    async def _fire_due(self) -> None:
        bell = self._doorbell.bell()
        while True:
            try:
                done = await self._link.ask(self._fire_some)
            except psycopg.Error as error:
                logger.warning("nothing is fired", extra={"error": str(error).strip()})
                await asyncio.sleep(RETRY_S)
                continue
            # The loop has been round, and the database has answered: this is progress.
            self._job.progressed()
            await heard(bell, _pause_s(done, self._turn_s()))

    def _turn_s(self) -> float:
        # Often enough for the job row to show the loop's progress at every beat.
        most_s = QUIET_TURN_S if self._doorbell.is_heard else TURN_S
        return min(most_s, settings.HEARTBEAT_INTERVAL_S / 2)

    def _fire_some(self, connection: psycopg.Connection[Any]) -> Round:
        done = fire_due(connection, limit=DUE_MAX)
        tell(self._notices, done.fired)
        return done

    def _release(self, connection: psycopg.Connection[Any]) -> None:
        if release_triggers(connection, job_id=self._job.id):
            self._notices.triggers()

    # -- what nobody watches ------------------------------------------------------------------

    async def _claim(self) -> None:
        bell = self._doorbell.bell()
        next_check = 0.0
        while True:
            try:
                claimed = await self._link.ask(self._claim_some)
                self._watch.start(claimed)
                if time.monotonic() >= next_check:
                    next_check = time.monotonic() + settings.HEARTBEAT_INTERVAL_S
                    await self._check()
            except psycopg.Error as error:
                logger.warning("nothing is claimed", extra={"error": str(error).strip()})
                await asyncio.sleep(RETRY_S)
                continue
            await heard(bell, 0.0 if len(claimed) == CLAIM_MAX else self._turn_s())

    def _claim_some(self, connection: psycopg.Connection[Any]) -> list[ClaimedTrigger]:
        room = min(CLAIM_MAX, self._capacity - len(self._watch))
        if room <= 0:
            return []
        return claim_triggers(
            connection,
            job_id=self._job.id,
            limit=room,
            dead_after_s=settings.HEARTBEAT_DEAD_AFTER_S,
        )

    async def _check(self) -> None:
        """What is no longer this triggerer's is dropped: it stalled, or somebody else fired it."""
        before = self._watch.ids()
        mine = await self._link.ask(lambda connection: watched_by(connection, job_id=self._job.id))
        self._watch.drop(before - mine)
        # Claimed, but the answer was lost on its way: nobody watches them.
        if lost := sorted(mine - before):
            await self._link.ask(
                lambda connection: release_triggers(
                    connection, job_id=self._job.id, trigger_ids=lost
                )
            )
        if len(self._watch) != self._watched_told:
            self._watched_told = len(self._watch)
            self._job.set_detail(watched=self._watched_told)


def _pause_s(done: Round, turn_s: float) -> float:
    if done.is_full:
        return 0.0
    if any(one.what == "again" for one in done.fired):
        return AGAIN_S
    return turn_s if done.next_in_s is None else min(turn_s, done.next_in_s)
