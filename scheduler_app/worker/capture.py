"""What an attempt prints goes to its own file: at the level of file descriptors, any bytes."""

from __future__ import annotations

import errno
import io
import logging
import os
import resource
import signal
import stat
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TextIO
from weakref import WeakKeyDictionary

from scheduler_app.worker.handlers import handler_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    attempt's file; what a thread that it left running prints goes to the worker's log, with the
    thread's name, never to the next attempt's file.

    An attempt that printed nothing leaves an empty file, which serves the next one if nobody else can have
    it: to make and remove a file for each took a fifth of what a quick task costs, on some file systems.
    """

    def __init__(self, spare: str = "") -> None:
        """``spare``: where whoever ends an attempt puts a file that may serve again; empty: nowhere."""
        self._spare = spare
        self._may_serve_again = False
        self._stamp: tuple[object, ...] = ()  # at its beginning
        self._kept = (os.dup(STDOUT), os.dup(STDERR))
        self._file = -1
        self._dropped = _Dropped()
        self._left: WeakKeyDictionary[threading.Thread, str] = WeakKeyDictionary()
        self._out, self._err = self._text(STDOUT), self._text(STDERR)
        self._is_broken = False
        self._broken: list[TextIO] = []
        self._handler = _ToStandardError()

    @contextmanager
    def to(self, path: str) -> Iterator[None]:
        """Everything printed inside goes to the file; nowhere if it cannot be made."""
        self._open(path)
        self._stamp = _stamp()
        self._note_threads()
        self._turn(self._file, self._file)
        self._reset_python()
        try:
            yield
        finally:
            self._flush()
            self._turn(*self._kept)
            self._may_serve_again = bool(self._spare) and self._is_untouched()
            if not self._may_serve_again:
                os.close(self._file)
            self._tell_of_dropped(path)

    @property
    def spare(self) -> str | None:
        """Where the file of the attempt that is over is to be put, so that it serves the next one."""
        return self._spare if self._may_serve_again else None

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

    def _open(self, path: str) -> None:
        if self._may_serve_again:
            self._may_serve_again = False
            try:
                os.rename(self._spare, path)
            except OSError:  # it was not put there, or is gone
                os.close(self._file)
            else:
                return
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            logger.warning("what the attempt prints is not kept", extra={"error": str(error)})
            self._file = os.open(os.devnull, os.O_WRONLY)

    def _is_untouched(self) -> bool:
        """Whether the file is a file, empty, and no other process or descriptor can be writing to it."""
        found = os.fstat(self._file)
        is_empty = stat.S_ISREG(found.st_mode) and not found.st_size
        return is_empty and not _has_offspring() and _stamp() == self._stamp

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
            self._out, self._err = self._text(STDOUT), self._text(STDERR)
            self._is_broken = False
        sys.stdout, sys.stderr = self._out, self._err
        root = logging.getLogger()
        if root.handlers != [self._handler]:
            root.handlers[:] = [self._handler]
        if root.level != logging.INFO:  # to set it costs the cache of every logger
            root.setLevel(logging.INFO)

    def _note_threads(self) -> None:
        """Whatever runs now beside this thread belongs to what was before."""
        own = threading.current_thread()
        running = [one for one in threading.enumerate() if one is not own]
        for one in running:
            self._left.setdefault(one, "")

    def _diverted(self, text: str) -> bool:
        """Whether the text is of a thread that was left running, and went to the worker's log."""
        if not self._left:
            return False
        thread = threading.current_thread()
        begun = self._left.get(thread)
        if begun is None:
            return False
        *lines, self._left[thread] = f"{begun}{text}".split("\n")
        said = "".join(
            f"Thread {thread.name}, left running by an earlier attempt: {line}\n" for line in lines
        )
        with suppress(OSError):  # as for every line of the log
            os.write(self._kept[1], said.encode("utf-8", "backslashreplace"))
        return True

    def _text(self, fd: int) -> TextIO:
        return _Text(fd, self._dropped, self._diverted)

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


def _has_offspring() -> bool:
    """Whether a process that was started from this one is there, running or ended, or none can be told of."""
    if not hasattr(os, "waitid") or handler_of(signal.SIGCHLD) == signal.SIG_IGN:
        return True  # nobody would have counted one
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _stamp() -> tuple[object, ...]:
    """The same as before if no process has ended since that was waited for, and no descriptor is left open."""
    lowest_free = os.dup(STDOUT)
    os.close(lowest_free)
    return (*resource.getrusage(resource.RUSAGE_CHILDREN), lowest_free)


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


class _Text(io.TextIOWrapper):
    """A descriptor for texts; what ``diverted`` takes is not written to it."""

    def __init__(self, fd: int, dropped: _Dropped, diverted: Callable[[str], bool]) -> None:
        super().__init__(
            io.BufferedWriter(_Forgiving(fd, dropped), 64 * 1024),
            encoding="utf-8",
            errors="backslashreplace",
            line_buffering=True,
        )
        self._diverted = diverted

    def write(self, text: str, /) -> int:
        """All of it is written, here or where it was diverted to."""
        return len(text) if self._diverted(text) else super().write(text)
