"""What an attempt prints goes to its own file: at the level of file descriptors, any bytes."""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

LINE: Final = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s"
TIME: Final = "%Y-%m-%dT%H:%M:%S"
STDOUT: Final = 1
STDERR: Final = 2
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

logger = logging.getLogger(__name__)


class Capture:
    """Redirects the file descriptors 1 and 2 and the root logger of this process, one attempt at a time.

    Texts that Python code of the process holds back are written out before each turn of the
    descriptors. What a program that an attempt left running prints later still goes to that
    attempt's file.
    """

    def __init__(self) -> None:
        self._kept = (os.dup(STDOUT), os.dup(STDERR))
        self._file = -1
        self._dropped = _Dropped()
        self._out, self._err = _text(STDOUT, self._dropped), _text(STDERR, self._dropped)
        self._is_broken = False
        self._broken: list[TextIO] = []
        self._handler = _ToStandardError()

    @contextmanager
    def to(self, path: str) -> Iterator[None]:
        """Everything printed inside goes to the file; nowhere if it cannot be made."""
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            logger.warning("what the attempt prints is not kept", extra={"error": str(error)})
            self._file = os.open(os.devnull, os.O_WRONLY)
        self._turn(self._file, self._file)
        self._reset_python()
        try:
            yield
        finally:
            self._flush()
            self._turn(*self._kept)
            os.close(self._file)
            self._tell_of_dropped(path)

    def has_printed(self) -> bool:
        """Whether anything was printed so far. Only inside ``to``."""
        self._flush()
        return os.fstat(self._file).st_size > 0

    def say(self, text: str) -> None:
        """The text is in the attempt's file, whatever the task did to its streams. Only inside ``to``."""
        self._flush()
        try:
            os.write(self._file, text.rstrip("\n").encode("utf-8", "backslashreplace") + b"\n")
        except OSError as error:
            logger.warning("what the attempt prints is not kept", extra={"error": str(error)})

    def _tell_of_dropped(self, path: str) -> None:
        dropped, self._dropped.size = self._dropped.size, 0
        if dropped:
            logger.error(
                "no room on the disk for what an attempt printed; it went on without it",
                extra={"file": path, "bytes_dropped": dropped},
            )

    def _reset_python(self) -> None:
        # A task before this one may have put something else in these places, or closed them.
        if self._is_broken or self._out.closed or self._err.closed:
            # What they could not write must not turn up in the next attempt's file, so they are
            # kept from being collected, which would write it out.
            self._broken += [self._out, self._err]
            self._out, self._err = _text(STDOUT, self._dropped), _text(STDERR, self._dropped)
            self._is_broken = False
        sys.stdout, sys.stderr = self._out, self._err
        root = logging.getLogger()
        if root.handlers != [self._handler]:
            root.handlers[:] = [self._handler]
        if root.level != logging.INFO:  # to set it costs the cache of every logger
            root.setLevel(logging.INFO)

    def _turn(self, out: int, err: int) -> None:
        os.dup2(out, STDOUT)
        os.dup2(err, STDERR)

    def _flush(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            if stream is not self._out and stream is not self._err:
                _flush(stream)
        if not (_flush(self._out) and _flush(self._err)):
            self._is_broken = True


class _ToStandardError(logging.StreamHandler[TextIO]):
    """Writes to whatever ``sys.stderr`` is at the time."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        formatter = logging.Formatter(LINE, TIME)
        formatter.converter = time.gmtime
        self.setFormatter(formatter)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]  # looked up, not kept
        return sys.stderr


def _flush(stream: TextIO | None) -> bool:
    try:
        if stream is not None and not stream.closed:
            stream.flush()
    except BaseException:  # noqa: BLE001 - a full disk, a closed descriptor, or a stream of the task's own
        return False
    return True


@dataclass(slots=True)
class _Dropped:
    """Bytes that there was no room for."""

    size: int = 0


class _Forgiving(io.FileIO):
    """A descriptor that drops what the disk has no room for: no task fails by what it prints."""

    def __init__(self, fd: int, dropped: _Dropped) -> None:
        super().__init__(fd, "wb", closefd=False)
        self._dropped = dropped

    def write(self, data: Any) -> int:
        """All of it is written, or what there is no room for is counted."""
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
        size = memoryview(data).nbytes
        self._dropped.size += size
        return size


def _text(fd: int, dropped: _Dropped) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(_Forgiving(fd, dropped), 64 * 1024),
        encoding="utf-8",
        errors="backslashreplace",
        line_buffering=True,
    )
