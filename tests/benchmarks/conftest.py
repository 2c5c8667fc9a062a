"""One quiet stack for all benchmarks of a run, and one table of what they measured."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import stack as stacks
from tests.benchmarks import page
from tests.benchmarks.bench import Bench
from tests.benchmarks.flows import FLOW_IDS, FLOWS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.page import Row
    from tests.stack import Stack

# The product's own timings; room enough that no limit is what is measured.
ENVIRONMENT = {
    "DAYLIGHT_LEASE_TTL": "15",
    "DAYLIGHT_DEFAULT_POOL_SLOTS": "1000000",
    "DAYLIGHT_MAX_MAP_LENGTH": "100000",
    "DAYLIGHT_FLOW_FILE_TIMEOUT_S": "120",
}


# What idles is measured before anything has run, and what fills tables after all else.
ORDER = ("test_idle", "test_workloads", "test_triggers", "test_up", "test_step", "test_reads")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The benchmarks come in their own order, whatever orders the tests."""
    items.sort(key=lambda item: ORDER.index(item.path.stem) if item.path.stem in ORDER else -1)


@pytest.fixture(scope="session")
def quiet_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack with nothing to do but the benchmarks."""
    folder = tmp_path_factory.mktemp("benchmarks")
    with stacks.running(folder, flags=["--no-examples"], environment=ENVIRONMENT) as made:
        made.write_flow("benchmarks.py", FLOWS)
        for flow_id in FLOW_IDS:
            made.wait_for_flow(flow_id)
        yield made


@pytest.fixture(scope="session")
def bench(quiet_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """The quiet stack, ready to be measured: bundles loaded, statements prepared."""
    made = Bench(quiet_stack, tmp_path_factory.mktemp("raw"))
    for _ in range(2):
        made.wait(made.runs("warm"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def table(request: pytest.FixtureRequest) -> Iterator[list[Row]]:
    """Rows that benchmarks add; printed at the end, and written where BENCHMARKS_FILE says."""
    rows: list[Row] = []
    yield rows
    text = page.rendered(rows, machine=_machine())
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\n{text}\n")
    if target := os.environ.get("BENCHMARKS_FILE"):
        page.write(Path(target), text)


def _machine() -> str:
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=stacks.CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return (
        f"Measured at commit {commit or 'unknown'}: {os.cpu_count()} cores,"
        f" Python {platform.python_version()}; embedded PostgreSQL with fsync on, embedded Valkey,"
        " one Celery worker with two children, all on the same cores. Load of the machine at the"
        f" end: {os.getloadavg()[1]:.1f} (5 minutes)."
    )
