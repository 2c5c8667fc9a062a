"""How fast tasks go through, how soon a ready one is published, what an idle stack costs."""

from __future__ import annotations

import itertools
import statistics
import time
from typing import TYPE_CHECKING

from tests import stack as stacks
from tests.benchmarks import baselines
from tests.benchmarks.conftest import FLOWS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.benchmarks.conftest import Row
    from tests.stack import Stack

FAN = 200
ROUNDS = 5


def test_fan_of_no_op_tasks(quiet_stack: Stack, table: list[Row], tmp_path: Path) -> None:
    quiet_stack.wait_for_run(
        quiet_stack.trigger("fan")
    )  # warm: bundles loaded, statements prepared
    rates = []
    for _ in range(ROUNDS):
        ended = quiet_stack.wait_for_run(quiet_stack.trigger("fan"))
        assert ended["state"] == "success"
        rates.append(FAN / (ended["ended_at"] - ended["queued_at"]).total_seconds())
        time.sleep(1)
    raw = baselines.raw_celery_tasks_a_second(quiet_stack, tmp_path, tasks=FAN)
    commits = baselines.commits_a_second(quiet_stack)
    rate = statistics.median(rates)
    table.append(
        (
            "200 no-op tasks, run created to run ended",
            f"{rate:.0f} tasks/s (median of {ROUNDS}; {min(rates):.0f} to {max(rates):.0f})",
            f"raw Celery {raw:.0f} tasks/s, ratio {rate / raw:.2f}; {commits:.0f} commits/s",
        )
    )
    assert rate > 0


def test_fan_over_sockets(quiet_stack: Stack, table: list[Row], tmp_path: Path) -> None:
    """The local executor, with hints through the database, beside Celery in the same run."""
    flags = ["--no-examples", "--executor", "local"]
    with stacks.running(tmp_path, flags=flags, environment={"DAYLIGHT_LEASE_TTL": "15"}) as local:
        local.write_flow("benchmarks.py", FLOWS)
        local.wait_for_flow("fan")
        for stack in (quiet_stack, local):  # warm, as above
            stack.wait_for_run(stack.trigger("fan"))
        found: dict[str, list[float]] = {"celery": [], "local": []}
        for _ in range(ROUNDS):  # by turns, so that both meet the same disturbances
            for name, stack in (("celery", quiet_stack), ("local", local)):
                ended = stack.wait_for_run(stack.trigger("fan"))
                took_s = (ended["ended_at"] - ended["queued_at"]).total_seconds()
                found[name].append(FAN / took_s)
                time.sleep(1)
        rates = {name: statistics.median(values) for name, values in found.items()}
    table.append(
        (
            "the same over the local executor, no broker and no Valkey",
            f"{rates['local']:.0f} tasks/s (median of {ROUNDS})",
            f"Celery, by turns with it: {rates['celery']:.0f} tasks/s",
        )
    )
    assert min(rates.values()) > 0


def test_ready_to_published(quiet_stack: Stack, table: list[Row]) -> None:
    first, later = [], []
    for _ in range(20):
        run = quiet_stack.trigger("single")
        quiet_stack.wait_for_run(run)
        (attempt,) = quiet_stack.attempts(run)
        ready_at = quiet_stack.row("SELECT queued_at FROM run WHERE id = %s", run["id"])
        assert ready_at is not None
        first.append((attempt["published_at"] - ready_at["queued_at"]).total_seconds() * 1000)
        time.sleep(0.2)
    run = quiet_stack.trigger("chain")
    quiet_stack.wait_for_run(run)
    attempts = quiet_stack.attempts(run)
    for before, after in itertools.pairwise(attempts):
        later.append((after["published_at"] - before["ended_at"]).total_seconds() * 1000)
    commits = baselines.commits_a_second(quiet_stack)
    for what, values in (("run created", first), ("upstream finished", later)):
        table.append(
            (
                f"{what} to next task published, idle stack",
                f"median {statistics.median(values):.1f} ms, worst {max(values):.1f} ms of {len(values)}",
                f"one commit takes {1000 / commits:.2f} ms",
            )
        )
    assert len(later) == 9


def test_idle_cost(quiet_stack: Stack, table: list[Row]) -> None:
    assert quiet_stack.process is not None
    time.sleep(5)
    seconds = 30.0
    before = baselines.cpu_seconds(quiet_stack.process.pid)
    time.sleep(seconds)
    used = baselines.cpu_seconds(quiet_stack.process.pid) - before
    table.append(
        (
            "idle stack, all processes",
            f"{100 * used / seconds:.1f} % of a core over {seconds:.0f} s",
            "nothing runs: 0 %",
        )
    )
    assert used >= 0
