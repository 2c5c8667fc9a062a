"""One worker process: its job row, its folder, its witness, and the consumer, from start to a bounded end."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Final

import psycopg
from django.conf import settings

from scheduler_app.hints.notices import Notices
from scheduler_app.processes import database
from scheduler_app.processes.job import JobRow
from scheduler_app.transitions.attempt import ask_for_publication
from scheduler_app.worker import folder, leftovers
from scheduler_app.worker.beats import Beats, kill_group
from scheduler_app.worker.consumer import Duties
from scheduler_app.worker.logs import Logs
from scheduler_app.worker.station import NotePipe, Station, set_station
from scheduler_app.worker.witness import Witness, set_witness

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from scheduler_app.transitions.inquiry import Holding
    from scheduler_app.worker.consumer import Consumer

POLL_S: Final = 0.05
# After WORKER_DRAIN_S, in which running tasks may end by themselves, their user code gets an
# exception and so long to end; then they are killed.
STOP_GRACE_S: Final = 1.0
CONSUMER_END_S: Final = 3.0
FLUSH_S: Final = 1.5  # then events and logs are written

TIDY_INTERVAL_S: Final = 3600.0  # of unpacked sources

logger = logging.getLogger(__name__)


class Worker:
    """One worker. ``run`` returns the exit code after ``stop``, or after the consumer failed."""

    def __init__(
        self, *, consumer: Consumer, queues: Sequence[str], concurrency: int, name: str = ""
    ) -> None:
        self._consumer = consumer
        self._queues = list(queues)
        self._concurrency = concurrency
        self._job = JobRow(
            kind="worker",
            name=name,
            detail={
                "queues": self._queues,
                "concurrency": concurrency,
                "carrier": consumer.carrier,
            },
            on_stop=self.stop,
            holdings=self._holdings,
        )
        self._notices = Notices(settings.CACHE_URL)
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._is_paused = False

    def stop(self, *_: object) -> None:
        """No more deliveries are taken; ends within about 10 s. Callable from anywhere."""
        self._stopping.set()
        self._consumer.stop()

    def run(self) -> int:
        """Works until stopped. Raises ``psycopg.OperationalError`` if the database is not there."""
        self._job.start()
        at = Station(
            job_id=self._job.id,
            hostname=socket.gethostname(),
            main_pid=os.getpid(),
            folder=folder.create(settings.DATA_DIR / "spool", job_id=self._job.id),
            bundles=settings.DATA_DIR / "bundles",
            notes=NotePipe.open(),
        )
        set_station(at)
        self._at = at
        self._witness = Witness(at, notices=self._notices)
        self._beats = Beats(at, self._witness, notices=self._notices)
        self._logs = Logs(at, self._witness, notices=self._notices)
        self._witness.on_printed = self._logs.ended
        set_witness(self._witness)
        threads = (self._witness, self._beats, self._logs)
        for thread in threads:
            thread.start()
        threading.Thread(target=self._send_leftovers, name="leftovers", daemon=True).start()
        threading.Thread(target=self._drain, name="drain", daemon=True).start()
        code = self._consumer.run(
            Duties(
                job_id=self._job.id,
                name=self._job.name,
                queues=tuple(self._queues),
                concurrency=self._concurrency,
                turn=self._turn,
                give_back=self._give_back,
                executing=lambda: len(self._witness.executions()),
                taken=lambda: self._witness.taken,
            )
        )
        self._stopping.set()
        self._ended.wait(settings.WORKER_DRAIN_S + 2 * STOP_GRACE_S + 3 * FLUSH_S)
        return code

    def _holdings(self) -> list[Holding]:
        witness: Witness | None = getattr(self, "_witness", None)
        return [] if witness is None else witness.holdings()  # asked before it took anything

    def _turn(self) -> bool:
        """The consumer gets on; whether it may start something: not while the database is away."""
        self._job.progressed()
        is_away = self._witness.is_database_away()
        if is_away and not self._is_paused:
            logger.warning("no deliveries are taken: the database is away")
        self._is_paused = is_away
        return not is_away

    def _give_back(self, attempt_ids: Sequence[UUID]) -> None:
        """Attempts that nobody will start here are published again by the next sweep.

        While the database is away nothing is said: the sweep then finds out by itself, later.
        """
        logger.info("deliveries are given back", extra={"deliveries": len(attempt_ids)})
        try:
            with database.connect("worker", name="give-back") as connection:
                ask_for_publication(connection, attempt_ids=attempt_ids)
        except psycopg.Error as error:
            logger.warning("they wait to be missed", extra={"error": str(error).strip()})

    def _send_leftovers(self) -> None:
        leftovers.send_all(settings.DATA_DIR / "spool", job_id=self._job.id, notices=self._notices)
        leftovers.tidy_sources(self._at.bundles)
        while not self._stopping.wait(TIDY_INTERVAL_S):
            leftovers.tidy_sources(self._at.bundles)

    # -- the end ------------------------------------------------------------------------------

    def _drain(self) -> None:
        """After a stop: running tasks end, or are ended and handed back; then the process ends."""
        self._stopping.wait()
        logger.info("the worker stops", extra={"running": len(self._witness.executions())})
        self._wait_for_executions(settings.WORKER_DRAIN_S)
        for execution in self._witness.executions():
            self._beats.ask_to_give_back(execution, why="its worker stops")
        self._wait_for_executions(STOP_GRACE_S)
        for execution in self._witness.executions():
            kill_group(execution.pid)
        self._wait_for_executions(STOP_GRACE_S)
        self._beats.stop(FLUSH_S)
        self._witness.stop(FLUSH_S)
        self._logs.stop(FLUSH_S)
        self._job.end()
        self._at.folder.remove()
        self._ended.set()
        # The consumer looks up every second or two; if it is not through by then, it never will be.
        time.sleep(CONSUMER_END_S)
        logger.warning("the consumer did not end by itself")
        os._exit(0)

    def _wait_for_executions(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while self._witness.executions() and time.monotonic() < deadline:
            time.sleep(POLL_S)
