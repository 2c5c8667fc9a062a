"""The web process: uvicorn, and a job row that its event loop moves."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

import uvicorn

from scheduler_app.processes.job import JobRow

if TYPE_CHECKING:
    from types import FrameType

APPLICATION: Final = "scheduler_app.config.asgi:application"
GRACE_S: Final = 5  # for open requests and sockets, well within the supervisor's own grace
TICKS_A_PROGRESS: Final = 10  # uvicorn ticks ten times a second


class _Server(uvicorn.Server):
    """Says with each turn of the event loop that the process gets on."""

    def __init__(self, config: uvicorn.Config, job: JobRow) -> None:
        super().__init__(config)
        self._job = job

    async def on_tick(self, counter: int) -> bool:
        """Whether to end."""
        if counter % TICKS_A_PROGRESS == 0:
            self._job.progressed()
        return await super().on_tick(counter)


def serve(*, host: str, port: int, name: str = "") -> None:
    """Pages and API were served until SIGTERM or SIGINT. Raises ``SystemExit`` if it cannot start."""
    # uvicorn takes the signals while it serves, and gives them back to these when it has ended.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _ignore)

    def stop() -> None:
        server.should_exit = True  # uvicorn looks at its next turn, as it does after a signal

    job = JobRow(kind="web", name=name, detail={"host": host, "port": port}, on_stop=stop)
    config = uvicorn.Config(
        APPLICATION,
        host=host,
        port=port,
        loop="asyncio",
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


def _ignore(number: int, frame: FrameType | None) -> None:
    del number, frame
