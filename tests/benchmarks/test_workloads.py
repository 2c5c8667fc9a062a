"""W1 to W5 and W8: runs through a quiet stack, beside raw Celery in the same run."""

from __future__ import annotations

import itertools
import statistics
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pytest

from tests.benchmarks.bench import is_large, percentile
from tests.benchmarks.flows import FAN, MAPPED, ORDERED, WIDE
from tests.benchmarks.page import Row
from tests.stack import wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.benchmarks.bench import Bench, Timed

HALF_OF_RAW: Final = 0.5
CPU_MS_MAX: Final = 5.0
GAP_MS_MAX: Final = 10.0
START_MS_MAX: Final = 25.0
SINGLE_RUNS: Final = 60
WAITING: Final = 200
MAPPED_TASKS: Final = 5000
WAKE_LEAD_S: Final = 15.0
FLAT_FACTOR: Final = 1.25
LARGE_WITHIN_S: Final = 1200.0


def _rate_row(name: str, what: str, bench: Bench, timed: Sequence[Timed]) -> Row:
    """A row about tasks a second: the median of the rounds."""
    beside = bench.baselines()
    rate = statistics.median(one.tasks_s for one in timed)
    rates = [one.tasks_s for one in timed]
    cpu_ms = sum(one.cpu_s for one in timed) * 1000 / sum(one.tasks for one in timed)
    spread = f" ({min(rates):.0f} to {max(rates):.0f}, {len(rates)} rounds)" if rates[1:] else ""
    share = rate / beside.raw_tasks_s
    return Row(
        name=name,
        what=what,
        measured=f"{rate:.0f} tasks/s{spread}",
        goal=f"{HALF_OF_RAW} of raw, CPU under {CPU_MS_MAX:.0f} ms",
        is_met=share >= HALF_OF_RAW and cpu_ms < CPU_MS_MAX,
        tasks_s=rate,
        cpu_ms=cpu_ms,
        beside=beside,
    )


def test_w1_chain(bench: Bench, table: list[Row]) -> None:
    timed = [bench.through(lambda: bench.runs("chain_30")) for _ in range(4)][1:]
    gaps = []
    for one in timed:
        attempts = bench.rows(
            "SELECT started_at, ended_at FROM attempt WHERE run_id = ANY(%s) ORDER BY started_at",
            one.run_ids,
        )
        for before, after in itertools.pairwise(attempts):
            gaps.append((after["started_at"] - before["ended_at"]).total_seconds() * 1000)
    median = statistics.median(gaps)
    tasks = sum(one.tasks for one in timed)
    table.append(
        Row(
            name="W1",
            what="one run of 30 tasks in a chain: from one task's end to the next one's start",
            measured=f"median {median:.1f} ms, p95 {percentile(gaps, 0.95):.1f} ms;"
            f" the run {statistics.median(one.seconds for one in timed):.2f} s",
            goal=f"median under {GAP_MS_MAX:.0f} ms",
            is_met=median < GAP_MS_MAX,
            cpu_ms=sum(one.cpu_s for one in timed) * 1000 / tasks,
            beside=bench.baselines(),
        )
    )
    assert len(gaps) == 29 * 3


@pytest.mark.parametrize(("width", "rounds"), [(200, 5), (2000, 2)])
def test_w2_fan(bench: Bench, table: list[Row], width: int, rounds: int) -> None:
    with bench.flow(f"fan_{width}", FAN.format(width=width)) as flow_id:
        timed = [bench.through(lambda: bench.runs(flow_id)) for _ in range(rounds + 1)][1:]
    assert {one.tasks for one in timed} == {width + 2}
    table.append(_rate_row("W2", f"1 → {width:,} → 1, each given the first's result", bench, timed))


@pytest.mark.parametrize(("width", "rounds"), [(200, 5), (2000, 2)])
def test_w2_ordered(bench: Bench, table: list[Row], width: int, rounds: int) -> None:
    with bench.flow(f"ordered_{width}", ORDERED.format(width=width)) as flow_id:
        timed = [bench.through(lambda: bench.runs(flow_id)) for _ in range(rounds + 1)][1:]
    assert {one.tasks for one in timed} == {width + 2}
    table.append(_rate_row("W2", f"1 → {width:,} → 1, one after the other alone", bench, timed))


def test_w3_forty_runs(bench: Bench, table: list[Row]) -> None:
    timed = [bench.through(lambda: bench.runs("chain_5", 40)) for _ in range(7)][2:]
    table.append(_rate_row("W3", "40 runs of a 5-task chain at once, 40 calls", bench, timed))


def test_w3_forty_runs_by_one_call(bench: Bench, table: list[Row]) -> None:
    timed = [bench.through(lambda: bench.runs_by_one_call("chain_5", 40)) for _ in range(7)][2:]
    table.append(_rate_row("W3", "40 runs of a 5-task chain at once, one call", bench, timed))


def test_w3_four_hundred_runs(bench: Bench, table: list[Row]) -> None:
    timed = [bench.through(lambda: bench.runs_by_one_call("chain_5", 400)) for _ in range(4)][1:]
    table.append(_rate_row("W3", "400 runs of a 5-task chain, created by one call", bench, timed))


def test_w4_one_task(bench: Bench, table: list[Row]) -> None:
    waited = []
    before = bench.cpu_s()
    for _ in range(SINGLE_RUNS):
        (run_id,) = [bench.stack.trigger("single")["id"]]
        answered_at = datetime.now(UTC)
        bench.wait([run_id])
        started_at = bench.value("SELECT started_at FROM attempt WHERE run_id = %s", run_id)
        waited.append((started_at - answered_at).total_seconds() * 1000)
        time.sleep(0.1)
    cpu_ms = (bench.cpu_s() - before) * 1000 / SINGLE_RUNS
    p50 = percentile(waited, 0.5)
    table.append(
        Row(
            name="W4",
            what="a one-task run on an idle stack: from the API's answer to the task's start",
            measured=f"p50 {p50:.1f} ms, p95 {percentile(waited, 0.95):.1f} ms"
            f" of {SINGLE_RUNS} runs",
            goal=f"p50 under {START_MS_MAX:.0f} ms",
            is_met=p50 < START_MS_MAX,
            cpu_ms=cpu_ms,
            beside=bench.baselines(),
        )
    )


def test_w5_due_at_once(bench: Bench, table: list[Row]) -> None:
    due_at = datetime.now(UTC) + timedelta(seconds=WAKE_LEAD_S)
    (run_id,) = bench.runs("wakes_200", conf={"due_at": due_at.isoformat()})
    wait_for(
        "every task waits",
        lambda: (
            bench.value("SELECT count(*) FROM trigger WHERE run_id = %s AND is_waiting", run_id)
            == WAITING
        ),
        within_s=WAKE_LEAD_S,
    )
    while datetime.now(UTC) < due_at - timedelta(seconds=0.2):
        time.sleep(0.05)
    before = bench.cpu_s()
    bench.wait([run_id])
    cpu_ms = (bench.cpu_s() - before) * 1000 / WAITING
    (row,) = bench.rows(
        "SELECT min(started_at) AS first, max(ended_at) AS last FROM attempt"
        " WHERE run_id = %s AND resume_index = 1",
        run_id,
    )
    took_s = (row["last"] - due_at).total_seconds()
    first_ms = (row["first"] - due_at).total_seconds() * 1000
    beside = bench.baselines()
    table.append(
        Row(
            name="W5",
            what=f"{WAITING} tasks that come due at once: from the due moment to the last end",
            measured=f"{took_s:.2f} s ({WAITING / took_s:.0f} tasks/s); the first started after"
            f" {first_ms:.0f} ms",
            goal=f"CPU under {CPU_MS_MAX:.0f} ms",
            is_met=cpu_ms < CPU_MS_MAX,
            tasks_s=WAITING / took_s,
            cpu_ms=cpu_ms,
            beside=beside,
        )
    )


def test_w8_five_thousand(bench: Bench, table: list[Row]) -> None:
    with bench.flow("mapped_5000", MAPPED.format(width=MAPPED_TASKS)) as flow_id:
        timed = bench.through(lambda: bench.runs(flow_id), within_s=600)
    assert timed.tasks == MAPPED_TASKS + 1
    table.append(_rate_row("W8", f"one run of {MAPPED_TASKS:,} mapped tasks", bench, [timed]))


def test_flat_cost(bench: Bench, table: list[Row]) -> None:
    """Of tasks that are written one by one, and of elements of a list that is known at run time."""
    large = (100_000,) if is_large() else ()
    _flat(bench, table, "tasks", "wide", WIDE, (1000, 10_000, *large))
    _flat(bench, table, "mapped tasks", "mapped", MAPPED, (1000, 10_000, *large))


def _flat(
    bench: Bench, table: list[Row], what: str, name: str, source: str, sizes: Sequence[int]
) -> None:
    found: dict[int, Timed] = {}
    for size in sizes:
        with bench.flow(f"{name}_{size}", source.format(width=size)) as flow_id:
            found[size] = bench.through(lambda: bench.runs(flow_id), within_s=LARGE_WITHIN_S)
    cheapest = found[sizes[0]].cpu_ms
    for size, timed in found.items():
        table.append(
            Row(
                name="flat",
                what=f"cost of a task in one run of {size:,} {what}",
                measured=f"{timed.tasks_s:.0f} tasks/s",
                goal=f"CPU within {FLAT_FACTOR} of the smallest run's",
                is_met=timed.cpu_ms <= FLAT_FACTOR * cheapest,
                cpu_ms=timed.cpu_ms,
            )
        )
