"""The web process: uvicorn, and a job row that its event loop moves."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from django.conf import settings
from django.db import connections

from scheduler_app.launch.http import BoundedProtocol
from scheduler_app.processes import database
from scheduler_app.processes.job import JobRow

if TYPE_CHECKING:
    from types import FrameType

APPLICATION: Final = "scheduler_app.config.asgi:application"
GRACE_S: Final = 5  # for open requests and sockets, well within the supervisor's own grace
TICK_S: Final = 1.0  # between two dates in the heads of answers, and two progresses of the job row
# Requests after which what a process makes at its first ones, as addresses and templates, has been made.
SETTLED_AFTER: Final = 100


class _Server(uvicorn.Server):
    """Says with each turn of its event loop that the process gets on.

    uvicorn's own loop looks ten times a second whether it is to end; this one is told.
    """

    def __init__(self, config: uvicorn.Config, job: JobRow) -> None:
        super().__init__(config)
        self._job = job
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()

    def stop(self) -> None:
        """It ends soon. Callable from anywhere."""
        self.should_exit = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._woken.set)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """As uvicorn takes a signal, and at once."""
        super().handle_exit(sig, frame)
        self.stop()

    async def main_loop(self) -> None:
        """Serves until it is told to stop."""
        self._loop = asyncio.get_running_loop()
        # A collection looks at all that is kept, and for as long no request gets on: 90 ms for what is loaded.
        _keep_all()
        is_settled = False
        while not await self.on_tick(0):
            self._job.progressed()
            if not is_settled and self.server_state.total_requests >= SETTLED_AFTER:
                is_settled = True
                _keep_all()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._woken.wait()


def serve(*, host: str, port: int, name: str = "") -> None:
    """Pages and API were served until SIGTERM or SIGINT. Raises ``SystemExit`` if it cannot start."""
    settings.DATABASES["default"].update(settings.DATABASE_OF_WEB)
    look_before_use(connections["default"])
    # uvicorn takes the signals while it serves, and gives them back to these when it has ended.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _ignore)

    def stop() -> None:
        server.stop()

    job = JobRow(kind="web", name=name, detail={"host": host, "port": port}, on_stop=stop)
    config = uvicorn.Config(
        APPLICATION,
        host=host,
        port=port,
        loop="asyncio",
        http=BoundedProtocol,
        lifespan="off",
        ws_max_size=64 * 1024,  # the feed takes small messages alone
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    server = _Server(config, job)
    job.start()
    try:
        server.run()
    finally:
        job.end()


def look_before_use(django: Any) -> None:
    """Connections of its pool are looked at before a request uses them; Django would have them ask each time."""
    if django.pool is not None:
        django.pool._check = database.check  # noqa: SLF001 - Django passes its own, and takes no other


def _keep_all() -> None:
    """What there is by now is no garbage: no collection looks at it any more."""
    gc.collect()
    gc.freeze()


def _ignore(number: int, frame: FrameType | None) -> None:
    del number, frame
