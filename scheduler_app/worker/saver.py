"""What a task saves while it runs: gathered here, written at most once an interval, last before its end.

The connection of the child serves two threads while user code runs: that of the task, and one that
writes what waits when the interval is over. A lock lets one of them at a time use it.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg

from scheduler_app.authoring.saving import NAME, Superseded
from scheduler_app.rules import values
from scheduler_app.rules.errors import InvalidInput
from scheduler_app.transitions.checkpoint import ProgressNow, Save, save
from scheduler_app.worker import report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler_app.worker.child import Child
    from scheduler_app.worker.refuse import Delivery

LAST_ACT_S: Final = 1.0  # of a process that is told to end: so long it waits for a last write
END_TRIES: Final = 2  # the first may meet a connection that a signal tore out of its statement

logger = logging.getLogger(__name__)
T = TypeVar("T")
Key = tuple[str, "str | None", str]


class Saver:
    """What one attempt has set and the database has not yet."""

    def __init__(
        self, me: Child, delivery: Delivery, *, interval_s: float, bytes_max: int, kept: int
    ) -> None:
        self._me = me
        self._delivery = delivery
        self._interval_s = interval_s
        self._bytes_max = bytes_max
        self._kept = kept
        self._pid = os.getpid()
        self._lock = threading.RLock()  # the connection, and all below
        self._waiting: dict[Key, Save] = {}
        self._progress: ProgressNow | None = None
        self._written_at = float("-inf")  # on the monotonic clock
        self._refused = False
        self._is_over = False
        self._thread: _Writing | None = None  # most tasks save nothing

    # -- the task's thread --------------------------------------------------------------------

    def ask(self, question: Callable[[psycopg.Connection[Any]], T]) -> T:
        """What it returns, however long the database is away. Raises ``GaveUp`` when told to stop."""
        self._check_process()
        with self._lock:
            return self._me.link.ask(question, give_up=self._me.guard.asked_to_stop)

    def once(self, question: Callable[[psycopg.Connection[Any]], T]) -> T:
        """What it returns. Raises ``psycopg.Error``."""
        self._check_process()
        with self._lock:
            return self._me.link.once(question)

    def waiting(self, scope: str, owner: str | None, key: str) -> Save | None:
        """What this attempt set there and the database may not have yet."""
        with self._lock:
            return self._waiting.get((scope, owner, key))

    def save(self, scope: str, owner: str | None, given: Mapping[str, Any]) -> None:
        """The values wait, or are written. Raises ``Superseded`` and ``InvalidInput``."""
        self._check_process()
        new = {
            (scope, owner, key): Save(
                scope="name" if scope == NAME else "flow" if scope == "flow" else "task",
                owner=owner,
                key=key,
                value=self._encoded(key, value),
            )
            for key, value in given.items()
        }
        with self._lock:
            self._check_mine()
            self._waiting.update(new)
            self._write_if_due()

    def tell_progress(self, done: int, total: int | None, note: str) -> None:
        """The progress waits, or is written. Raises ``Superseded``."""
        self._check_process()
        with self._lock:
            self._check_mine()
            self._progress = ProgressNow(done=done, total=total, note=note)
            self._write_if_due()

    def flush(self) -> None:
        """Nothing waits. Raises ``Superseded``."""
        self._check_process()
        with self._lock:
            self._check_mine()
            if self._has_waiting():
                self.ask(self._write)
                self._check_mine()

    def refuse(self, connection: psycopg.Connection[Any], what: str) -> None:
        """The write that the database did not take is an executor event; no more are tried."""
        report.record_late_write(
            connection,
            attempt_id=self._delivery.attempt_id,
            nonce=self._delivery.nonce,
            what=what,
            source=report.signature(self._me.at.hostname),
            job_id=self._me.at.job_id,
        )
        self._refused = True

    def hurry(self) -> None:
        """What waits is written now by the other thread, unless that takes too long."""
        thread = self._thread
        if thread is not None and self._has_waiting():
            thread.is_empty.clear()
            thread.hurry.set()
            thread.is_empty.wait(LAST_ACT_S)

    def end(self) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
        """User code is over: what waited is written; what could not be is returned, as JSON."""
        with self._lock:
            self._is_over = True
            if self._thread is not None:
                self._thread.is_due.set()
                self._thread.hurry.set()
            for _ in range(END_TRIES):
                if not self._has_waiting():
                    break
                try:
                    self._me.link.once(self._write)
                except psycopg.Error as error:
                    logger.warning("saves wait", extra={"error": str(error).strip()})
            left = [asdict(one) for one in self._waiting.values()]
            return left, asdict(self._progress) if self._progress else None

    def _encoded(self, key: str, value: Any) -> Any:
        try:
            return values.encode_result(value, self._bytes_max, "checkpoint")
        except InvalidInput as error:
            message = f"Checkpoint {key!r} cannot be saved. {error}"
            raise InvalidInput(message, **{**error.extra, "checkpoint": key}) from None

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise InvalidInput(
                "ctx reaches the database from the process of the task alone. Let the processes that"
                " it starts hand back their values, and save them there."
            )

    def _check_mine(self) -> None:
        if self._refused:
            raise Superseded("A checkpoint or progress")

    def _has_waiting(self) -> bool:
        return bool(self._waiting) or self._progress is not None

    def _write_if_due(self) -> None:
        if time.monotonic() - self._written_at >= self._interval_s:
            self.ask(self._write)
            self._check_mine()
            return
        if self._thread is None:
            self._thread = _Writing(self._keep_writing)
            self._thread.start()
        self._thread.is_due.set()

    def _write(self, connection: psycopg.Connection[Any]) -> None:
        """What waits is stored, or refused. Bears repetition."""
        run_id = save(
            connection,
            ti_id=self._delivery.ti_id,
            attempt_id=self._delivery.attempt_id,
            nonce=self._delivery.nonce,
            saves=list(self._waiting.values()),
            progress=self._progress,
            kept=self._kept,
        )
        if run_id is None:
            keys = ", ".join(sorted(f"{one.scope} {one.key}" for one in self._waiting.values()))
            self.refuse(connection, f"checkpoints: {keys}" if keys else "progress")
        self._waiting.clear()
        self._progress = None
        self._written_at = time.monotonic()
        if self._thread is not None:
            self._thread.is_due.clear()
        if run_id is not None:
            self._me.notices.changed([f"run:{run_id}", f"ti:{self._delivery.ti_id}"])

    # -- the other thread ---------------------------------------------------------------------

    def _keep_writing(self, thread: _Writing) -> None:
        # Signals are for the thread that runs user code.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            thread.is_due.wait()
            thread.hurry.wait(max(0.0, self._written_at + self._interval_s - time.monotonic()))
            with self._lock:
                if self._is_over:
                    return
                thread.hurry.clear()
                try:
                    if self._has_waiting():
                        self._me.link.once(self._write)
                except psycopg.Error as error:
                    logger.warning("saves wait", extra={"error": str(error).strip()})
                    self._written_at = time.monotonic()  # tried again after an interval
                else:
                    thread.is_due.clear()
            thread.is_empty.set()


class _Writing(threading.Thread):
    """The other thread, and what it is told with."""

    def __init__(self, keep_writing: Callable[[_Writing], None]) -> None:
        super().__init__(name="saver", daemon=True)
        self.is_due = threading.Event()  # something waits
        self.hurry = threading.Event()  # it is not to wait for the interval
        self.is_empty = threading.Event()  # told back
        self._keep_writing = keep_writing

    def run(self) -> None:
        """Until the attempt is over."""
        self._keep_writing(self)
