"""A process that knows Django for the supervisor, which is there for as long as the stack and so stays small.

Divided off the nursery, or forked where there is none; asked over a pipe; ended when nothing is left to ask.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from dataclasses import dataclass
from multiprocessing import Pipe
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.launch import children
from scheduler_app.launch.words import UpFailed

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from scheduler_app.launch.nursery import Nursery

_DEFAULT: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Errands:
    """What an assistant does. See ``nursery.Calling``."""

    command: tuple[str, ...]

    def follow(self, channel: Connection) -> int:
        """All errands that were asked for over the channel were run."""
        serve(channel)
        return 0


class Assistant:
    """Runs the functions of ``launch.errands``, all in one process with the environment of its start."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery
        self._pid = 0
        self._pipe: Connection | None = None

    def ask(self, errand: str, **arguments: Any) -> Any:
        """What the errand returns. Raises what it raises, and ``UpFailed`` if it does not come back.

        Call it from the main thread: the process ends with that.
        """
        if self._pipe is None:
            self._begin()
        assert self._pipe is not None
        try:
            self._pipe.send((errand, arguments))
            is_well, answer = self._pipe.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            self.end()
            raise UpFailed(
                f"The process that should {errand} ended in the middle of it."
            ) from error
        if not is_well:
            raise answer
        return answer

    def end(self) -> None:
        """The process is gone, whatever it was about; the next question starts another."""
        if self._pipe is None:
            return
        self._pipe.close()
        self._pipe = None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)

    def _begin(self) -> None:
        command = (sys.executable, sys.argv[0], "assistant")
        if divided := self._nursery.divide(Errands(command=command)):
            child, self._pipe = divided
            self._pid = child.pid
            return
        ours, theirs = Pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid:
            theirs.close()
            self._pid, self._pipe = pid, ours
            return
        code = 1
        try:
            ours.close()
            _stand_alone(parent)
            serve(theirs)
            code = 0
        finally:
            os._exit(code)


def _stand_alone(parent: int) -> None:
    signal.set_wakeup_fd(-1)
    for number in _DEFAULT:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the supervisor's
    children.die_with(parent)


def serve(pipe: Connection) -> None:
    """Errands are run until nobody asks any more."""
    from scheduler_app.launch import errands  # noqa: PLC0415 - it reads the settings

    while True:
        try:
            errand, arguments = pipe.recv()
        except EOFError:
            return
        try:
            answer = (True, getattr(errands, errand)(**arguments))
        except Exception as error:  # noqa: BLE001 - it is raised where it was asked for
            answer = (False, error)
        try:
            pipe.send(answer)
        except Exception:  # noqa: BLE001 - it cannot be sent as it is, so it is told
            pipe.send((False, UpFailed(f"{errand}: {answer[1]!r}")))
