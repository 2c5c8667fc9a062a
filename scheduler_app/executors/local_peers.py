"""The workers of this machine, as somebody who wants something of them sees them."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.executors.local_wire import SUFFIX, Lines, line_of

if TYPE_CHECKING:
    from pathlib import Path

ANSWER_S: Final = 1.0  # a worker's loop answers within milliseconds
SILENT_S: Final = 1.0  # one that did not is left alone for so long, and longer each time
SILENT_S_MAX: Final = 60.0

logger = logging.getLogger(__name__)


class Gone(Exception):
    """The worker is not there any more, or refused what it was asked."""


class Silent(Exception):
    """The worker was asked and did not answer in time; it may still do what it was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a worker serves and does."""

    queues: tuple[str, ...]
    size: int  # of its pool; 0: no limit
    running: int
    waiting: dict[str, int]  # queue -> deliveries that it has not started


class Peer:
    """One worker and a connection to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.load: Load | None = None  # as it was told last
        self.silent_until = 0.0  # monotonic
        self._silent_s = SILENT_S
        self._socket: socket.socket | None = None
        self._lines = Lines()

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer. Raises ``Gone``, and ``Silent`` once the question is on its way."""
        deadline = time.monotonic() + ANSWER_S
        try:
            connection = self._connected()
            connection.settimeout(ANSWER_S)
            connection.sendall(line_of(question))
            while True:
                connection.settimeout(max(0.001, deadline - time.monotonic()))
                data = connection.recv(65536)
                if not data:
                    raise Gone("it closed the connection")
                for line in self._lines.feed(data):
                    answer = json.loads(line)
                    if not isinstance(answer, dict) or "error" in answer:
                        raise Gone(f"it refused: {str(answer)[:200]}")
                    self._silent_s = SILENT_S
                    return answer
        except TimeoutError:
            self.close()
            self.load = None
            self.silent_until = time.monotonic() + self._silent_s
            self._silent_s = min(2 * self._silent_s, SILENT_S_MAX)
            logger.warning("a local worker does not answer", extra={"socket": self.path.name})
            raise Silent from None
        except (OSError, ValueError) as error:
            self.close()
            raise Gone(str(error)) from None
        except Gone:
            self.close()
            raise

    def ask_load(self) -> Load:
        """Its load of now, kept in ``load`` too. Raises as ``ask``."""
        said = self.ask({"ask": "load"})
        try:
            self.load = Load(
                queues=tuple(said["queues"]),
                size=int(said["size"]),
                running=int(said["running"]),
                waiting={str(queue): int(n) for queue, n in said["waiting"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Gone(f"it tells no load: {error!r}") from None
        return self.load

    def close(self) -> None:
        """No connection is open; the next question makes one."""
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.close()

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._lines = Lines()
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            made.settimeout(ANSWER_S)
            try:
                made.connect(str(self.path))
            except ConnectionRefusedError:
                made.close()
                # Its owner is gone without a word: a worker listens before its socket has its name.
                with contextlib.suppress(OSError):
                    self.path.unlink()
                raise
            except OSError:
                made.close()
                raise
            self._socket = made
        return self._socket


class Peers:
    """Every worker whose socket is in the folder."""

    def __init__(self, folder: Path, *, without: Path | None = None) -> None:
        self._folder = folder
        self._without = without  # the one that asks
        self._known: dict[str, Peer] = {}

    def awake(self) -> list[Peer]:
        """Those that are there now, less those that did not answer a short while ago."""
        try:
            names = {name for name in os.listdir(self._folder) if name.endswith(SUFFIX)}
        except OSError:
            names = set()
        if self._without is not None:
            names.discard(self._without.name)
        for name in self._known.keys() - names:
            self._known.pop(name).close()
        for name in names - self._known.keys():
            self._known[name] = Peer(self._folder / name)
        now = time.monotonic()
        return [peer for _, peer in sorted(self._known.items()) if peer.silent_until <= now]

    def close(self) -> None:
        """No connection is open."""
        for peer in self._known.values():
            peer.close()
