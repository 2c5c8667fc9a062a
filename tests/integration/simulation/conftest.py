"""A clock in the test's hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.simulation.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def clock(transactional_db: None) -> Iterator[Clock]:
    """A clock that stands still until it is told otherwise, and connections that read it."""
    del transactional_db
    made = Clock()
    yield made
    made.close()
