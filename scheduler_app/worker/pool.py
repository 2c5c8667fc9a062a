"""A worker's children, whatever carries its deliveries: one delivery at a time goes to each, and what came of it comes back.

Each child has a socket of its own, so that one that is killed while it reads or writes harms no
other. A line that holds ``null`` is the pill that ends a child after what it is at.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from scheduler_app.executors.local_wire import Lines, TooLong, line_of
from scheduler_app.worker.child import end_child, start_child
from scheduler_app.worker.execute import execute_delivery
from scheduler_app.worker.outcome import Outcome
from scheduler_app.worker.witness import witness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PILL: Final = None
SHORT_LIFE_S: Final = 1.0  # an idle child that ended so soon is replaced at the next turn only
_HELD: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class PoolChild:
    """One child, as its parent knows it."""

    pid: int
    channel: socket.socket
    born: float  # monotonic
    lines: Lines = field(default_factory=Lines)
    attempt_id: str = ""  # that it executes
    has_pill: bool = False


class OnOver(Protocol):
    """Hears that a delivery is over; ``is_well``: its child said what came of it."""

    def __call__(self, attempt_id: str, *, is_well: bool) -> None: ...  # noqa: D102 - see above


class Pool:
    """Children of this process. Main thread only. ``size`` 0: a process per delivery, without limit."""

    def __init__(
        self,
        size: int,
        *,
        on_born: Callable[[PoolChild], None],
        on_gone: Callable[[PoolChild], None],
        on_forked: Callable[[], None],
        on_over: OnOver | None = None,
    ) -> None:
        """``on_born`` and ``on_gone`` frame the time in which its channel is to be watched.

        ``on_forked`` runs in each new child, and closes what is its parent's alone. ``on_over`` hears of each
        delivery that a child is through with, or died with, after the witness did.
        """
        self._size = size
        self._on_born = on_born
        self._on_gone = on_gone
        self._on_forked = on_forked
        self._on_over = on_over
        self._children: dict[int, PoolChild] = {}
        self._is_dismissed = False

    def fill(self) -> None:
        """There are as many children as there should be. Raises ``OSError``."""
        while not self._is_dismissed and len(self._children) < self._size:
            self._spawn()

    def room(self) -> int | None:
        """How many deliveries could be started now; ``None``: any number."""
        if self._size == 0:
            return None
        return sum(not child.attempt_id for child in self._children.values())

    def running(self) -> int:
        """How many deliveries are with children."""
        return sum(bool(child.attempt_id) for child in self._children.values())

    def is_empty(self) -> bool:
        """Whether no child is left."""
        return not self._children

    def execute(self, delivery: list[Any]) -> int:
        """A child has the delivery; its pid. Needs room. Raises ``OSError`` where none can be made."""
        if self._size == 0:
            child = self._spawn()
        else:
            child = next(each for each in self._children.values() if not each.attempt_id)
        self._send(child, delivery)
        if self._size == 0:
            self._dismiss(child)
        child.attempt_id = str(delivery[0])
        # A process per task ends with its task, so its end says less than its last words.
        witness().accepted(child.pid, child.attempt_id, pool_tells=True)
        return child.pid

    def hear(self, child: PoolChild) -> None:
        """What the child has said is told to the witness; it is free again."""
        while True:
            try:
                data = child.channel.recv(65536)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                # Closed by the child's death, or by its user code: then it goes on and its end tells.
                self._on_gone(child)
                return
            try:
                for line in child.lines.feed(data):
                    self._told(child, line)
            except TooLong:
                self._on_gone(child)
                return

    def bury(self) -> None:
        """Children that have ended are reaped, told to the witness, and replaced."""
        for child in [*self._children.values()]:
            try:
                pid, status = os.waitpid(child.pid, os.WNOHANG)
            except ChildProcessError:
                pid, status = child.pid, 0
            if pid == 0:
                continue
            self.hear(child)  # its last words
            self._on_gone(child)
            child.channel.close()
            del self._children[child.pid]
            if child.attempt_id:
                code = os.waitstatus_to_exitcode(status)
                witness().lost(child.pid, child.attempt_id, code)
                self._is_over(child.attempt_id, is_well=False)
            elif not child.has_pill:
                logger.warning("an idle child ended", extra={"pid": child.pid, "status": status})
                if time.monotonic() - child.born < SHORT_LIFE_S:
                    continue
            with contextlib.suppress(OSError):  # the next turn tries again
                self.fill()

    def dismiss(self) -> None:
        """Each child ends once it is through with what it is at; none is replaced."""
        self._is_dismissed = True
        for child in self._children.values():
            self._dismiss(child)

    def forget_in_child(self) -> None:
        """In a new child: the channels of the others are closed."""
        for child in self._children.values():
            child.channel.close()
        self._children.clear()

    def _dismiss(self, child: PoolChild) -> None:
        if not child.has_pill:
            child.has_pill = True
            self._send(child, PILL)

    def _send(self, child: PoolChild, document: list[Any] | None) -> None:
        """A child that does not read is dead or dying: its end will be seen, and told."""
        with contextlib.suppress(OSError):
            child.channel.sendall(line_of(document))

    def _told(self, child: PoolChild, line: bytes) -> None:
        attempt_id, child.attempt_id = child.attempt_id, ""
        if not attempt_id:
            return  # nothing was asked of it; user code found its way to the channel
        try:
            said = json.loads(line)
            error = said["broke"] if isinstance(said, dict) else None
            outcome = Outcome.of_list(said) if error is None else None
        except (ValueError, TypeError, LookupError):
            error, outcome = f"the child said {line[:200]!r}", None
        if outcome is None:
            witness().broke(child.pid, attempt_id, str(error))
        else:
            witness().returned(child.pid, attempt_id, outcome)
        self._is_over(attempt_id, is_well=outcome is not None)

    def _is_over(self, attempt_id: str, *, is_well: bool) -> None:
        if self._on_over is not None:
            self._on_over(attempt_id, is_well=is_well)

    def _spawn(self) -> PoolChild:
        ours, theirs = socket.socketpair()
        try:
            with _signals_held():
                pid = os.fork()
                if pid == 0:
                    self._be_child(ours, theirs)
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        child = PoolChild(pid=pid, channel=ours, born=time.monotonic())
        self._children[pid] = child
        self._on_born(child)
        return child

    def _be_child(self, ours: socket.socket, theirs: socket.socket) -> None:
        """The life of a child. Never returns: nothing of its parent's code goes on in it."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # its guard sets its own
            start_child()
            ours.close()
            self.forget_in_child()
            self._on_forked()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
            _serve(theirs)
            end_child()
            code = 0
        except BaseException:
            logger.exception("a child ended")
        finally:
            os._exit(code)


def _serve(channel: socket.socket) -> None:
    """Deliveries are executed until the pill comes."""
    with channel.makefile("rb") as lines:
        for line in lines:
            delivery = json.loads(line)
            if delivery is PILL:
                return
            channel.sendall(line_of(_execute(delivery)))


def _execute(delivery: list[Any]) -> list[Any] | dict[str, Any]:
    """The fields of the outcome in their order, or what broke."""
    try:
        return execute_delivery(*delivery).as_list()
    except BaseException as error:
        # This product's own code, since user code cannot end here.
        logger.exception("a delivery broke")
        return {"broke": f"{type(error).__name__}: {error}"}


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """A signal that comes while the process divides reaches the parent, and the child not half-made."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
