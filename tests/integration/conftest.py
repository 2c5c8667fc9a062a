"""What integration tests share: raw connections to a real database, and a scheduler moved by hand."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from scheduler_app.processes import database
from scheduler_app.scheduler.leases import Leases
from scheduler_app.transitions.ids import uuid7
from tests.nurseries import Nurseries
from tests.recording import RecordingConnection
from tests.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _sealed_under(settings: Any) -> None:
    """Secrets among the variables have a key."""
    settings.VARIABLE_KEYS = ["a key of the tests, long enough for it"]


@pytest.fixture(scope="session")
def nurseries() -> Iterator[Nurseries]:
    """What divides off processes of the product."""
    made = Nurseries()
    yield made
    made.end()


@pytest.fixture(scope="session")
def site() -> Iterator[Path]:
    """Where each test's data folder is in turn, with short addresses for sockets.

    Always the same, so that processes of one test and the next have the same environment.
    """
    folder = Path(tempfile.mkdtemp(prefix="daylight-place-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def place(site: Path) -> Iterator[Path]:
    """An empty data folder."""
    folder = site / "data"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


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
