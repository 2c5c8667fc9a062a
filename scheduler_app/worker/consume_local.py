"""Deliveries from the local executor: a socket to take them from, a queue, and children of our own."""

from __future__ import annotations

import contextlib
import json
import logging
import select
import selectors
import signal
import socket
import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from scheduler_app.executors import local_wire
from scheduler_app.executors.delivery import is_delivery
from scheduler_app.executors.local_wire import Lines, TooLong, line_of
from scheduler_app.worker.pool import Pool, PoolChild
from scheduler_app.worker.sharing import Sharing

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler_app.worker.consumer import Duties

TURN_S: Final = 0.5
CLIENTS_MAX: Final = 64
WAITING_MAX: Final = 10_000
SHARING_END_S: Final = 2.0
GIVE_BACK_S: Final = 3.0

logger = logging.getLogger(__name__)

Delivery = tuple[str, list[Any]]  # queue, arguments


class LocalConsumer:
    """What waits here is lost with this process, and given back by an orderly stop."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._is_stopping = False
        self._wake_read, self._wake_write = socket.socketpair()
        for end in (self._wake_read, self._wake_write):
            end.setblocking(False)
        self._waiting: deque[Delivery] = deque()
        self._given: deque[list[Any]] = deque()  # by other workers, not yet looked at
        self._listener: socket.socket | None = None
        self._clients: dict[socket.socket, Lines] = {}
        self._may_start = True
        self._free = 0  # children with nothing to do; read by the thread that shares

    @property
    def carrier(self) -> str:
        """See ``Consumer.carrier``."""
        return local_wire.carrier(self._folder)

    def stop(self) -> None:
        """See ``Consumer.stop``."""
        self._is_stopping = True
        self._wake()

    def run(self, duties: Duties) -> int:
        """See ``Consumer.run``."""
        self._duties = duties
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._woken)
        self._pool = Pool(
            duties.concurrency,
            on_born=self._watch_child,
            on_gone=self._unwatch_child,
            on_forked=self._forget_in_child,
        )
        signal.signal(signal.SIGCHLD, _note)
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)
        self._pool.fill()
        self._path = local_wire.socket_of(self._folder, duties.job_id)
        self._listener = self._listen()
        sharing = Sharing(
            self._folder,
            self._path,
            queues=duties.queues,
            room=lambda: self._free if self._may_start else 0,
            on_given=self._take_given,
        )
        sharing.start()
        logger.info(
            "the worker takes deliveries",
            extra={"queues": duties.queues, "concurrency": duties.concurrency},
        )
        try:
            self._consume()
        finally:
            self._hang_up()
        giving = threading.Thread(
            target=self._give_back, args=(sharing,), name="give-back", daemon=True
        )
        giving.start()
        self._pool.dismiss()
        while not self._pool.is_empty():
            self._turn(TURN_S)
            self._pool.bury()
        giving.join(GIVE_BACK_S)
        return 0

    # -- the loop -----------------------------------------------------------------------------

    def _consume(self) -> None:
        next_turn = 0.0
        while not self._is_stopping:
            now = time.monotonic()
            if now >= next_turn:
                next_turn = now + TURN_S
                self._may_start = self._duties.turn()
                self._pool.bury()  # in case a signal was lost
                self._fill()
                self._stay_reachable()
            # One at a time: who asks is answered between two children that are made.
            has_started = self._start_oldest()
            self._turn(0.0 if has_started else max(0.0, next_turn - time.monotonic()))

    def _turn(self, wait_s: float) -> None:
        """What has happened is dealt with; waits for something to happen."""
        for key, _ in self._selector.select(wait_s):
            key.data(key.fileobj)
        while self._given and not self._is_stopping:
            self._take(self._given.popleft())
        room = self._pool.room()
        self._free = (
            0 if self._waiting or self._is_stopping else WAITING_MAX if room is None else room
        )

    def _start_oldest(self) -> bool:
        """What waits longest is with a child now; false if nothing waits, or there is no room."""
        if not self._waiting or not self._may_start or self._pool.room() == 0:
            return False
        try:
            self._pool.execute(self._waiting[0][1])
        except OSError as error:
            logger.error("no child could be made", extra={"error": str(error)})
            self._may_start = False  # until the next turn
            return False
        self._waiting.popleft()
        return True

    def _fill(self) -> None:
        try:
            self._pool.fill()
        except OSError as error:
            logger.error("no child could be made", extra={"error": str(error)})

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it is awake already
            self._wake_write.send(b"\0")

    def _woken(self, _: Any) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_read.recv(4096):
                pass
        self._pool.bury()

    # -- children -----------------------------------------------------------------------------

    def _watch_child(self, child: PoolChild) -> None:
        self._selector.register(
            child.channel, selectors.EVENT_READ, lambda _: self._pool.hear(child)
        )

    def _unwatch_child(self, child: PoolChild) -> None:
        with contextlib.suppress(KeyError, ValueError):  # it is not watched any more
            self._selector.unregister(child.channel)

    def _forget_in_child(self) -> None:
        """What would keep this worker's sockets open after its death is closed in a new child."""
        self._selector.close()
        for client in self._clients:
            client.close()
        if self._listener is not None:
            self._listener.close()
        self._wake_read.close()
        self._wake_write.close()

    # -- those who bring deliveries -----------------------------------------------------------

    def _stay_reachable(self) -> None:
        """Somebody who tidies up may take the socket away; then there is a new one of that name."""
        if self._path.exists():
            return
        logger.warning("the socket was gone and is made again", extra={"path": str(self._path)})
        self._stop_listening()
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._listener = self._listen()
        except OSError as error:  # the next turn tries again
            logger.error("no socket could be made", extra={"error": str(error)})

    def _listen(self) -> socket.socket:
        """The socket has its name once it listens: who finds nobody at a name removes it."""
        new = self._path.with_suffix(".new")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(new))
        listener.listen(CLIENTS_MAX)
        listener.setblocking(False)
        new.rename(self._path)
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        return listener

    def _accept(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        if len(self._clients) >= CLIENTS_MAX:
            logger.warning("too many connections: one more is refused")
            client.close()
            return
        client.setblocking(False)
        self._clients[client] = Lines()
        self._selector.register(client, selectors.EVENT_READ, self._read)

    def _read(self, client: socket.socket) -> None:
        try:
            data = client.recv(256 * 1024)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or not self._answer_all(client, data):
            self._drop(client)

    def _answer_all(self, client: socket.socket, data: bytes) -> bool:
        """Each request is answered; whether the connection goes on."""
        try:
            for line in self._clients[client].feed(data):
                answer = self._answer(line)
                _send(client, answer)
                if "error" in answer:
                    logger.error("a request was refused", extra={"line": repr(line[:200])})
                    return False
        except (OSError, TooLong) as error:
            logger.warning("a connection is closed", extra={"error": str(error)})
            return False
        return True

    def _drop(self, client: socket.socket) -> None:
        self._selector.unregister(client)
        del self._clients[client]
        client.close()

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            asked = json.loads(line)
            if "take" in asked:
                return {"taken": self._take(asked["take"])}
            if "give" in asked:
                return {"given": self._give(int(asked["give"]), set(asked["queues"]))}
            if asked["ask"] == "load":
                return self._load()
            if asked["ask"] == "waiting":
                return {"waiting": self._show(asked["queue"], int(asked["most"]))}
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
            pass  # whatever a stranger writes
        return {"error": "this is no request; see executors/local_wire.py"}

    def _load(self) -> dict[str, Any]:
        return {
            "queues": list(self._duties.queues),
            "size": self._duties.concurrency,
            "running": self._pool.running(),
            "waiting": Counter(queue for queue, _ in self._waiting),
        }

    def _show(self, queue: str, most: int) -> list[tuple[str, str]]:
        """Attempt id and database identity of the oldest that wait in the queue; they stay."""
        shown = [arguments for waits_in, arguments in self._waiting if waits_in == queue]
        return [(arguments[0], arguments[-1]) for arguments in shown[: max(0, most)]]

    def _take(self, offered: list[Any]) -> list[str]:
        """The attempt ids of those that wait here now."""
        taken = []
        for queue, arguments in offered:
            if queue not in self._duties.queues or not is_delivery(arguments):
                logger.error("a message is not a delivery", extra={"body": repr(arguments)[:200]})
            elif len(self._waiting) < WAITING_MAX:
                self._waiting.append((queue, arguments))
                taken.append(str(arguments[0]))
        return taken

    def _give(self, most: int, queues: set[str]) -> list[Delivery]:
        """The oldest that wait here in these queues, and now do no longer."""
        given = [each for each in self._waiting if each[0] in queues][: max(0, most)]
        for each in given:
            self._waiting.remove(each)
        return given

    def _take_given(self, given: list[Any]) -> None:
        """Called in the thread that shares."""
        self._given.append(given)
        self._wake()

    # -- the end ------------------------------------------------------------------------------

    def _hang_up(self) -> None:
        """Nobody reaches this worker any more: who tries knows that it took nothing."""
        self._path.unlink(missing_ok=True)
        for client in [*self._clients]:
            self._drop(client)
        self._stop_listening()

    def _stop_listening(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            self._selector.unregister(listener)
            listener.close()

    def _give_back(self, sharing: Sharing) -> None:
        sharing.stop(SHARING_END_S)
        left = [arguments for _, arguments in self._waiting]
        for given in self._given:
            left += [arguments for _, arguments in given]
        if left:
            self._duties.give_back([UUID(arguments[0]) for arguments in left])


def _send(client: socket.socket, answer: dict[str, Any]) -> None:
    """The answer is sent, a piece at a time where it is long. Raises ``OSError``, also for a slow reader."""
    data = line_of(answer)
    while data:
        try:
            data = data[client.send(data) :]
        except BlockingIOError:
            if not select.select([], [client], [], TURN_S)[1]:
                raise


def _note(*_: object) -> None:
    """A child ended; the loop is woken by the signal itself."""
