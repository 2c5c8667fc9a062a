"""A TCP proxy for tests: a link that can be slow, cut, half closed, deaf or dead.

One asyncio loop in a thread of its own; every method may be called from the test's thread. Chunks
pass in their order and unchanged. A *trap* lets one request through and loses its answer: how a
commit looks whose connection breaks between the commit and the word of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

T = TypeVar("T")
CHUNK: Final = 65536
HEAD_MAX: Final = 4096  # bytes of a connection's beginning that tell whose it is
SEEN_MAX: Final = 1024 * 1024
BEGIN: Final = b"BEGIN"
PASS, HOLD, DEAF, REFUSE = "pass", "hold", "deaf", "refuse"
LINGER_NOT: Final = struct.pack("ii", 1, 0)  # closing resets instead of saying goodbye


@dataclass(slots=True, kw_only=True)
class Trap:
    """Waits for one request; lets it through, loses its answer and cuts the connection."""

    at: bytes  # in the request
    of: bytes = b""  # in the connection's beginning, such as the name of the application
    inside: bytes = b""  # anywhere since the transaction began
    sprung: threading.Event = field(default_factory=threading.Event)

    def wait(self, within_s: float = 60.0) -> None:
        """The answer was lost. Fails when the request never came."""
        assert self.sprung.wait(within_s), f"nobody sent {self.at!r} inside {self.inside!r}"


@dataclass(slots=True, eq=False)
class _Pair:
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    head: bytes = b""
    seen: bytes = b""  # from the client, since its transaction began
    trap: Trap | None = None  # its request went through; the answer must not
    is_numb: bool = False  # open, and nothing passes any more


class Proxy:
    """Listens on ``port`` of loopback, in front of a server on loopback or elsewhere.

    Made by a thread that has entered a host (``tests/hosts.py``), it belongs to that host.
    """

    def __init__(self, target_port: int, *, target: str = "127.0.0.1") -> None:
        self._target = target
        self._target_port = target_port
        self._mode = PASS
        self._delay_s = 0.0
        self._pairs: set[_Pair] = set()
        self._traps: list[Trap] = []
        self._opened = asyncio.Event()  # nothing is held
        self._opened.set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._server = self._do(self._listen())
        self.port: int = self._server.sockets[0].getsockname()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- what a test does to the link -----------------------------------------------------------

    def heal(self) -> None:
        """Chunks pass; what was held goes on."""
        self._set(PASS)

    def hold(self) -> None:
        """Connections stay open, new ones too, and nothing passes in either direction."""
        self._set(HOLD)

    def deafen(self) -> None:
        """Requests pass, and every answer is lost."""
        self._set(DEAF)

    def numb(self) -> int:
        """Connections that are open now pass nothing any more, and are not closed; how many.

        New ones pass, as behind a firewall that has forgotten the old ones.
        """
        return self._do(self._numb())

    def refuse(self) -> None:
        """Open connections are cut and new ones refused at once."""
        self._set(REFUSE)
        self.cut()

    def slow(self, delay_s: float) -> None:
        """Every chunk takes so long."""
        self._delay_s = delay_s

    def cut(self, of: bytes = b"") -> int:
        """Open connections are reset; how many. ``of``: those with this in their beginning."""
        return self._do(self._cut(of))

    def half_close(self) -> None:
        """The servers hear that the clients will send no more; answers still pass."""
        self._do(self._half_close())

    def trap(self, at: bytes, *, of: bytes = b"", inside: bytes = b"") -> Trap:
        """The next such request loses its answer."""
        trap = Trap(at=at, of=of, inside=inside)
        self._loop.call_soon_threadsafe(self._traps.append, trap)
        return trap

    def close(self) -> None:
        """Nothing listens, no connection is open."""
        self._set(REFUSE)
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # -- in the loop ----------------------------------------------------------------------------

    def _do(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def _set(self, mode: str) -> None:
        async def set_it() -> None:
            self._mode = mode
            (self._opened.clear if mode == HOLD else self._opened.set)()

        self._do(set_it())

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def _end(self) -> None:
        self._server.close()
        await self._cut(b"")
        await self._server.wait_closed()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._opened.wait()
        if self._mode == REFUSE:
            _reset(writer)
            return
        try:
            answers, server = await asyncio.open_connection(self._target, self._target_port)
        except OSError:
            _reset(writer)
            return
        pair = _Pair(writer, server)
        self._pairs.add(pair)
        try:
            await asyncio.gather(self._requests(reader, pair), self._answers(answers, pair))
        finally:
            self._pairs.discard(pair)
            for end in (writer, server):
                end.close()

    async def _requests(self, reader: asyncio.StreamReader, pair: _Pair) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._travel()
                if pair.is_numb:
                    continue
                pair.head += data[: HEAD_MAX - len(pair.head)]
                self._look(data, pair)
                pair.server.write(data)
                await pair.server.drain()
        with contextlib.suppress(OSError, RuntimeError):
            pair.server.write_eof()

    async def _answers(self, reader: asyncio.StreamReader, pair: _Pair) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._travel()
                if pair.trap is not None:
                    _reset(pair.client)
                    pair.trap.sprung.set()
                    return
                if self._mode == DEAF or pair.is_numb:
                    continue
                pair.client.write(data)
                await pair.client.drain()
        with contextlib.suppress(OSError, RuntimeError):
            pair.client.close()

    async def _travel(self) -> None:
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        await self._opened.wait()

    def _look(self, data: bytes, pair: _Pair) -> None:
        """Whether this request walks into a trap."""
        if BEGIN in data:
            pair.seen = b""
        if not self._traps:
            return
        pair.seen = (pair.seen + data)[-SEEN_MAX:]
        for trap in self._traps:
            if trap.of in pair.head and trap.at in data and trap.inside in pair.seen:
                self._traps.remove(trap)
                pair.trap = trap
                return

    async def _numb(self) -> int:
        for pair in self._pairs:
            pair.is_numb = True
        return len(self._pairs)

    async def _cut(self, of: bytes) -> int:
        found = [pair for pair in self._pairs if of in pair.head]
        for pair in found:
            _reset(pair.client)
            _reset(pair.server)
        return len(found)

    async def _half_close(self) -> None:
        for pair in self._pairs:
            with contextlib.suppress(OSError):
                pair.server.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
    writer.transport.abort()
