"""The triggers that this triggerer watches: started when claimed, dropped when they are no longer its."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import psycopg
from django.conf import settings

from scheduler_app.authoring.triggers import FileTrigger, RunTrigger, Trigger
from scheduler_app.transitions.incident import raise_incident
from scheduler_app.transitions.trigger import note_blocked
from scheduler_app.triggerer import load, outcome
from scheduler_app.triggerer.isolate import Ended, Isolation
from scheduler_app.triggerer.steps import Blocked, Steps, run_as

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable
    from pathlib import Path

    from scheduler_app.transitions.trigger import ClaimedTrigger, Fire
    from scheduler_app.triggerer.fires import Fires
    from scheduler_app.triggerer.link import Link
    from scheduler_app.triggerer.looks import QuickLooks, RunLooks

RETRY_S: Final = 1.0  # while the database is away
BLOCKS_MAX: Final = 3  # then it is not run again: it fails
DROP_WITHIN_S: Final = 2.0  # for user code to end when it is cancelled

logger = logging.getLogger(__name__)


class TriggerBlocked(Exception):
    """The trigger kept its loop again and again."""


class Watch:
    """One asyncio task per watched trigger."""

    def __init__(
        self,
        *,
        link: Link,
        fires: Fires,
        steps: Steps,
        files: QuickLooks,
        runs: RunLooks,
        isolation: Isolation,
        cache_dir: Path,
    ) -> None:
        self._link = link
        self._fires = fires
        self._steps = steps
        self._files = files
        self._runs = runs
        self._isolation = isolation
        self._cache_dir = cache_dir
        self._source = load.Source(cache_dir)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._ended: set[int] = set()  # came to something that the database was not told yet

    def __len__(self) -> int:
        return len(self._tasks.keys() | self._ended)

    def ids(self) -> frozenset[int]:
        """The triggers that this triggerer takes for its own."""
        return frozenset(self._tasks.keys() | self._ended)

    def start(self, claimed: Iterable[ClaimedTrigger]) -> None:
        """Each of them is watched, once."""
        for one in claimed:
            if one.trigger_id not in self._tasks and one.trigger_id not in self._ended:
                task = asyncio.create_task(self._run(one))
                self._tasks[one.trigger_id] = task
                task.add_done_callback(partial(self._drop, one.trigger_id))

    def drop(self, trigger_ids: Iterable[int]) -> None:
        """Their code is cancelled: somebody else fired them, cancelled them, or watches them now."""
        for trigger_id in trigger_ids:
            self._ended.discard(trigger_id)
            if (task := self._tasks.get(trigger_id)) is not None:
                task.cancel()

    def told(self, trigger_ids: Iterable[int]) -> None:
        """The database knows what these came to."""
        self._ended.difference_update(trigger_ids)

    async def stop(self) -> None:
        """No code of a trigger runs, or it does not mind being cancelled."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=DROP_WITHIN_S)

    def _drop(self, trigger_id: int, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a trigger is not watched", exc_info=error)
        self._tasks.pop(trigger_id, None)

    async def _run(self, claimed: ClaimedTrigger) -> None:
        try:
            fire = await self._outcome(claimed)
        except Ended as error:
            fire = outcome.failed(claimed.trigger_id, error)
        if fire is not None:
            self._ended.add(claimed.trigger_id)
            self._fires.put(fire)

    async def _outcome(self, claimed: ClaimedTrigger) -> Fire | None:
        """What it came to; ``None`` where a process of its own has told the database already."""
        blocks = claimed.block_count
        if blocks == 0:
            try:
                event = await self._in_loop(claimed)
            except Blocked:
                blocks = await self._note_blocked(claimed)
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise  # dropped
                return outcome.failed(claimed.trigger_id, error)
            except Exception as error:  # noqa: BLE001 - user code: what it raises is told to the task
                return outcome.failed(claimed.trigger_id, error)
            else:
                return outcome.happened(
                    claimed.trigger_id, event, bytes_max=settings.RESULT_BYTES_MAX
                )
        if blocks > BLOCKS_MAX:
            reason = f"it kept its loop {blocks} times; it is not run again"
            return outcome.failed(claimed.trigger_id, TriggerBlocked(reason))
        await self._isolation.run(claimed.trigger_id)
        return None

    async def _in_loop(self, claimed: ClaimedTrigger) -> Any:
        enter = None
        if not load.is_built_in(claimed):
            await self._unpacked(claimed)
            enter = self._source.entrance(claimed)
        owner = load.owner_of(claimed, enter)
        try:
            with self._steps.of(owner):
                trigger = load.make(claimed)
                coroutine = self._coroutine(trigger)
            # In a task of its own, so that what its code starts is known by its context.
            return await asyncio.create_task(run_as(owner, coroutine, self._steps))
        except BaseException as error:
            if owner.is_blocked and not isinstance(error, Blocked):
                raise Blocked(owner.label) from error  # it raised something else on its way out
            raise

    def _coroutine(self, trigger: Trigger) -> Coroutine[Any, Any, Any]:
        if type(trigger) is FileTrigger:
            return self._files.until(trigger)
        if isinstance(trigger, RunTrigger):
            return self._runs.until(trigger)
        return trigger.run()

    async def _unpacked(self, claimed: ClaimedTrigger) -> None:
        while True:
            try:
                await self._link.ask(
                    lambda connection: load.unpack_source(connection, claimed, self._cache_dir)
                )
            except psycopg.Error as error:
                logger.warning("the database is away", extra={"error": str(error).strip()})
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _note_blocked(self, claimed: ClaimedTrigger) -> int:
        owner = load.owner_of(claimed, None)
        message = (
            f"{owner.label} kept a triggerer's loop for more than {settings.TRIGGER_BLOCK_S:g} s and was "
            "interrupted. It goes on in a process of its own. Await what takes long, or use "
            "asyncio.to_thread."
        )

        def note(connection: psycopg.Connection[Any]) -> int:
            raise_incident(
                connection,
                kind="trigger_blocks",
                subject=owner.subject,
                message=message,
            )
            return note_blocked(connection, trigger_id=claimed.trigger_id)

        while True:
            try:
                return await self._link.ask(note)
            except psycopg.Error as error:
                logger.warning("a block was not noted", extra={"error": str(error).strip()})
                await asyncio.sleep(RETRY_S)
