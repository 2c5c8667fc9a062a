"""A stack per test module; modules that need flags or faults of their own start theirs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests import stack as stacks

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[stacks.Stack]:
    """A ready stack without the examples, shared by the tests of a module."""
    folder: Path = tmp_path_factory.mktemp("stack")
    flags = getattr(request.module, "FLAGS", ["--no-examples"])
    environment = getattr(request.module, "ENVIRONMENT", {})
    with stacks.running(folder, flags=flags, environment=environment) as made:
        yield made
