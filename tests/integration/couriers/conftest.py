"""Receivers on loopback, which notifiers reach only where a test allows it."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

import pytest

from scheduler_app.couriers.limits import Limits
from tests import receivers

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOPBACK = Limits(allowed=(ipaddress.ip_network("127.0.0.0/8"),), timeout_s=10)


@pytest.fixture
def web() -> Iterator[receivers.WebServer]:
    """A web server that keeps what it is sent."""
    with receivers.web_server() as server:
        yield server


@pytest.fixture
def mails() -> Iterator[receivers.MailServer]:
    """A mail server that keeps what it is sent."""
    with receivers.mail_server() as server:
        yield server
