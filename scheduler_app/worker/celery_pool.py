"""Celery's worker with this product's own children: its event loop watches them, and one pool serves both executors.

Celery's prefork pool tells of each step in messages of its own, and keeps books of jobs, results and time
limits that the witness keeps too. That was a third of what the main process spends on a task.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from celery.concurrency.base import BasePool
from celery.worker import state

from scheduler_app.executors.celery import QUEUE_PREFIX, CeleryExecutor, is_pushed
from scheduler_app.transitions.attempt import Message
from scheduler_app.worker.mouth import mouth
from scheduler_app.worker.pool import Pool, PoolChild

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler_app.worker.tasks import Taken

TURN_S: Final = 0.5
QUICK_S: Final = (
    0.03  # while deliveries take no longer, the next ones are fetched before a child is free
)
AHEAD: Final = 4  # so many are, in one round trip, when no more than one is left of the last ones
WAIT_MAX_S: Final = 0.05  # after which one that was fetched so goes back, for whoever is free

logger = logging.getLogger(__name__)


class ChildPool(BasePool):  # type: ignore[misc,unused-ignore] # the stubs differ by version
    """What Celery asks of a pool. Main thread only, as its event loop is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._hub: Any = None
        self._is_pushed = is_pushed(self.app)  # then the broker decides what is here
        self._taken: dict[str, Taken] = {}  # by attempt id: with a child
        self._behind: dict[str, float] = {}  # by attempt id, with a child: since when for one
        self._waiting: deque[tuple[float, Taken]] = deque()  # since when for a child
        self._is_timed = False  # whether somebody will look at how long they have waited
        self._began: dict[str, float] = {}  # by attempt id, what the children are at
        self._was_quick = False  # what ended last
        self._is_ending = False
        self._wake_read, self._wake_write = socket.socketpair()
        for end in (self._wake_read, self._wake_write):
            end.setblocking(False)
        self._children = Pool(
            self.limit,
            on_born=self._watch,
            on_gone=self._unwatch,
            on_forked=self._forget_in_child,
            on_over=self._over,
            on_unread=self._take_up,
        )
        self._watched: dict[int, PoolChild] = {}  # by pid

    # -- asked by Celery ----------------------------------------------------------------------

    @property
    def num_processes(self) -> int:
        """How many deliveries may be here: as many as children, and some more while all are quick.

        Without them a child that is through waits for the broker, as long as an empty task takes.
        """
        is_short = len(self._waiting) <= 1 and self._is_quick()
        return int(self.limit) + len(self._behind) + (AHEAD if is_short else 0)

    def wanted(self) -> int:
        """How many more deliveries may come now."""
        return self.num_processes - len(state.reserved_requests)

    def _is_quick(self) -> bool:
        if not self._was_quick or self._is_ending or self._is_pushed:
            return False
        now = time.monotonic()
        return all(now - began < QUICK_S for began in self._began.values())

    def on_start(self) -> None:
        """The children run. Raises ``OSError``."""
        signal.signal(signal.SIGCHLD, _note)
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)
        self._children.fill()

    def register_with_event_loop(self, loop: Any) -> None:
        """The loop hears the children; called with each new connection to the broker."""
        self._hub = loop
        self._is_timed = False  # a timer of the connection before may be gone
        loop.add_reader(self._wake_read.fileno(), self._woken)
        for child in self._watched.values():
            loop.add_reader(child.channel.fileno(), self._children.hear, child)
        loop.call_repeatedly(TURN_S, self.maintain_pool)  # in case a signal was lost

    def maintain_pool(self, *_: object, **__: object) -> None:
        """Who has died is told of and replaced."""
        self._children.bury()
        with contextlib.suppress(OSError):  # the next turn tries again
            self._children.fill()
        self._feed()
        self._time_waiting()

    def flush(self) -> None:
        """The connection to the broker is lost: what no child has comes again."""
        if self._waiting:
            logger.info("deliveries are dropped", extra={"deliveries": len(self._waiting)})
        self._waiting.clear()
        self._is_timed = False

    def on_close(self) -> None:
        """What no child has is with the broker again."""
        self._is_ending = True
        self._take_back(time.monotonic())
        self._send_back([taken for _, taken in self._waiting])
        self._waiting.clear()

    def on_stop(self) -> None:
        """Each child has ended once it was through with what it was at. The loop does not turn any more."""
        self._hub = None
        self.on_close()
        self._children.dismiss()
        while not self._children.is_empty():
            watched = {child.channel: child for child in self._watched.values()}
            heard, _, _ = select.select([self._wake_read, *watched], [], [], TURN_S)
            for channel in heard:
                if channel in watched:
                    self._children.hear(watched[channel])
            self._swallow_wakes()
            self._children.bury()

    def on_terminate(self) -> None:
        """No child is left."""
        for child in [*self._watched.values()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
        self.on_stop()

    # -- told by the consumer -----------------------------------------------------------------

    def execute(self, taken: Taken) -> None:
        """A child has the delivery, or it waits for one."""
        state.reserved_requests.add(taken)  # which Celery counts before it asks for another
        self._waiting.append((time.monotonic(), taken))
        self._feed()
        self._time_waiting()

    # -- children -----------------------------------------------------------------------------

    def _feed(self) -> None:
        """Each child has something to do, as far as there is something; and something to go on with."""
        while (room := self._children.room()) and (self._waiting or self._behind):
            if not self._waiting and not self._take_back(time.monotonic(), most=room):
                break
            _, taken = self._waiting.popleft()
            self._began[taken.id] = time.monotonic()
            self._children.execute(taken.arguments)
            self._given(taken)
        while self._waiting and self._is_quick():
            since, taken = self._waiting[0]
            if not self._children.lay_behind(taken.arguments):
                break
            self._waiting.popleft()
            self._behind[taken.id] = since
            self._given(taken)

    def _given(self, taken: Taken) -> None:
        """The delivery is with a child."""
        self._taken[taken.id] = taken
        state.active_requests.add(taken)  # which Celery keeps when it loses the broker
        mouth().swallows()
        taken.acknowledge()

    def _over(self, attempt_id: str, *, is_well: bool, following: str) -> None:
        now = time.monotonic()
        self._was_quick = is_well and now - self._began.pop(attempt_id, float("-inf")) < QUICK_S
        if following:
            self._began[following] = now
        self._behind.pop(following or attempt_id, None)
        taken = self._taken.pop(attempt_id, None)
        if taken is not None:
            _let_go(taken)
        mouth().is_through()
        self._feed()

    def _take_back(self, before: float, *, most: int | None = None) -> int:
        """Those that lay behind others since before then wait again, first of all; how many."""
        taken_back = 0
        for attempt_id, since in [*self._behind.items()]:
            if taken_back == most:
                break
            if since <= before and self._children.take_back(attempt_id):
                self._take_up(attempt_id)
                taken_back += 1
        return taken_back

    def _take_up(self, attempt_id: str) -> None:
        """A delivery that lay behind another waits again."""
        since, taken = self._behind.pop(attempt_id), self._taken.pop(attempt_id)
        state.active_requests.discard(taken)
        self._waiting.appendleft((since, taken))

    def _time_waiting(self) -> None:
        if (self._waiting or self._behind) and not self._is_timed and self._hub is not None:
            self._is_timed = True
            due = min([*self._behind.values(), *(at for at, _ in self._waiting)]) + WAIT_MAX_S
            self._hub.call_later(max(0.0, due - time.monotonic()), self._give_up_waiting)

    def _give_up_waiting(self) -> None:
        """What has waited too long for a child is for other workers, or for later."""
        self._is_timed = False
        due = time.monotonic() - WAIT_MAX_S
        self._take_back(due)
        left: list[Taken] = []
        while self._waiting and self._waiting[0][0] <= due:
            left.append(self._waiting.popleft()[1])
        self._send_back(left)
        self._time_waiting()

    def _send_back(self, deliveries: Sequence[Taken]) -> None:
        """The deliveries are with the broker again; what it does not take, the scheduler misses soon."""
        if not deliveries:
            return
        by_identity: dict[str, list[Message]] = {}
        for taken in deliveries:
            attempt_id, ti_id, fence, token, identity = taken.arguments
            message = Message(
                attempt_id=UUID(attempt_id),
                ti_id=ti_id,
                run_id=0,
                fence=fence,
                lease_token=token,
                queue=taken.queue.removeprefix(QUEUE_PREFIX),
            )
            by_identity.setdefault(identity, []).append(message)
            _let_go(taken)
        for identity, messages in by_identity.items():
            CeleryExecutor(self.app).send_back(messages, identity=identity)
        logger.info("deliveries went back", extra={"deliveries": len(deliveries)})

    def _watch(self, child: PoolChild) -> None:
        self._watched[child.pid] = child
        if self._hub is not None:
            self._hub.add_reader(child.channel.fileno(), self._children.hear, child)

    def _unwatch(self, child: PoolChild) -> None:
        if self._watched.pop(child.pid, None) is not None and self._hub is not None:
            self._hub.remove(child.channel.fileno())

    def _woken(self) -> None:
        self._swallow_wakes()
        self.maintain_pool()

    def _swallow_wakes(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_read.recv(4096):
                pass

    def _forget_in_child(self) -> None:
        """What the parent's loop watches is closed in a new child: the broker must see the parent's end."""
        if self._hub is not None:
            for fd in {*self._hub.readers, *self._hub.writers}:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self._wake_write.close()


def _let_go(taken: Taken) -> None:
    state.active_requests.discard(taken)
    state.reserved_requests.discard(taken)


def _note(*_: object) -> None:
    """A child ended; the loop is woken by the signal itself."""
