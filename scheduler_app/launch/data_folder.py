"""The data folder: one stack at a time, its secrets, its logs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
from typing import IO, TYPE_CHECKING, Final

from scheduler_app.launch.addresses import write_private

if TYPE_CHECKING:
    from pathlib import Path

LOG_BYTES_MAX: Final = 10 * 1024 * 1024  # then the older half of a component's log is one file back
LOCK: Final = "lock"


class InUse(RuntimeError):
    """Another stack runs in this data folder."""


def make(data_dir: Path) -> None:
    """The folder exists; others may pass through it to what is theirs, and not look into it."""
    with contextlib.suppress(FileExistsError):
        data_dir.parent.mkdir(parents=True, exist_ok=True)
        data_dir.mkdir(mode=0o711)
    logs_of(data_dir).mkdir(mode=0o700, exist_ok=True)


def logs_of(data_dir: Path) -> Path:
    """Where the logs of its components are."""
    return data_dir / "logs"


def occupy(data_dir: Path) -> IO[str]:
    """The folder is ours until the answer is closed or this process ends. Raises ``InUse``."""
    file = (data_dir / LOCK).open("a+", encoding="ascii")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        file.close()
        raise InUse(
            f"The data folder {data_dir} is in use by another stack (process {holder}):"
            " stop it, or give this one its own --data-dir."
        ) from None
    file.seek(0)
    file.truncate()
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def make_secret_key(data_dir: Path) -> None:
    """There is a key to sign with, the same at every start."""
    path = data_dir / "secret-key"
    if not path.exists():
        write_private(path, secrets.token_urlsafe(50) + "\n")


def admin_password(data_dir: Path) -> tuple[Path, str, bool]:
    """Where the generated password of the administrator is, the password, and whether it is new."""
    path = data_dir / "admin-password"
    if path.exists():
        return path, path.read_text(encoding="utf-8").strip(), False
    password = secrets.token_urlsafe(12)
    write_private(path, password + "\n")
    return path, password, True


def open_log(path: Path) -> IO[bytes]:
    """The log, to be added to; a large one went one file back first."""
    rotate(path)
    return path.open("ab")


def rotate(path: Path) -> None:
    """A log that grew too large is copied to ``NAME.1`` and emptied in place.

    In place, since the process that writes it holds it open for appending. Lines that it writes
    between the copy and the emptying are lost.
    """
    try:
        if path.stat().st_size <= LOG_BYTES_MAX:
            return
    except OSError:
        return
    shutil.copyfile(path, path.with_name(f"{path.name}.1"))
    os.truncate(path, 0)


def last_line(path: Path) -> str:
    """The last line of a log that says something, for a message."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 8192))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].strip() if lines else ""
