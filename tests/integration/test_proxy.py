"""The proxy of the fault tests does to a link what it says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.proxy import Proxy


@pytest.fixture
def heard() -> list[bytes]:
    """What the server behind the proxy was asked."""
    return []


@pytest.fixture
def proxy(heard: list[bytes]) -> Iterator[Proxy]:
    """A proxy in front of a server that answers each request with ``ok:`` and the request."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve(connection: socket.socket) -> None:
            with connection:
                try:
                    while data := connection.recv(1000):
                        heard.append(data)
                        connection.sendall(b"ok:" + data)
                except OSError:
                    return

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        with Proxy(server.getsockname()[1]) as made:
            yield made
        server.shutdown(socket.SHUT_RDWR)


def _client(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=5)


def _ask(client: socket.socket, data: bytes) -> bytes:
    client.sendall(data)
    return client.recv(1000)


def test_numb_connections_stay_open_and_new_ones_pass(proxy: Proxy, heard: list[bytes]) -> None:
    with _client(proxy) as old, _client(proxy) as new:
        assert _ask(old, b"one") == b"ok:one"
        new.close()
        assert proxy.numb() >= 1
        old.sendall(b"two")
        old.settimeout(0.2)
        with pytest.raises(TimeoutError):
            old.recv(1000)
        with _client(proxy) as newer:
            assert _ask(newer, b"three") == b"ok:three"
    assert b"two" not in heard


def test_chunks_pass(proxy: Proxy) -> None:
    with _client(proxy) as client:
        assert _ask(client, b"one") == b"ok:one"
        assert _ask(client, b"two") == b"ok:two"


def test_what_is_held_goes_on_when_the_link_heals(proxy: Proxy) -> None:
    with _client(proxy) as client:
        assert _ask(client, b"one") == b"ok:one"
        proxy.hold()
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            _ask(client, b"two")
        client.settimeout(5)
        proxy.heal()
        assert client.recv(1000) == b"ok:two"


def test_a_refusing_link_cuts_and_refuses(proxy: Proxy) -> None:
    with _client(proxy) as client:
        assert _ask(client, b"one") == b"ok:one"
        proxy.refuse()
        with pytest.raises(ConnectionResetError):
            client.recv(1000)
    with pytest.raises(ConnectionResetError), _client(proxy) as client:
        client.recv(1000)
    proxy.heal()
    with _client(proxy) as client:
        assert _ask(client, b"two") == b"ok:two"


def test_a_deaf_link_loses_answers_alone(proxy: Proxy, heard: list[bytes]) -> None:
    with _client(proxy) as client:
        proxy.deafen()
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            _ask(client, b"one")
    assert heard == [b"one"]


def test_a_trap_lets_one_request_through_and_loses_its_answer(
    proxy: Proxy, heard: list[bytes]
) -> None:
    with _client(proxy) as other, _client(proxy) as client:
        trap = proxy.trap(b"COMMIT", of=b"hello", inside=b"insert")
        assert _ask(other, b"hi BEGIN insert COMMIT") == b"ok:hi BEGIN insert COMMIT"
        assert _ask(client, b"hello BEGIN") == b"ok:hello BEGIN"
        assert _ask(client, b"select COMMIT") == b"ok:select COMMIT"
        assert _ask(client, b"BEGIN insert") == b"ok:BEGIN insert"
        assert not trap.sprung.is_set()
        with pytest.raises(ConnectionResetError):
            _ask(client, b"COMMIT")
        trap.wait(5)
    assert heard[-1] == b"COMMIT", "it was done"
    with _client(proxy) as client:
        assert _ask(client, b"hello BEGIN insert COMMIT").startswith(b"ok:"), "once"


def test_connections_are_cut_by_what_they_said_first(proxy: Proxy) -> None:
    with _client(proxy) as kept, _client(proxy) as cut:
        assert _ask(kept, b"kept") == b"ok:kept"
        assert _ask(cut, b"gone") == b"ok:gone"
        assert proxy.cut(b"gone") == 1
        with pytest.raises(ConnectionResetError):
            cut.recv(1000)
        assert _ask(kept, b"still") == b"ok:still"


def test_a_half_closed_link_still_answers(proxy: Proxy) -> None:
    with _client(proxy) as client:
        assert _ask(client, b"one") == b"ok:one"
        proxy.half_close()
        assert client.recv(1000) == b"", "the server heard the end and went"
