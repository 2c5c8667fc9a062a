"""The triggerer's loop: asyncio, its liveness proven by the loop itself."""

from __future__ import annotations

import asyncio
import threading
from typing import Final

from scheduler_app.processes.job import JobRow

TURN_S: Final = 1.0


class Triggerer:
    """One triggerer process. ``run`` returns after ``stop``."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._job = JobRow(kind="triggerer", on_stop=self.stop)

    def stop(self, *_: object) -> None:
        """The loop ends within a turn. Callable from a signal handler or a thread."""
        self._stopping.set()

    def run(self) -> None:
        """Turns until stopped. Raises ``psycopg.OperationalError`` if the database is not there."""
        self._job.start()
        try:
            asyncio.run(self._loop())
        finally:
            self._job.end()

    async def _loop(self) -> None:
        while not self._stopping.is_set():
            self._job.progressed()
            await asyncio.sleep(TURN_S)
