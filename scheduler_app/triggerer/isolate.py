"""A trigger that blocked the loop goes on in a process of its own, where it hurts only itself."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, Final

import psycopg
from django.conf import settings
from psycopg.rows import class_row

from scheduler_app.hints.notices import Notices
from scheduler_app.processes import database
from scheduler_app.transitions.trigger import ClaimedTrigger, Fired, fire
from scheduler_app.triggerer import fires, load, outcome

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

ISOLATED_MAX: Final = 8  # processes of one triggerer; others wait for a place
PR_SET_PDEATHSIG: Final = 1
STOP_WITHIN_S: Final = 2.0
AGAIN_S: Final = 0.1
AGAIN_MAX: Final = 600

logger = logging.getLogger(__name__)


class Ended(Exception):
    """The process of an isolated trigger ended without a result."""


class Isolation:
    """The processes of one triggerer's isolated triggers."""

    def __init__(self, *, job_id: UUID, environ: Mapping[str, str]) -> None:
        self._job_id = job_id
        self._environ = dict(environ)
        self._places = asyncio.Semaphore(ISOLATED_MAX)

    async def run(self, trigger_id: int) -> None:
        """Its process has fired it. Raises ``Ended`` if it did not; cancelling ends the process."""
        async with self._places:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                str(settings.BASE_DIR / "manage.py"),
                "triggerer",
                "--isolated",
                str(trigger_id),
                "--job",
                str(self._job_id),
                env=self._environ,
                process_group=0,
            )
            try:
                code = await process.wait()
            except asyncio.CancelledError:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
                raise
            if code != 0:
                message = f"the process of the isolated trigger ended with {code}"
                raise Ended(message)


def run_isolated(trigger_id: int, job_id: UUID) -> None:
    """The whole life of such a process: the trigger, if it is still this triggerer's, has fired."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    cache_dir = settings.DATA_DIR / "bundles"
    with database.connect("triggerer", name="isolated") as connection:
        claimed = _claimed(connection, trigger_id, job_id)
        if claimed is None:
            return
        if not load.is_built_in(claimed):
            load.unpack_source(connection, claimed, cache_dir)
    try:
        if not load.is_built_in(claimed):
            load.Source(cache_dir).entrance(claimed)()
        event = asyncio.run(load.make(claimed).run())
    except (Exception, SystemExit) as error:  # noqa: BLE001 - user code: what it raises is told to the task
        what = outcome.failed(trigger_id, error)
    else:
        what = outcome.happened(trigger_id, event, bytes_max=settings.RESULT_BYTES_MAX)
    asyncio.run(_fire(what))


async def _fire(what: Any) -> None:
    """Fired, however long the database is away."""
    for _ in range(AGAIN_MAX):
        try:
            with database.connect("triggerer", name="isolated") as connection:
                fired: list[Fired] = fire(connection, fires=[what])
        except psycopg.Error as error:
            logger.warning("the database is away", extra={"error": str(error).strip()})
        else:
            fires.tell(Notices(settings.CACHE_URL), fired)
            if fired[0].what != "again":
                return
        await asyncio.sleep(AGAIN_S)
    message = "the result could not be written"
    raise Ended(message)


def _claimed(
    connection: psycopg.Connection[Any], trigger_id: int, job_id: UUID
) -> ClaimedTrigger | None:
    with connection.cursor(row_factory=class_row(ClaimedTrigger)) as cursor:
        cursor.execute(
            "SELECT g.id AS trigger_id, g.ti_id, g.run_id, g.classpath, g.kwargs, g.block_count,"
            "  r.flow_id, r.run_key, i.task_id, v.bundle_id AS bundle_digest"
            " FROM trigger g JOIN task_instance i ON i.id = g.ti_id JOIN run r ON r.id = g.run_id"
            "  JOIN flow_version v ON v.id = r.version_id"
            " WHERE g.id = %s AND g.triggerer_job_id = %s AND g.is_waiting AND g.state = 'waiting'",
            [trigger_id, job_id],
        )
        return cursor.fetchone()
