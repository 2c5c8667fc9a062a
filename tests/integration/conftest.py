"""What integration tests share: raw connections to a real database, and a scheduler moved by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from scheduler_app.processes import database
from scheduler_app.scheduler.leases import Leases
from scheduler_app.transitions.ids import uuid7
from tests.recording import RecordingConnection
from tests.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _sealed_under(settings: Any) -> None:
    """Secrets among the variables have a key."""
    settings.VARIABLE_KEYS = ["a key of the tests, long enough for it"]


@pytest.fixture
def raw(transactional_db: None) -> Iterator[psycopg.Connection[Any]]:
    """A raw connection as the scheduler has it."""
    del transactional_db
    with database.connect("scheduler") as raw_connection:
        yield raw_connection


@pytest.fixture
def recording(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RecordingConnection]:
    """A raw connection that remembers its transactions."""
    del transactional_db
    monkeypatch.setattr(psycopg, "connect", RecordingConnection.connect)
    with database.connect("scheduler") as made:
        assert isinstance(made, RecordingConnection)
        yield made


@pytest.fixture
def leases(raw: psycopg.Connection[Any]) -> Leases:
    """A scheduler's leases, all shards held."""
    # Nobody renews them: long enough for the longest test on a busy machine.
    held = Leases(holder=uuid7(), ttl_s=900, renew_interval_s=180, deadline_s=600)
    held.balance(raw, dead_after_s=60)
    return held


@pytest.fixture
def world(raw: psycopg.Connection[Any], leases: Leases) -> World:
    """A scheduler, moved by hand, whose messages and workers are in the test's hand too."""
    return World(raw, leases)
