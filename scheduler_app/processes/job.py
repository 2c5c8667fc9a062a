"""The job row of a process: started, beating on its own connection, ended."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg
from django.conf import settings

from scheduler_app.processes import database
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.inquiry import answer_inquiries, open_inquiries
from scheduler_app.transitions.job import beat_job, bury_jobs, end_job, start_job

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scheduler_app.transitions.inquiry import Holding

logger = logging.getLogger(__name__)


class JobRow:
    """One process incarnation. ``start`` writes its row; a thread beats; ``end`` closes it.

    The thread only carries what the loop says: ``progressed()`` must be called by the loop itself,
    so a stalled loop shows an old ``progress_at`` however lively the thread is.
    """

    def __init__(
        self,
        *,
        kind: str,
        name: str = "",
        detail: dict[str, Any] | None = None,
        on_stop: Callable[[], None] | None = None,
        holdings: Callable[[], Sequence[Holding]] | None = None,
    ) -> None:
        self.id = uuid7()
        self.kind = kind
        self.name = name
        self.hostname = socket.gethostname()
        self.pid = os.getpid()
        self._detail = dict(detail or {})
        self._detail_changed = False
        self._has_progressed = False
        self._on_stop = on_stop
        self._holdings = holdings  # which attempts this process runs, when somebody asks
        self._progressed = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._beat_forever, name="job-beat", daemon=True)

    def start(self) -> None:
        """The row exists and beats. Raises ``psycopg.OperationalError`` without a database."""
        with database.connect("lease", name=self.kind) as connection:
            start_job(
                connection,
                job_id=self.id,
                kind=self.kind,
                name=self.name,
                hostname=self.hostname,
                pid=self.pid,
                detail=self._detail,
            )
        self._thread.start()

    def progressed(self) -> None:
        """The loop got on; the next beat says so, and the first time it goes out at once."""
        self._progressed.set()
        if not self._has_progressed:
            self._has_progressed = True
            self._detail_changed = True

    def set_detail(self, **values: Any) -> None:
        """The next beat stores these values in the row's detail."""
        self._detail = {**self._detail, **values}
        self._detail_changed = True

    def end(self) -> None:
        """The row is ended; errors are logged, since the process goes anyway."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2)
        try:
            with database.connect("lease", name=self.kind) as connection:
                end_job(connection, job_id=self.id)
        except psycopg.Error as error:
            logger.warning("the job row could not be ended", extra={"error": str(error)})

    def _beat_forever(self) -> None:
        interval_s = settings.HEARTBEAT_INTERVAL_S
        connection: psycopg.Connection[Any] | None = None
        next_beat = 0.0
        while not self._ending.wait(max(0.0, min(1.0, next_beat - time.monotonic()))):
            # A first or changed detail goes out at once; others wait for the interval.
            if time.monotonic() < next_beat and not self._detail_changed:
                continue
            next_beat = time.monotonic() + interval_s
            try:
                if connection is None or connection.closed:
                    connection = database.connect("lease", name=self.kind)
                self._beat(connection)
            except psycopg.Error as error:
                logger.warning("heartbeat failed", extra={"kind": self.kind, "error": str(error)})
                connection = None
        if connection is not None:
            connection.close()

    def _beat(self, connection: psycopg.Connection[Any]) -> None:
        progressed = self._progressed.is_set()
        self._progressed.clear()
        detail = self._detail if self._detail_changed else None
        self._detail_changed = False
        stop = beat_job(connection, job_id=self.id, progressed=progressed, detail=detail)
        bury_jobs(connection, silent_for_s=settings.HEARTBEAT_DEAD_AFTER_S)
        if self._holdings is not None:
            self._answer(connection, self._holdings)
        if stop and self._on_stop is not None:
            logger.info("a stop was asked for", extra={"kind": self.kind})
            self._on_stop()

    def _answer(
        self, connection: psycopg.Connection[Any], holdings: Callable[[], Sequence[Holding]]
    ) -> None:
        """Whoever asked which attempts this process runs has the answer of now."""
        asked = open_inquiries(connection, worker_job_id=self.id)
        if asked:
            answer_inquiries(connection, inquiry_ids=asked, holdings=holdings())
