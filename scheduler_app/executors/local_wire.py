"""How the local executor and its workers meet: one socket a worker, one JSON document a line.

The sockets lie in a folder that only their user can enter, so who reaches one is who may run
anything here anyway. A worker answers ``{"ask": "load"}``, ``{"ask": "waiting", "queue": ...,
"most": n}``, ``{"take": [[queue, arguments], ...]}`` and ``{"give": n, "queues": [...]}``; what is
none of these is refused and the connection closed.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from uuid import UUID

SUFFIX: Final = ".sock"
PATH_BYTES_MAX: Final = 103  # of a socket's address; Linux takes 107, macOS 103
NAME_BYTES: Final = len("/0123456789ab") + len(SUFFIX)
LINE_BYTES_MAX: Final = 4 * 1024 * 1024


class NoFolder(RuntimeError):
    """The folder of the sockets cannot be had; the text is one line for a person."""


class TooLong(ValueError):
    """A line that no worker and no executor would write."""


def socket_folder(data_dir: Path) -> Path:
    """The private folder of the sockets of this data folder's workers; it exists.

    In the data folder, or, where that makes an address that the kernel does not take, beside others
    in ``/tmp``. Raises ``NoFolder`` where somebody else owns the place.
    """
    folder = data_dir / "workers"
    if len(os.fsencode(folder)) + NAME_BYTES > PATH_BYTES_MAX:
        name = hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:16]
        folder = Path(f"/tmp/daylight-{os.geteuid()}-{name}")  # noqa: S108 - its owner is checked
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise NoFolder(
            f"The sockets of local workers cannot be kept in {folder}: {error}"
        ) from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise NoFolder(
            f"The sockets of local workers cannot be kept in {folder}: it must be a folder of this"
            " user's that nobody else may enter (mode 0700). Remove it, or name another"
            " DAYLIGHT_DATA_DIR."
        )
    return folder


def carrier(folder: Path) -> str:
    """What the executor and its workers call themselves: they meet on one machine, in one folder."""
    return f"local at {socket.gethostname()}:{folder}"


def socket_of(folder: Path, job_id: UUID) -> Path:
    """The address of a worker."""
    return folder / f"{job_id.hex[-12:]}{SUFFIX}"


_written: Final = json.JSONEncoder(separators=(",", ":")).encode  # made once: several lines a task


def line_of(document: Any) -> bytes:
    """The document as it goes over the wire."""
    return _written(document).encode() + b"\n"


class Lines:
    """Puts lines together from what arrives."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are complete by now. Raises ``TooLong``."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            raise TooLong(f"a line of more than {LINE_BYTES_MAX} bytes")
        return lines
