"""One worker process: its job row, its folder, its witness, and the consumer, from start to a bounded end."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from celery import signals
from celery.worker import state
from celery.worker.worker import WorkController
from django.conf import settings

from scheduler_app.executors.celery import broker_queue
from scheduler_app.hints.notices import Notices
from scheduler_app.processes.job import JobRow
from scheduler_app.worker import folder, leftovers
from scheduler_app.worker.beats import Beats, kill_group
from scheduler_app.worker.child import start_child
from scheduler_app.worker.logs import Logs
from scheduler_app.worker.station import NotePipe, Station, set_station
from scheduler_app.worker.witness import Witness, set_witness

if TYPE_CHECKING:
    from collections.abc import Sequence

    from celery import Celery

    from scheduler_app.transitions.inquiry import Holding

TURN_S: Final = 0.5
POLL_S: Final = 0.05
# After WORKER_DRAIN_S, in which running tasks may end by themselves, their user code gets an
# exception and so long to end; then they are killed.
STOP_GRACE_S: Final = 1.0
CONSUMER_END_S: Final = 3.0
FLUSH_S: Final = 1.5  # then events and logs are written
POOL_LOST_WAIT_S: Final = 1.0  # where children cannot be watched, the pool notices after so long

logger = logging.getLogger(__name__)


class Worker:
    """One worker. ``run`` returns the exit code after ``stop``, or after the consumer failed."""

    def __init__(
        self, *, app: Celery, queues: Sequence[str], concurrency: int, name: str = ""
    ) -> None:
        self._app = app
        self._queues = list(queues)
        self._concurrency = concurrency
        self._job = JobRow(
            kind="worker",
            name=name,
            detail={"queues": self._queues, "concurrency": concurrency},
            on_stop=self.stop,
            holdings=self._holdings,
        )
        self._notices = Notices(settings.CACHE_URL)
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._paused: Any = None  # the message consumer that was paused

    def stop(self, *_: object) -> None:
        """No more deliveries are taken; ends within about 10 s. Callable from anywhere."""
        self._stopping.set()
        setattr(state, "should_stop", 0)  # noqa: B010 - the stub says it is always None

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
        consumer = self._consumer()
        threads = (self._witness, self._beats, self._logs)
        for thread in threads:
            thread.start()
        threading.Thread(target=self._send_leftovers, name="leftovers", daemon=True).start()
        threading.Thread(target=self._drain, name="drain", daemon=True).start()
        consumer.start()
        self._stopping.set()
        self._ended.wait(settings.WORKER_DRAIN_S + 2 * STOP_GRACE_S + 3 * FLUSH_S)
        return int(consumer.exitcode or 0)

    def _holdings(self) -> list[Holding]:
        witness: Witness | None = getattr(self, "_witness", None)
        return [] if witness is None else witness.holdings()  # asked before it took anything

    def _consumer(self) -> WorkController:
        self._app.conf.worker_lost_wait = POOL_LOST_WAIT_S
        self._app.conf.worker_disable_prefetch = True
        self._app.conf.worker_pool_start_method = "fork"
        signals.setup_logging.connect(_keep_logging, weak=False)
        signals.worker_process_init.connect(_on_child, weak=False)
        return WorkController(
            app=self._app,
            hostname=f"{self._job.name or 'worker'}-{self._job.id}@{socket.gethostname()}",
            queues=[broker_queue(queue) for queue in self._queues],
            concurrency=self._concurrency,
            pool_cls="prefork",
            loglevel="WARNING",
            ready_callback=self._on_ready,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )

    def _on_ready(self, consumer: Any) -> None:
        logger.info(
            "the worker takes deliveries",
            extra={"queues": self._queues, "concurrency": self._concurrency},
        )
        consumer.hub.call_repeatedly(TURN_S, self._turn, consumer)

    def _turn(self, consumer: Any) -> None:
        """Part of the event loop: its progress, and no more deliveries while the database is away."""
        self._job.progressed()
        messages = consumer.task_consumer
        if messages is None or self._stopping.is_set():
            return
        is_away = self._witness.is_database_away()
        if is_away and self._paused is not messages:
            logger.warning("no deliveries are taken: the database is away")
            messages.cancel()
            self._paused = messages
        elif not is_away and self._paused is not None:
            if self._paused is messages:  # else a new connection to the broker consumes already
                messages.consume()
            self._paused = None

    def _send_leftovers(self) -> None:
        leftovers.send_all(settings.DATA_DIR / "spool", job_id=self._job.id, notices=self._notices)

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


def _keep_logging(**_: Any) -> None:
    """Celery leaves logging as Django has set it up."""


def _on_child(**_: Any) -> None:
    start_child()
