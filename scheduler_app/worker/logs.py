"""What attempts print goes from their files to the database.

The main process ships it while an attempt runs; its child stores the rest before it reports, so the
log of an ended attempt is whole; and the main process looks once more when the child has returned,
or ships what is there when it has died.
"""

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
from scheduler_app.worker.masks import STAR, Masks

if TYPE_CHECKING:
    from scheduler_app.hints.notices import Notices
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

    @property
    def is_cut(self) -> bool:
        """Whether the log ends with the notice that it was cut."""
        return self.offset > settings.LOG_BYTES_MAX


class Logs:
    """One thread with a connection of its own. Files are removed once their bytes are stored."""

    def __init__(self, at: Station, witness: Witness, *, notices: Notices) -> None:
        self._at = at
        self._witness = witness
        self._notices = notices
        self._kept = KeptConnection("logs")
        self._masks = Masks()
        self._tails: dict[UUID, Tail] = {}
        self._ended: dict[UUID, int] = {}  # bytes that the child says are stored
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

    def ended(self, attempt_id: UUID, stored: int) -> None:
        """The attempt prints no more; what is not stored of its log is shipped now."""
        self._ended[attempt_id] = stored
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
                self._stopping.wait(RETRY_S)
            except Exception:  # the shipper must outlive any single fault
                logger.exception("a turn of the log shipper failed")
                self._stopping.wait(RETRY_S)
            if is_last:
                self._kept.drop()
                return

    def _ship(self) -> None:
        now = time.monotonic()
        running = [
            execution.attempt_id
            for execution in self._witness.executions()
            if now - execution.since >= SHIP_INTERVAL_S
        ]
        printed = {attempt_id for attempt_id in running if self._ship_new(attempt_id)}
        for attempt_id, stored in list(self._ended.items()):
            tail = self._tails.setdefault(attempt_id, Tail())
            tail.offset = max(tail.offset, stored)
            if store_new(self._kept.get(), self._at.folder, attempt_id, tail, masks=self._masks):
                printed.add(attempt_id)
            for suffix in (RUNNING, KILLED, PRINTED):
                self._at.folder.drop(attempt_id, suffix)
            del self._tails[attempt_id], self._ended[attempt_id]
        for attempt_id in self._tails.keys() - set(running):
            # What was shipped in part keeps its place until it is told to have ended.
            if self._tails[attempt_id].offset == 0:
                del self._tails[attempt_id]
        if printed:
            self._notices.changed(f"log:{attempt_id}" for attempt_id in printed)

    def _ship_new(self, attempt_id: UUID) -> bool:
        tail = self._tails.setdefault(attempt_id, Tail())
        path = self._at.folder.file(attempt_id, RUNNING)
        if not _has_more(path, tail):
            return False
        shipped = store_new(
            self._kept.get(),
            self._at.folder,
            attempt_id,
            tail,
            masks=self._masks,
            is_ended=False,
        )
        if tail.is_cut:
            _shorten(path)
        return shipped


def store_new(
    connection: psycopg.Connection[Any],
    folder: WorkerFolder,
    attempt_id: UUID,
    tail: Tail,
    *,
    masks: Masks,
    is_ended: bool = True,
) -> bool:
    """What the attempt printed since is stored without secrets; whether there was any.

    ``tail`` is at its end, or, while the attempt goes on, before what may be a secret's beginning.
    Another process may store parts of the same log at the same time. Raises ``psycopg.Error``.
    """
    stored = False
    masks.refresh(connection)
    while batch := _next_batch(folder, attempt_id, tail, masks, is_ended=is_ended):
        try:
            append_log_chunks(connection, chunks=batch)
        except psycopg.errors.UniqueViolation:
            tail.offset = log_length(connection, attempt_id=attempt_id)
        else:
            stored = True
            tail.offset = batch[-1].start_offset + len(batch[-1].data)
    return stored


def ship_abandoned(connection: psycopg.Connection[Any], folder: WorkerFolder) -> int:
    """The logs that a dead worker left are stored and their files gone; how many there were."""
    left = folder.attempts(RUNNING, KILLED, PRINTED)
    masks = Masks()
    for stem, suffix in left:
        store_new(connection, folder, UUID(stem), Tail(), masks=masks)
        folder.drop(stem, suffix)
    return len(left)


def _next_batch(
    folder: WorkerFolder, attempt_id: UUID, tail: Tail, masks: Masks, *, is_ended: bool
) -> list[LogChunk]:
    """The next bytes of the log, as chunks; none at its end, or once it was cut."""
    file = None if tail.is_cut else _open(folder, attempt_id)
    if file is None:
        return []
    room = settings.LOG_BYTES_MAX - tail.offset
    # One byte more than there is room for tells whether anything is cut off.
    wanted = min(BATCH_BYTES, room + 1)
    with file:
        file.seek(tail.offset)
        data = file.read(wanted)
    is_cut = len(data) > room
    data = data[:room] if is_cut else data
    settled = masks.settled(data)
    if is_cut:
        data = masks.hide(data[:settled]) + STAR * (len(data) - settled) + notice()
    elif len(data) == wanted or not is_ended:
        data = masks.hide(data[:settled])  # the rest is looked at again with what follows it
    else:
        data = masks.hide(data)
    return [
        LogChunk(
            attempt_id=attempt_id,
            start_offset=tail.offset + start,
            data=data[start : start + CHUNK_BYTES],
        )
        for start in range(0, len(data), CHUNK_BYTES)
    ]


def _has_more(path: str, tail: Tail) -> bool:
    try:
        return os.stat(path).st_size > tail.offset
    except FileNotFoundError:
        return False


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
