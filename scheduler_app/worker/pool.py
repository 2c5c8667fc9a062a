"""A worker's children, whatever carries its deliveries: one delivery at a time goes to each, and what came of it comes back.

Each child has a socket of its own, so that one that is killed while it reads or writes harms no
other. A line that holds ``null`` is the pill that ends a child after what it is at.

While tasks are quick a child is what its parent spends most time on, and waits most for: so one delivery
may lie in its socket behind the one it executes. The parent keeps the child's end of the socket too, and
takes that delivery out again if the child turns out to be slow. Either of them gets it, never both: each
delivery is a frame of one length, written at once and read at once.
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
FRAME_BYTES: Final = 256  # a delivery has some 130; a longer one goes in several
RECV_BYTES: Final = 65536
SHORT_LIFE_S: Final = 1.0  # an idle child that ended so soon is replaced at the next turn only
_HELD: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class PoolChild:
    """One child, as its parent knows it."""

    pid: int
    channel: socket.socket
    far_end: socket.socket | None  # what the child reads from; null: nothing is taken out again
    born: float  # monotonic
    lines: Lines = field(default_factory=Lines)
    attempt_id: str = ""  # that it executes
    is_one_frame: bool = True  # its delivery was
    behind: str = ""  # attempt whose delivery lies in its channel, to be executed next
    has_pill: bool = False

    @property
    def may_have_one_behind(self) -> bool:
        """Whether it is busy, and a delivery may lie behind the one that it is at."""
        is_busy = bool(self.attempt_id) and self.is_one_frame
        return is_busy and not self.behind and not self.has_pill

    def close(self) -> None:
        """This process has none of its sockets any more."""
        self.channel.close()
        if self.far_end is not None:
            self.far_end.close()


class OnOver(Protocol):
    """Hears that a delivery is over; ``is_well``: its child said what came of it.

    ``following``: the attempt that its child is at now, which lay behind it; empty if there was none.
    """

    def __call__(self, attempt_id: str, *, is_well: bool, following: str) -> None: ...  # noqa: D102 - see above


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
        on_unread: Callable[[str], None] = lambda attempt_id: None,
    ) -> None:
        """``on_born`` and ``on_gone`` frame the time in which its channel is to be watched.

        ``on_forked`` runs in each new child, and closes what is its parent's alone. ``on_over`` hears of each
        delivery that a child is through with, or died with, after the witness did; ``on_unread`` of one that lay
        behind what a child died with, and is nobody's now.
        """
        self._size = size
        self._on_born = on_born
        self._on_gone = on_gone
        self._on_forked = on_forked
        self._on_over = on_over
        self._on_unread = on_unread
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
        frames = _frames(delivery)
        self._write(child, frames)
        if self._size == 0:
            self._dismiss(child)
        child.attempt_id, child.is_one_frame = str(delivery[0]), len(frames) == FRAME_BYTES
        # A process per task ends with its task, so its end says less than its last words.
        witness().accepted(child.pid, child.attempt_id, pool_tells=True)
        return child.pid

    def lay_behind(self, delivery: list[Any]) -> bool:
        """A busy child has the delivery in its channel, and goes on with it at once; false: none may."""
        if self._size == 0:
            return False
        child = next((c for c in self._children.values() if c.may_have_one_behind), None)
        if child is None or len(frames := _frames(delivery)) > FRAME_BYTES:
            return False
        child.behind = str(delivery[0])
        witness().expects(child.pid, child.behind)  # first: it may be read at once
        self._write(child, frames)
        return True

    def take_back(self, attempt_id: str) -> bool:
        """The delivery lies behind no other any more; false if its child has it, or soon says what it did."""
        child = next((c for c in self._children.values() if c.behind == attempt_id), None)
        if not attempt_id or child is None or child.far_end is None:
            return False
        try:
            unread = child.far_end.recv(2 * FRAME_BYTES, socket.MSG_DONTWAIT)
        except OSError:
            return False
        if len(unread) > FRAME_BYTES:  # it had not even begun with the one before
            self._write(child, unread[:FRAME_BYTES])
        witness().expects_no_more(child.pid)
        child.behind = ""
        return True

    def hear(self, child: PoolChild) -> None:
        """What the child has said is told to the witness; it is free again."""
        while True:
            try:
                data = child.channel.recv(RECV_BYTES)
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
            behind, is_unread = child.behind, self.take_back(child.behind)
            child.close()
            del self._children[child.pid]
            if child.attempt_id:
                code = os.waitstatus_to_exitcode(status)
                witness().lost(child.pid, child.attempt_id, code)
                self._is_over(child.attempt_id, is_well=False)
                if is_unread:
                    self._on_unread(behind)
                elif behind:  # its user code had read it: the scheduler will miss it
                    witness().expects_no_more(child.pid)
                    self._is_over(behind, is_well=False)
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
            child.close()
        self._children.clear()

    def _dismiss(self, child: PoolChild) -> None:
        if not child.has_pill:
            child.has_pill = True
            self._write(child, _frames(PILL))

    def _write(self, child: PoolChild, frames: bytes) -> None:
        """A child that does not read is dead or dying: its end will be seen, and told."""
        with contextlib.suppress(OSError):
            child.channel.sendall(frames)

    def _told(self, child: PoolChild, line: bytes) -> None:
        attempt_id, child.attempt_id, child.behind = child.attempt_id, child.behind, ""
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
        if child.attempt_id:
            witness().accepted(child.pid, child.attempt_id, pool_tells=True)
        self._is_over(attempt_id, is_well=outcome is not None, following=child.attempt_id)

    def _is_over(self, attempt_id: str, *, is_well: bool, following: str = "") -> None:
        if self._on_over is not None:
            self._on_over(attempt_id, is_well=is_well, following=following)

    def _spawn(self) -> PoolChild:
        ours, theirs = socket.socketpair()
        try:
            with _signals_held():
                pid = os.fork()
                if pid == 0:
                    self._be_child(ours, theirs)
        except OSError:
            ours.close()
            theirs.close()
            raise
        ours.setblocking(False)
        far_end: socket.socket | None = theirs
        if self._size == 0:  # as many as there are deliveries: descriptors are few
            theirs.close()
            far_end = None
        child = PoolChild(pid=pid, channel=ours, far_end=far_end, born=time.monotonic())
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


def _frames(document: list[Any] | None) -> bytes:
    """The document as one line, of one frame or several."""
    text = line_of(document)[:-1]
    return text.ljust(-(-(len(text) + 1) // FRAME_BYTES) * FRAME_BYTES - 1) + b"\n"


def _serve(channel: socket.socket) -> None:
    """Deliveries are executed until the pill comes."""
    lines = Lines()
    # One frame at a time: what lies behind the present delivery may be taken out again.
    while data := channel.recv(FRAME_BYTES):
        for line in lines.feed(data):
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
