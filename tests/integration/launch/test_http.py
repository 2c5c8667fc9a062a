"""What a client may send before its request begins has an end; everything else is served."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from scheduler_app.launch.http import HEAD_BYTES_MAX, BoundedProtocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ANSWER_S = 10.0


async def _application(scope: Any, receive: Any, send: Any) -> None:
    """Says how long the body and the longest header were."""
    assert scope["type"] == "http"
    length = 0
    while True:
        message = await receive()
        length += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    longest = max(len(value) for _, value in scope["headers"])
    text = f"{length} {longest}".encode()
    headers = [(b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text})


@asynccontextmanager
async def _connected() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    config = uvicorn.Config(_application, lifespan="off", log_config=None, ws="none")
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: BoundedProtocol(config, state, {}), "127.0.0.1", 0
    )
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        yield reader, writer
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Status line and body of the next answer."""
    async with asyncio.timeout(ANSWER_S):
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length")
        )
        return head.split(b"\r\n")[0], await reader.readexactly(length)


def _request(*, header: int = 1, body: int = 0) -> bytes:
    head = f"POST / HTTP/1.1\r\nhost: a\r\nx-long: {'x' * header}\r\ncontent-length: {body}\r\n\r\n"
    return head.encode() + b"b" * body


async def test_a_long_head_is_read_and_so_is_what_follows_on_the_connection() -> None:
    fits = HEAD_BYTES_MAX - 200
    async with _connected() as (reader, writer):
        for header, body in ((fits, 0), (1, 3_000_000), (fits, 700_000), (1, 0)):
            writer.write(_request(header=header, body=body))
            status, text = await _answer(reader)
            assert status == b"HTTP/1.1 200 OK"
            assert text == f"{body} {max(header, len(str(body)))}".encode()


async def test_requests_that_come_together_are_all_answered() -> None:
    sizes = [(30_000, 50_000), (1, 0), (60_000, 1), (1, 300_000), (40_000, 0)]
    async with _connected() as (reader, writer):
        writer.write(b"".join(_request(header=header, body=body) for header, body in sizes))
        for header, body in sizes:
            status, text = await _answer(reader)
            assert (status, text) == (
                b"HTTP/1.1 200 OK",
                f"{body} {max(header, len(str(body)))}".encode(),
            )


@pytest.mark.parametrize(
    "begun",
    [
        b"GET /" + b"a" * 20_000,
        b"GET / HTTP/1.1\r\nx-long: " + b"a" * 20_000,
        b"GET / HTTP/1.1\r\n" + b"x-more: a\r\n" * 2_000,
        b"GET / HTTP/1.1\r\n" + b"x" * 20_000,
    ],
)
@pytest.mark.parametrize("is_second", [False, True])
async def test_a_head_that_does_not_end_is_refused(begun: bytes, *, is_second: bool) -> None:
    async with _connected() as (reader, writer):
        if is_second:
            writer.write(_request(body=10))
            assert await _answer(reader) == (b"HTTP/1.1 200 OK", b"10 2")
        more = b"a" * 20_000 if not begun.endswith(b"\r\n") else b"x-more: a\r\n" * 2_000
        writer.write(begun)
        with pytest.raises(ConnectionError):
            async with asyncio.timeout(ANSWER_S):
                await _write_for_ever(writer, more)


async def _write_for_ever(writer: asyncio.StreamWriter, more: bytes) -> None:
    """Raises ``ConnectionError`` once nobody reads it, and ``AssertionError`` where somebody reads it all."""
    for _ in range(1000):
        writer.write(more)
        await writer.drain()
        await asyncio.sleep(0.001)
    raise AssertionError("a head without an end was read for ever")


async def test_who_is_refused_is_told_why() -> None:
    async with _connected() as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nx-long: " + b"a" * (HEAD_BYTES_MAX + 1))
        status, text = await _answer(reader)
        assert status.startswith(b"HTTP/1.1 400")
        assert str(HEAD_BYTES_MAX).encode() in text
        async with asyncio.timeout(ANSWER_S):
            assert await reader.read() == b""
