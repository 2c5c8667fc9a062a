"""The job row of a process: started, beating on its own connection, asked to stop, ended."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

import psycopg
from django.conf import settings

from scheduler_app.processes import database
from scheduler_app.processes.host_clock import wall_clock_s
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.inquiry import answer_inquiries, open_inquiries
from scheduler_app.transitions.job import (
    Clock,
    JobAnswer,
    beat_job,
    bury_jobs,
    count_beat_failures,
    end_job,
    read_job,
    start_job,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scheduler_app.transitions.inquiry import Holding

LOOK_S: Final = 1.0  # between two looks at whether a stop is asked for
NONCES_KEPT: Final = 1000  # more than an hour of heartbeats
TWIN_EXIT: Final = 70  # exit code of a copied process whose original beats

logger = logging.getLogger(__name__)


class JobRow:
    """One process incarnation. ``start`` writes its row; a thread beats; ``end`` closes it.

    The thread only carries what the loop says: ``progressed()`` must be called by the loop itself,
    so a stalled loop shows an old ``progress_at`` however lively the thread is. The thread also
    reads whether somebody wants the process to stop, and calls ``on_stop`` once. A copy of the
    process (a fork, a restored snapshot of its machine) that beats under the same row ends at once.
    """

    def __init__(
        self,
        *,
        kind: str,
        name: str = "",
        detail: dict[str, Any] | None = None,
        on_stop: Callable[[], None],
        on_twin: Callable[[], None] | None = None,
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
        self._on_twin = on_twin or _leave
        self._is_stop_heard = False
        self._is_drained = False
        self._clock: Clock | None = None  # as the newest heartbeat measured it
        self._failures = 0  # heartbeats that failed and are not counted yet
        # One of these is in the row: the newest, or an older one if an answer was lost or the
        # database went back to a state of before. A copy of this process leaves others.
        self._nonces: deque[UUID] = deque([uuid4()], maxlen=NONCES_KEPT)
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
                nonce=self._nonces[-1],
            )
        self._thread.start()

    def progressed(self) -> None:
        """The loop got on; the next beat says so, and the first time it goes out at once."""
        self._progressed.set()
        if not self._has_progressed:
            self._has_progressed = True
            self._detail_changed = True

    @property
    def is_drained(self) -> bool:
        """Whether somebody wants this process to give up its part of the work and take no more."""
        return self._is_drained

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
                self._count_failures(connection)
        except psycopg.Error as error:
            logger.warning("the job row could not be ended", extra={"error": str(error)})

    def _beat_forever(self) -> None:
        connection: psycopg.Connection[Any] | None = None
        next_beat = 0.0
        while not self._ending.wait(max(0.0, min(LOOK_S, next_beat - time.monotonic()))):
            # A first or changed detail goes out at once; others wait for the interval.
            is_beat = self._detail_changed or time.monotonic() >= next_beat
            if is_beat:
                next_beat = time.monotonic() + settings.HEARTBEAT_INTERVAL_S
            try:
                if connection is None or connection.closed:
                    connection = database.connect("lease", name=self.kind)
                self._heed(
                    self.beat(connection) if is_beat else read_job(connection, job_id=self.id)
                )
            except psycopg.Error as error:
                if is_beat:
                    self._failures += 1
                    logger.warning(
                        "heartbeat failed", extra={"kind": self.kind, "error": str(error)}
                    )
                if connection is not None:
                    connection.close()
                connection = None
                next_beat = max(next_beat, time.monotonic() + LOOK_S)
        if connection is not None:
            connection.close()

    def beat(self, connection: psycopg.Connection[Any]) -> JobAnswer:
        """One heartbeat; what the row says. Raises ``psycopg.Error``."""
        progressed = self._progressed.is_set()
        self._progressed.clear()
        detail = self._detail if self._detail_changed else None
        self._detail_changed = False
        before, nonce = self._nonces[-1], uuid4()
        self._nonces.append(nonce)  # it may be in the row even if the answer is lost
        answer = self._beat(connection, before, nonce, progressed=progressed, detail=detail)
        if answer.has_twin and answer.nonce in self._nonces:
            answer = self._beat(
                connection, answer.nonce, nonce, progressed=progressed, detail=detail
            )
        if answer.has_twin:
            return answer
        self._count_failures(connection)
        bury_jobs(connection, silent_for_s=settings.HEARTBEAT_DEAD_AFTER_S)
        if self._holdings is not None:
            self._answer(connection, self._holdings)
        return answer

    def _answer(
        self, connection: psycopg.Connection[Any], holdings: Callable[[], Sequence[Holding]]
    ) -> None:
        """Whoever asked which attempts this process runs has the answer of now."""
        asked = open_inquiries(connection, worker_job_id=self.id)
        if asked:
            answer_inquiries(connection, inquiry_ids=asked, holdings=holdings())

    def _beat(
        self,
        connection: psycopg.Connection[Any],
        before: UUID | None,
        nonce: UUID,
        *,
        progressed: bool,
        detail: dict[str, Any] | None,
    ) -> JobAnswer:
        sent = wall_clock_s()
        answer = beat_job(
            connection,
            job_id=self.id,
            progressed=progressed,
            detail=detail,
            pid=os.getpid(),
            before=before,
            nonce=nonce,
            clock=self._clock,
        )
        heard = wall_clock_s()
        if answer.at is not None:
            middle = (sent + heard) / 2
            self._clock = Clock(
                ahead_s=round(middle - answer.at.timestamp(), 4),
                within_s=round(abs(heard - sent) / 2, 4),
            )
        return answer

    def _count_failures(self, connection: psycopg.Connection[Any]) -> None:
        failures = self._failures
        count_beat_failures(connection, kind=self.kind, failures=failures)
        self._failures -= failures

    def _heed(self, answer: JobAnswer) -> None:
        """A stop is passed on once; a copy leaves without touching what is the original's."""
        self._heed_drain(answer)
        if answer.has_twin:
            logger.critical(
                "another process beats under this job row: this copy ends",
                extra={"kind": self.kind, "job_id": str(self.id), "pid": os.getpid()},
            )
            self._on_twin()
        elif answer.stop_reason is not None and not self._is_stop_heard:
            self._is_stop_heard = True
            logger.info(
                "a stop was asked for", extra={"kind": self.kind, "reason": answer.stop_reason}
            )
            self._on_stop()

    def _heed_drain(self, answer: JobAnswer) -> None:
        if answer.is_drained != self._is_drained:
            self._is_drained = answer.is_drained
            said = "drained" if answer.is_drained else "undrained"
            logger.info("this process is %s", said, extra={"kind": self.kind})


def _leave() -> None:
    # Not by an orderly end: that would give back leases, triggers and attempts of the original.
    os._exit(TWIN_EXIT)
