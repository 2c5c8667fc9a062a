"""The nursery: one process that has loaded everything, and of which those of the stack are divided off.

So a stack loads its code once, at its start and whenever one of its processes starts again, and what
its processes only read lies in memory once. Divided off, a process is the supervisor's child as if it
had been started by its own command: the supervisor sees its end, the kernel ends it with the
supervisor, and it is listed with its own command line. The end of the nursery ends nothing else;
what starts from then on is started by its own command.

A process with threads, open connections or files of its own cannot be divided well, so the nursery
has none, and refuses when it finds a thread.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from dataclasses import dataclass
from multiprocessing import Pipe, reduction
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from scheduler_app.launch import children, preload, title

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from multiprocessing.connection import Connection

LOADED_WITHIN_S: Final = 60.0  # on a loaded machine; an idle one needs two
BORN_WITHIN_S: Final = 10.0

_threads = Path("/proc/self/task")


class Calling(Protocol):
    """What a process that is divided off does. It is sent to the nursery, so it is picklable."""

    @property
    def command(self) -> Sequence[str]:
        """The command line by which it is listed."""
        ...

    def follow(self, channel: Connection) -> int:
        """All its life; its exit code. Who asked for it holds the other end of the channel."""
        ...


@dataclass(slots=True)
class Born:
    """A process that was divided off, and is our child."""

    pid: int
    returncode: int | None = None  # as subprocess has it

    def poll(self) -> int | None:
        """The exit code, below 0 the signal that ended it; ``None`` while it runs."""
        return self._wait(os.WNOHANG)

    def wait(self) -> int:
        """It has ended; its exit code."""
        code = self._wait(0)
        assert code is not None, "it was waited for"
        return code

    def send_signal(self, number: int) -> None:
        """It got the signal, unless it had ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """It ends at once."""
        self.send_signal(signal.SIGKILL)

    def _wait(self, options: int) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:
                pid, status = self.pid, 0  # somebody else has waited for it
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class Nursery:
    """The supervisor's hold of it. Call it from the main thread: what it starts ends with that."""

    def __init__(self) -> None:
        self._pid = 0
        self._pipe: Connection | None = None

    @property
    def is_open(self) -> bool:
        """Whether it may be asked."""
        return self._pipe is not None

    def begin(self) -> None:
        """It loads what needs no settings, where this system lets processes be divided off."""
        if not children.can_adopt():
            return
        ours, theirs = Pipe()
        parent = os.getpid()
        # What is loaded by now stays: no collection of ours writes into it, and it goes on being shared.
        gc.collect()
        gc.freeze()
        pid = os.fork()
        if pid:
            theirs.close()
            self._pid, self._pipe = pid, ours
            return
        code = 1
        try:
            _serve(theirs, parent)
            code = 0
        finally:
            os._exit(code)

    def load(self, environ: Mapping[str, str]) -> None:
        """It loads everything else, under this environment; nobody waits for it."""
        if self._pipe is not None:
            try:
                self._pipe.send(dict(environ))
            except OSError:
                self.end()

    def divide(self, calling: Calling) -> tuple[Born, Connection] | None:
        """A child of ours that follows its calling; ``None`` if that cannot be had, and never will."""
        if self._pipe is None:
            return None
        ours, theirs = Pipe()
        with children.adopting():
            try:
                with theirs:
                    self._pipe.send(calling)
                    reduction.send_handle(self._pipe, theirs.fileno(), self._pid)
                # Loading comes first.
                if ours.poll(LOADED_WITHIN_S):
                    pid = ours.recv()
                    ours.send("go")  # what is not told so ends
                    return Born(pid), ours
            except (OSError, EOFError):
                pass
            except BaseException:
                ours.close()  # what was divided off ends with it
                raise
        ours.close()
        self.end()
        return None

    def end(self) -> None:
        """It is gone; what was divided off goes on."""
        if self._pipe is None:
            return
        self._pipe.close()
        self._pipe = None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def _serve(pipe: Connection, supervisor: int) -> None:
    """The life of the nursery, which ends with the supervisor's end of the pipe."""
    _stand_alone(supervisor)
    os.closerange(3, pipe.fileno())
    os.closerange(pipe.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    # Nothing that is loaded here is garbage, and a collection would write into all of it.
    gc.disable()
    preload.libraries()
    with contextlib.suppress(EOFError):
        environ: dict[str, str] = pipe.recv()
        _surround_with(environ)
        if not title.go_by([sys.executable, sys.argv[0], "nursery"], environ):
            return
        preload.product()
        _surround_with(environ)  # what is loaded may have added to it, each for its own role
        gc.collect()
        gc.freeze()
        while True:
            calling = pipe.recv()
            channel = reduction.recv_handle(pipe)
            if len(os.listdir(_threads)) > 1:
                sys.stderr.write("The nursery has threads and can start no process.\n")
                return
            _divide(calling, channel, pipe, supervisor)
            os.close(channel)


def _surround_with(environ: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environ)


def _divide(calling: Calling, channel: int, pipe: Connection, supervisor: int) -> None:
    """The supervisor has a new child: ours of a moment ago, whose parent has ended."""
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        return
    try:
        if os.fork() == 0:
            os._exit(_be_born(calling, channel, pipe, supervisor))
    finally:
        os._exit(0)


def _be_born(calling: Calling, channel: int, pipe: Connection, supervisor: int) -> int:
    """The life of what was divided off; its exit code."""
    from multiprocessing.connection import Connection as Channel  # noqa: PLC0415 - see the types

    pipe.close()
    if not children.adopted_by(supervisor, within_s=BORN_WITHIN_S):
        return 1
    _stand_alone(supervisor)
    environ = dict(os.environ)
    if not title.go_by(calling.command, environ):
        return 1
    asked = Channel(channel)
    try:
        asked.send(os.getpid())
        asked.recv()
    except (OSError, EOFError):
        return 1  # nobody waits for it any more
    gc.enable()
    return calling.follow(asked)


def _stand_alone(supervisor: int) -> None:
    """A group of its own, signals as after an exec; it ends when the supervisor's main thread does."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:  # `nohup` is obeyed
            is_int = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if is_int else signal.SIG_DFL)
    os.setpgid(0, 0)
    children.die_with(supervisor)
