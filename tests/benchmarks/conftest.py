"""One quiet stack for all benchmarks of a run, and one table of what they measured."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import stack as stacks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stack import Stack

FLOWS = """
    from scheduler_app.authoring import flow, task

    @task
    def nothing():
        pass

    @task
    def after(previous=None):
        pass

    @flow(max_active_tasks=200)
    def fan():
        for _ in range(200):
            nothing()

    @flow
    def single():
        nothing()

    @flow
    def chain():
        previous = None
        for _ in range(10):
            previous = after(previous)
"""

Row = tuple[str, str, str]  # what, measured, beside it in the same run


@pytest.fixture(scope="session")
def quiet_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack with the product's own timings and nothing to do but the benchmarks."""
    folder = tmp_path_factory.mktemp("benchmarks")
    with stacks.running(
        folder, flags=["--no-examples"], environment={"DAYLIGHT_LEASE_TTL": "15"}
    ) as made:
        made.write_flow("benchmarks.py", FLOWS)
        for flow_id in ("fan", "single", "chain"):
            made.wait_for_flow(flow_id)
        yield made


@pytest.fixture(scope="session")
def table(request: pytest.FixtureRequest) -> Iterator[list[Row]]:
    """Rows that benchmarks add; printed at the end, and written where BENCHMARKS_FILE says."""
    rows: list[Row] = []
    yield rows
    text = _page(rows)
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\n{text}")
    if target := os.environ.get("BENCHMARKS_FILE"):
        Path(target).write_text(text, encoding="utf-8")


def _page(rows: list[Row]) -> str:
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`. Every figure stands beside a baseline of the same run, since machines",
        "differ and are noisy: compare the ratios.",
        "",
        f"Machine: {os.cpu_count()} cores, Python {platform.python_version()}; embedded PostgreSQL with",
        "fsync on, embedded Valkey, one Celery worker with two children, all on the same cores.",
        "",
        "| what | measured | baseline in the same run |",
        "|---|---|---|",
        *(f"| {what} | {measured} | {beside} |" for what, measured, beside in rows),
        "",
    ]
    return "\n".join(lines)
