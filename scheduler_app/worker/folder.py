"""What a worker keeps on disk: logs until they are shipped, reports until they are accepted.

One folder per worker, ``<data>/spool/<job id>/``. The main process holds a lock on its file ``owner``;
a folder whose lock can be taken belongs to a worker that is gone, and what is in it is sent by
whoever took it.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

OWNER: Final = "owner"
HIDDEN: Final = ".new-"  # a folder that is being made
RUNNING: Final = ".running"  # what a running attempt prints goes here
PRINTED: Final = ".log"  # its attempt ended; to be shipped
KILLED: Final = ".killed"  # its attempt must not reach its end; to be shipped
REPORT: Final = ".report"  # a result that the database has not taken yet
SPARE: Final = ".spare"  # of a child, by its pid: an empty file for what its next attempt prints
STOP: Final = ".stop"  # why a running attempt is asked to stop


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFolder:
    """The folder of one worker; ``lock_fd`` is open in the process that owns it."""

    path: Path
    lock_fd: int

    def file(self, attempt_id: UUID | str, suffix: str) -> str:
        """The path of an attempt's file."""
        return f"{self.path}/{attempt_id}{suffix}"

    def attempts(self, *suffixes: str) -> list[tuple[str, str]]:
        """Attempt id and suffix of each file that has one of the suffixes."""
        found = [os.path.splitext(name) for name in sorted(os.listdir(self.path))]
        return [(stem, suffix) for stem, suffix in found if suffix in suffixes]

    def write(self, attempt_id: UUID | str, suffix: str, content: dict[str, Any]) -> None:
        """The file has this content, durably and at once: a reader never sees half of it."""
        scratch_fd, scratch = tempfile.mkstemp(dir=self.path)
        with os.fdopen(scratch_fd, "w", encoding="utf-8") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(scratch, self.file(attempt_id, suffix))

    def read(self, attempt_id: UUID | str, suffix: str) -> dict[str, Any] | None:
        """The content of the file; ``None`` without one."""
        try:
            with open(self.file(attempt_id, suffix), encoding="utf-8") as file:
                content: dict[str, Any] = json.load(file)
        except FileNotFoundError:
            return None
        return content

    def drop(self, attempt_id: UUID | str, suffix: str) -> bool:
        """The file is gone; whether it was this call that removed it."""
        try:
            os.unlink(self.file(attempt_id, suffix))
        except FileNotFoundError:
            return False
        return True

    def remove(self) -> None:
        """The folder is gone, unless a report is left in it; the lock is given back."""
        if not self.attempts(REPORT):
            for name in os.listdir(self.path):
                os.unlink(self.path / name)
            self.path.rmdir()
        os.close(self.lock_fd)


def create(spool: Path, *, job_id: UUID) -> WorkerFolder:
    """A new folder, locked by this process before anybody can see it under its name."""
    spool.mkdir(parents=True, exist_ok=True, mode=0o700)
    scratch = Path(tempfile.mkdtemp(prefix=HIDDEN, dir=spool))
    lock_fd = os.open(scratch / OWNER, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return WorkerFolder(path=scratch.rename(spool / str(job_id)), lock_fd=lock_fd)


def abandoned(spool: Path) -> Iterator[WorkerFolder]:
    """Each folder whose worker is gone, locked by this process."""
    for path in sorted(spool.glob("[!.]*")):
        try:
            lock_fd = os.open(path / OWNER, os.O_RDWR)
        except OSError:  # just removed by another worker
            continue
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_there = os.path.samestat(os.fstat(lock_fd), os.stat(path / OWNER))
        except OSError:  # its worker lives, or another worker was at it
            is_there = False
        if is_there:
            yield WorkerFolder(path=path, lock_fd=lock_fd)
        else:
            os.close(lock_fd)
