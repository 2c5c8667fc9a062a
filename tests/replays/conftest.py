"""What replays share: a scheduler moved by hand on a real database, and one stack of real processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests import stack as stacks
from tests.integration.api.conftest import ana, api, bearer
from tests.integration.conftest import leases, raw, recording, world
from tests.integration.worker.conftest import workshop
from tests.replays import flows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = [
    "ana",
    "api",
    "bearer",
    "dead_soon",
    "gate",
    "leases",
    "raw",
    "recording",
    "stack",
    "workshop",
    "world",
]


@pytest.fixture
def dead_soon(settings: Any) -> None:
    """Silence counts early: a server that was just started is a sign of life of everything."""
    settings.HEARTBEAT_DEAD_AFTER_S = 0.5
    settings.INFRASTRUCTURE_BUDGET = 3


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[stacks.Stack]:
    """One stack for every replay that needs real processes."""
    folder: Path = tmp_path_factory.mktemp("replays")
    flags = ["--no-examples", "--concurrency", "2"]
    environment = {"DAYLIGHT_QUEUED_TIMEOUT_S": "2"}
    with stacks.running(folder, flags=flags, environment=environment) as made:
        flows.write(made)
        yield made


@pytest.fixture
def gate(stack: stacks.Stack, request: pytest.FixtureRequest) -> Iterator[str]:
    """A gate that tasks of the stack wait for; it is open when the test is over, whatever came of it."""
    name = request.node.name
    yield name
    flows.open_gate(stack, name)
