"""Calls of the API that cost their caller next to nothing: it shares the cores with what is measured."""

from __future__ import annotations

import json
import selectors
import socket
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from tests.stack import Stack

DOORS: Final = 4  # calls at a time
RECV_BYTES: Final = 65536
WITHIN_S: Final = 20.0


class Door:
    """One connection, kept from call to call, as a program keeps it that triggers many runs."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), timeout=WITHIN_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._got = b""

    def answer(self) -> Any:
        """The JSON of the next answer, or null while it is not whole. Fails where it is no 201."""
        data = self.socket.recv(RECV_BYTES)
        assert data, "the API hung up"
        self._got += data
        head, found, body = self._got.partition(b"\r\n\r\n")
        if not found or len(body) < _length(head):
            return None
        self._got = b""
        assert head.startswith(b"HTTP/1.1 201 "), self._said(head, body)
        return json.loads(body)

    @staticmethod
    def _said(head: bytes, body: bytes) -> str:
        return f"{head.splitlines()[0].decode()}: {body.decode()[:500]}"

    def close(self) -> None:
        """The connection is closed."""
        self.socket.close()


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    raise AssertionError(f"an answer without a length: {head!r}")


def trigger(stack: Stack, flow_id: str, body: dict[str, Any], number: int) -> list[int]:
    """The numbers of so many new runs, each triggered by a call of its own."""
    where = urlsplit(stack.url)
    text = json.dumps(body).encode()
    call = (
        f"POST /api/v1/flows/{flow_id}/runs/ HTTP/1.1\r\nHost: {where.netloc}\r\n"
        f"Authorization: Bearer {stack.token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(text)}\r\n\r\n"
    ).encode() + text
    made: list[int] = []
    with ExitStack() as ending, selectors.DefaultSelector() as waiting:
        doors = [
            ending.enter_context(closing(Door(str(where.hostname), int(where.port or 80))))
            for _ in range(min(DOORS, number))
        ]
        for door in doors:
            waiting.register(door.socket, selectors.EVENT_READ, door)
            door.socket.sendall(call)
        called = len(doors)
        while len(made) < number:
            ready = waiting.select(WITHIN_S)
            assert ready, f"no answer within {WITHIN_S} s"
            for key, _ in ready:
                if (run := key.data.answer()) is None:
                    continue
                made.append(int(run["id"]))
                if called < number:
                    called += 1
                    key.data.socket.sendall(call)
    return made
