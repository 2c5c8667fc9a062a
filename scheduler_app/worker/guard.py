"""The child's side of being stopped: time limits and requests to stop become exceptions in user code.

The main process asks with a signal that programs have no other use for, so that tasks may do with
SIGTERM what they like. SIGTERM itself is its second word, and ends the process; from anybody else it
means nothing here.

An attempt's file ``.running`` is its life line. Whoever renames or removes it first wins: the child
when it is through with the attempt, or the main process when it will kill the child. So a kill never
hits the next attempt of the same child.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Final, TypeVar

from scheduler_app.rules.stopping import Stage
from scheduler_app.worker.folder import KILLED, PRINTED, RUNNING, STOP
from scheduler_app.worker.handlers import set_handler
from scheduler_app.worker.offspring import boot_ticks

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from scheduler_app.worker.folder import WorkerFolder

ASK: Final = signal.SIGURG  # ignored by whatever does not expect it
_OURS: Final = (ASK, signal.SIGTERM, signal.SIGALRM, signal.SIGINT)

T = TypeVar("T")


class TaskTimeout(BaseException):
    """The task reached its time limit. Raised in user code; past a catch of ``Exception``."""


class TaskStopped(BaseException):
    """The task was asked to stop. Raised in user code; past a catch of ``Exception``."""


class Guard:
    """Raises in user code, and nowhere else, what signals ask for. One per child."""

    def __init__(self, folder: WorkerFolder) -> None:
        self._folder = folder
        self._attempt_id = ""
        self._is_user_code = False
        self.began = 0  # of the present attempt, in ticks since the machine started
        self.stop: dict[str, Any] | None = None  # why the present attempt was asked to stop
        self.limit_s: float | None = None
        self.is_over_limit = False
        self.last_act: Callable[[], None] | None = None  # before SIGTERM ends the process

    def install(self) -> None:
        """Signals of the main process are heard. User code may have replaced the handlers."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        set_handler(ASK, self._on_ask)
        set_handler(signal.SIGTERM, self._on_term)
        set_handler(signal.SIGALRM, self._on_alarm)
        # A handler that does nothing: to ignore would be inherited by programs that a task starts.
        set_handler(signal.SIGINT, _nothing)

    def begin(self, attempt_id: str) -> None:
        """The guard is about this attempt."""
        self._attempt_id = attempt_id
        self.began = boot_ticks()
        self.stop = None
        self.limit_s = None
        self.is_over_limit = False
        self.last_act = None

    def run(self, user_code: Callable[[], T], *, limit_s: float | None) -> T:
        """What ``user_code`` returns. Raises what it raises, ``TaskTimeout`` or ``TaskStopped``."""
        self.limit_s = limit_s
        try:
            self._is_user_code = True
            if self.stop is not None:
                raise TaskStopped(self.stop["why"])
            if limit_s is not None:
                signal.setitimer(signal.ITIMER_REAL, max(limit_s, 1e-3))
            result = user_code()
        finally:
            self._is_user_code = False
            if limit_s is not None:
                signal.setitimer(signal.ITIMER_REAL, 0)
        if self.is_over_limit:
            # It swallowed the exception; a limit that can be ignored is none.
            raise TaskTimeout(self._over())
        return result

    def end(self, *, printed: bool, spare: str | None = None) -> None:
        """The attempt can no longer be killed; what it printed is ready to be shipped.

        Where it printed nothing its file is gone, or kept as ``spare``.
        Does not return if the main process was first: it has given this process up.
        """
        attempt_id, self._attempt_id = self._attempt_id, ""
        running = self._folder.file(attempt_id, RUNNING)
        try:
            if printed:
                os.rename(running, self._folder.file(attempt_id, PRINTED))
            elif spare is not None:
                os.rename(running, spare)
            else:
                os.unlink(running)
        except FileNotFoundError:
            if os.path.exists(self._folder.file(attempt_id, KILLED)):
                os._exit(0)

    def asked_to_stop(self) -> bool:
        """Whether the main process wants this attempt to stop."""
        return self.stop is not None

    def stage(self) -> Stage:
        """How far the main process has got with stopping the present attempt."""
        asked = self._folder.read(self._attempt_id, STOP) or {}
        return Stage(asked.get("stage", Stage.EXCEPTION))

    def _on_ask(self, signum: int, frame: FrameType | None) -> None:
        self.stop = self._folder.read(self._attempt_id, STOP) if self._attempt_id else None
        if self.stop is not None and self._is_user_code:
            raise TaskStopped(self.stop["why"])

    def _on_term(self, signum: int, frame: FrameType | None) -> None:
        # Without a word of the main process it is not for this attempt: a supervisor's signal to
        # every process of a service, for one, which the main process answers for all.
        if not (self._attempt_id and self._is_user_code and self.stage() is Stage.SIGNAL):
            return
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(BaseException):  # it may be in the middle of writing
                stream.flush()
        if self.last_act is not None:
            with contextlib.suppress(Exception):
                self.last_act()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    def _on_alarm(self, signum: int, frame: FrameType | None) -> None:
        if self._is_user_code:
            self.is_over_limit = True
            raise TaskTimeout(self._over())

    def _over(self) -> str:
        return f"The task reached its time limit of {self.limit_s:g} s."


def seize(folder: WorkerFolder, attempt_id: str) -> bool:
    """Main process: the attempt's child may be killed now; it cannot go on to another attempt."""
    try:
        os.rename(folder.file(attempt_id, RUNNING), folder.file(attempt_id, KILLED))
    except FileNotFoundError:
        return False
    return True


def _nothing(signum: int, frame: FrameType | None) -> None:
    return


def release_forks() -> None:
    """Processes that user code forks from this one end when they are told to, as it expects.

    Python forgets a signal that reaches a new process before its own set-up after the fork; so the
    signal is held back until the process has the default again.
    """
    before = threading.local()

    def hold() -> None:
        before.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _OURS)

    def let_go() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before.mask)

    def be_ordinary() -> None:
        for number in _OURS:
            signal.signal(number, signal.SIG_DFL)
        let_go()

    os.register_at_fork(before=hold, after_in_parent=let_go, after_in_child=be_ordinary)
