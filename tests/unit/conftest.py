"""Unit tests open no connection."""

from __future__ import annotations

import socket
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _no_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit test that connects anywhere fails."""

    def refuse(*arguments: Any) -> None:
        raise AssertionError(f"a unit test connects to {arguments[1:]}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
