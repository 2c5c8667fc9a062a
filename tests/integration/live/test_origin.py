"""Which pages may open a socket."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_app.live.origin import is_own
from tests.integration.live.conftest import Socket


@pytest.mark.parametrize(
    ("origin", "host", "scheme", "expected"),
    [
        ("http://localhost:8000", "localhost:8000", "ws", True),
        ("http://LOCALHOST:8000", "localhost:8000", "ws", True),
        ("https://localhost", "localhost", "wss", True),
        ("https://trusted.example", "localhost:8000", "ws", True),
        ("http://localhost:8001", "localhost:8000", "ws", False),
        ("http://localhost", "localhost:8000", "ws", False),
        ("https://localhost:8000", "localhost:8000", "ws", False),
        ("http://localhost:8000", "localhost:8000", "wss", False),
        ("http://evil.example", "localhost:8000", "ws", False),
        ("http://localhost.evil.example", "localhost", "ws", False),
        ("http://evil.example", "evil.example", "ws", False),  # no host of ours
        ("http://user@localhost:8000", "localhost:8000", "ws", False),
        ("http://localhost:8000/", "localhost:8000", "ws", False),
        ("null", "localhost:8000", "ws", False),
        ("", "localhost:8000", "ws", False),
        ("http://[", "localhost:8000", "ws", False),
        ("http://localhost:8000", "", "ws", False),
    ],
)
def test_own_pages_alone_may(
    settings: Any, origin: str, host: str, scheme: str, expected: bool
) -> None:
    settings.CSRF_TRUSTED_ORIGINS = ["https://trusted.example"]
    assert is_own(origin, host, scheme) is expected


def test_behind_a_proxy_that_speaks_https_pages_are_https(settings: Any) -> None:
    settings.HTTPS = True
    assert is_own("https://localhost", "localhost", "ws")
    assert not is_own("http://localhost", "localhost", "ws")


@pytest.mark.parametrize("origin", ["null", "http://evil.example", "https://testserver"])
async def test_a_foreign_page_is_denied_even_with_a_login(session: str, origin: str) -> None:
    assert await Socket(session, origin=origin).open() == "websocket.close"
    own = Socket(session)
    assert await own.open() == "websocket.accept"
    await own.close()
