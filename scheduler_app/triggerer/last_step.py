"""The step that a triggerer is at, on disk: what a triggerer that died leaves to tell who ended it.

Code that ends the whole process (``os._exit``, a crash in C, memory that runs out) would end each
triggerer that takes its trigger over. The next triggerer on the host reads whose step it was.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from uuid import UUID

_NUMBER: Final = struct.Struct("<q")
SUFFIX: Final = ".step"


class LastStep:
    """The file of one triggerer, locked while it lives; written through memory."""

    def __init__(self, folder: Path, job_id: UUID) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{job_id}{SUFFIX}"
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        os.ftruncate(self._fd, _NUMBER.size)
        self._memory = mmap.mmap(self._fd, _NUMBER.size)

    def set(self, trigger_id: int) -> None:
        """The process is at a step of this trigger; 0: at none."""
        _NUMBER.pack_into(self._memory, 0, trigger_id)

    def remove(self) -> None:
        """Nothing is left: this triggerer ends by itself."""
        self._memory.close()
        self._path.unlink(missing_ok=True)
        os.close(self._fd)


def left_behind(folder: Path) -> Iterator[int]:
    """The triggers at whose steps triggerers of this host died; each is told once."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # another triggerer was first
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            content = os.read(fd, _NUMBER.size)
            path.unlink(missing_ok=True)
        except BlockingIOError:
            continue  # it lives
        finally:
            os.close(fd)
        if len(content) == _NUMBER.size and (trigger_id := _NUMBER.unpack(content)[0]):
            yield trigger_id
