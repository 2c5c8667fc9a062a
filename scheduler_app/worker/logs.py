"""The main process ships what attempts print from their files to the database, while they print."""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import psycopg
from django.conf import settings

from scheduler_app.transitions.attempt_log import LogChunk, append_log_chunks, log_length
from scheduler_app.worker.folder import KILLED, PRINTED, RUNNING, WorkerFolder
from scheduler_app.worker.link import KeptConnection

if TYPE_CHECKING:
    from collections.abc import Generator

    from scheduler_app.transitions.notices import Notices
    from scheduler_app.worker.station import Station
    from scheduler_app.worker.witness import Witness

SHIP_INTERVAL_S: Final = 1.0
GATHER_S: Final = 0.05  # ended attempts of so long share an insert
CHUNK_BYTES: Final = 256 * 1024
BATCH_BYTES: Final = 4 * 1024 * 1024
RETRY_S: Final = 2.0
SLACK_BYTES: Final = 1024 * 1024  # past its cap, a file of a running attempt may grow so far

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Tail:
    """How much of an attempt's log is in the database."""

    offset: int = 0
    is_cut: bool = False
    is_sure: bool = True  # false: an insert's answer was lost, so the database is asked


class Logs:
    """One thread with a connection of its own. Files are removed once their bytes are stored."""

    def __init__(self, at: Station, witness: Witness, *, notices: Notices) -> None:
        self._at = at
        self._witness = witness
        self._notices = notices
        self._kept = KeptConnection("logs")
        self._tails: dict[UUID, Tail] = {}
        self._ended: set[UUID] = set()
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work_forever, name="logs", daemon=True)

    def start(self) -> None:
        """The thread runs."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Everything printed so far is stored, as far as the database lets it in this time."""
        self._stopping.set()
        self._woken.set()
        self._thread.join(timeout_s)

    def ended(self, attempt_id: UUID) -> None:
        """The attempt prints no more; the rest of its log is shipped now."""
        self._ended.add(attempt_id)
        self._woken.set()

    def _work_forever(self) -> None:
        while True:
            self._woken.wait(SHIP_INTERVAL_S)
            is_last = self._stopping.is_set()
            if self._woken.is_set():
                self._woken.clear()
                time.sleep(GATHER_S)
            try:
                self._ship()
            except psycopg.Error as error:
                logger.warning("logs wait for the database", extra={"error": str(error).strip()})
                self._kept.drop()
                for tail in self._tails.values():
                    tail.is_sure = False
                self._stopping.wait(RETRY_S)
            except Exception:  # the shipper must outlive any single fault
                logger.exception("a turn of the log shipper failed")
                self._stopping.wait(RETRY_S)
            if is_last:
                self._kept.drop()
                return

    def _ship(self) -> None:
        ended = list(self._ended)
        now = time.monotonic()
        running = [
            execution.attempt_id
            for execution in self._witness.executions()
            if now - execution.since >= SHIP_INTERVAL_S
        ]
        printed: set[UUID] = set()
        for attempt_id in (*running, *ended):
            tail = self._tails.setdefault(attempt_id, Tail())
            if self._ship_file(attempt_id, tail, is_over=attempt_id in self._ended):
                printed.add(attempt_id)
        for attempt_id in ended:
            self._tails.pop(attempt_id, None)
            self._ended.discard(attempt_id)
            for suffix in (RUNNING, KILLED, PRINTED):
                self._at.folder.drop(attempt_id, suffix)
        for attempt_id in self._tails.keys() - set(running):
            # One that was shipped in part keeps its place until it is told to have ended.
            if self._tails[attempt_id].offset == 0:
                del self._tails[attempt_id]
        if printed:
            self._notices.changed(f"log:{attempt_id}" for attempt_id in printed)

    def _ship_file(self, attempt_id: UUID, tail: Tail, *, is_over: bool) -> bool:
        shipped = False
        if not tail.is_sure:
            tail.offset = log_length(self._kept.get(), attempt_id=attempt_id)
            tail.is_cut = tail.offset > settings.LOG_BYTES_MAX
            tail.is_sure = True
        for batch in new_chunks(self._at.folder, attempt_id, tail):
            append_log_chunks(self._kept.get(), chunks=batch)
            shipped = True
        if tail.is_cut and not is_over:
            _shorten(self._at.folder.file(attempt_id, RUNNING))
        return shipped


def ship_abandoned(connection: psycopg.Connection[Any], folder: WorkerFolder) -> int:
    """The logs that a dead worker left are stored and their files gone; how many there were."""
    left = folder.attempts(RUNNING, KILLED, PRINTED)
    for stem, suffix in left:
        attempt_id = UUID(stem)
        tail = Tail(offset=log_length(connection, attempt_id=attempt_id))
        tail.is_cut = tail.offset > settings.LOG_BYTES_MAX
        for batch in new_chunks(folder, attempt_id, tail):
            append_log_chunks(connection, chunks=batch)
        folder.drop(attempt_id, suffix)
    return len(left)


def new_chunks(folder: WorkerFolder, attempt_id: UUID, tail: Tail) -> Generator[list[LogChunk]]:
    """What the attempt printed since, in batches; ``tail`` moves on when a batch has been taken."""
    file = _open(folder, attempt_id)
    if file is None:
        return
    with file:
        while not tail.is_cut:
            batch, moved = _batch(file, attempt_id, tail)
            if not batch:
                return
            yield batch
            tail.offset, tail.is_cut = moved.offset, moved.is_cut


def _batch(file: Any, attempt_id: UUID, tail: Tail) -> tuple[list[LogChunk], Tail]:
    moved = Tail(offset=tail.offset)
    batch: list[LogChunk] = []
    file.seek(tail.offset)
    while moved.offset - tail.offset < BATCH_BYTES:
        room = settings.LOG_BYTES_MAX - moved.offset
        # One byte more than there is room for tells whether anything is cut off.
        data = file.read(min(CHUNK_BYTES, room + 1))
        if not data:
            break
        moved.is_cut = len(data) > room
        if moved.is_cut:
            data = data[:room] + notice()
        batch.append(LogChunk(attempt_id=attempt_id, start_offset=moved.offset, data=data))
        moved.offset += len(data)
        if moved.is_cut:
            break
    return batch, moved


def notice() -> bytes:
    """The line at the end of a log that was cut."""
    return (
        f"\n[Daylight keeps the first {settings.LOG_BYTES_MAX:,} bytes of a log; "
        "the rest was left out.]\n"
    ).encode()


def _open(folder: WorkerFolder, attempt_id: UUID) -> Any:
    for suffix in (RUNNING, PRINTED, KILLED):
        try:
            return open(folder.file(attempt_id, suffix), "rb")
        except FileNotFoundError:
            continue
    return None


def _shorten(path: str) -> None:
    """The disk is not filled by what will never be shipped; the writer goes on at the new end."""
    try:
        if os.stat(path).st_size > settings.LOG_BYTES_MAX + SLACK_BYTES:
            os.truncate(path, settings.LOG_BYTES_MAX + 1)
    except FileNotFoundError:
        return
