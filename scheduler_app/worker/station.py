"""What the main process of a worker hands to its children by forking them: who and where they are."""

from __future__ import annotations

import json
import os
import select
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from uuid import UUID

    from scheduler_app.worker.folder import WorkerFolder

_written: Final = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(slots=True)
class NotePipe:
    """Short notes from children to the main process, each written in one piece."""

    read_fd: int = -1
    write_fd: int = -1
    _rest: bytes = field(default=b"", repr=False)

    @classmethod
    def open(cls) -> NotePipe:
        """A new pipe whose ends never block."""
        read_fd, write_fd = os.pipe()
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)
        return cls(read_fd, write_fd)

    def write(self, *, attempt: str = "", **note: Any) -> None:
        """The note, of this attempt or of none, is on its way.

        A full pipe drops it, and one too long to stay in one piece is none.
        """
        line = f"{attempt} {_written(note)}\n".encode()
        if len(line) > select.PIPE_BUF:
            return
        try:
            os.write(self.write_fd, line)
        except OSError:  # full, or the main process is gone
            return

    def read(
        self, *, is_past: Callable[[str], bool] = lambda attempt: False
    ) -> Iterator[dict[str, Any]]:
        """The notes that have arrived, without those of attempts that are past. Those of one name it."""
        try:
            while data := os.read(self.read_fd, 65536):
                self._rest += data
        except BlockingIOError:
            pass
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            attempt, _, text = line.decode().partition(" ")
            if not attempt:
                yield json.loads(text)
            elif not is_past(
                attempt
            ):  # most are, when they are read: it is not worth a look at the rest
                yield json.loads(text) | {"attempt": attempt}


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """One worker, as its children know it."""

    job_id: UUID
    hostname: str
    main_pid: int
    folder: WorkerFolder
    bundles: Path  # where sources of flow versions are unpacked
    notes: NotePipe


_station: Station | None = None


def set_station(station: Station) -> None:
    """Processes forked from now on belong to this worker."""
    global _station  # noqa: PLW0603 - one a process
    _station = station


def station() -> Station:
    """The worker that this process belongs to."""
    assert _station is not None, "the worker's main process sets it before it forks"
    return _station
