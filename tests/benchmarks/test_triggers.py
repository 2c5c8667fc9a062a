"""What waiting costs: 10,000 watched triggers on one core, a million timers, and how soon they fire."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from scheduler_app.transitions.trigger import fire_due
from tests.benchmarks.page import Row
from tests.stack import Stack, running, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator


WATCHED: Final = 10_000
TIMERS: Final = 1_000_000
WATCH_S: Final = 20.0

FLOW = """
    import asyncio, os
    from dataclasses import dataclass
    from datetime import timedelta
    from scheduler_app.authoring import *

    @dataclass(frozen=True)
    class Asks(Trigger):
        path: str

        async def run(self):
            while not os.path.exists(self.path):
                await asyncio.sleep(5)
            return self.path

    @task
    def asks():
        raise Defer(Asks("/nowhere"), method="done")

    @asks.method
    def done(event):
        return event

    @flow
    def waits():
        asks()
"""

# Task instances of a run that no scheduler looks at any more, each waiting for a trigger.
_WAITING = """
WITH run AS (
  UPDATE run SET is_active = false, state = 'success', ended_at = clock_timestamp()
   WHERE id = %(run)s RETURNING id),
i AS (
  INSERT INTO task_instance (run_id, shard, task_id, map_index, state, is_open, try_number,
                             max_tries, resume_index, dispatch_no, budget_start, infra_losses, pool,
                             pool_slots, queue, priority, next_method, next_kwargs)
  SELECT run.id, 0, %(task)s, n, 'deferred', true, 1, 0, 0, 1, 0, 0, 'default', 1, 'default', 0,
         'done', '{"kwargs": {}}'
    FROM run, generate_series(1, %(number)s) n
  RETURNING id, run_id)
INSERT INTO trigger (ti_id, run_id, shard, try_number, resume_index, kind, classpath, kwargs, state,
                     is_waiting, due_at, wake_at, block_count, created_at)
SELECT i.id, i.run_id, 0, 1, 0, %(kind)s, %(classpath)s, %(kwargs)s::jsonb, 'waiting', true,
       %(due_at)s::timestamptz, %(due_at)s::timestamptz, 0, clock_timestamp()
  FROM i
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack of its own: what it keeps afterwards would weigh on the other benchmarks."""
    folder = tmp_path_factory.mktemp("triggers")
    environment = {"DAYLIGHT_LEASE_TTL": "15"}
    with running(folder, flags=["--no-examples"], environment=environment) as made:
        made.write_flow("waits.py", FLOW)
        made.wait_for_flow("waits")
        yield made


@pytest.fixture
def original(stack: Stack) -> Iterator[dict[str, Any]]:
    """A trigger of the flow, written by a worker; what is made from it is gone afterwards."""
    run = stack.trigger("waits")
    found: dict[str, Any] = wait_for(
        "the task waits", lambda: stack.row("SELECT * FROM trigger WHERE run_id = %s", run["id"])
    )
    yield found
    _execute(stack, "TRUNCATE trigger")


def _execute(stack: Stack, query: str, **values: Any) -> None:
    with psycopg.connect(stack.addresses.database_url, autocommit=True) as connection:
        connection.execute(query, values or None)


def _make(
    stack: Stack, original: dict[str, Any], number: int, due_at: str | None = None, **changed: Any
) -> None:
    values = {
        "run": original["run_id"],
        "task": f"made_{time.monotonic_ns()}",
        "number": number,
        "kind": "watched" if due_at is None else "time",
        "classpath": original["classpath"],
        "kwargs": '{"path": "/nowhere"}',
        "due_at": due_at,
        **changed,
    }
    _execute(stack, _WAITING, **values)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _count(stack: Stack, condition: str) -> int:
    (row,) = stack.rows(f"SELECT count(*) AS n FROM trigger WHERE {condition}")
    return int(row["n"])


def _watched_cost(stack: Stack) -> tuple[float, float]:
    """Seconds until every trigger was watched, and the share of a core that watching takes."""
    (pid,) = stack.job_pids("triggerer")
    began = time.monotonic()
    wait_for(
        "every trigger is watched",
        lambda: _count(stack, "is_waiting AND triggerer_job_id IS NULL") == 0,
        within_s=120,
    )
    claimed_s = time.monotonic() - began
    time.sleep(6)  # every trigger has looked once
    before = _cpu_s(pid)
    time.sleep(WATCH_S)
    return claimed_s, (_cpu_s(pid) - before) / WATCH_S


def test_ten_thousand_triggers_of_an_author(
    stack: Stack, original: dict[str, Any], table: list[Row]
) -> None:
    _make(stack, original, WATCHED - 1)
    claimed_s, share = _watched_cost(stack)
    table.append(
        Row(
            name="waits",
            what=f"{WATCHED:,} triggers of an author's own, each looking every 5 s",
            measured=f"{share:.0%} of a core; claimed and started within {claimed_s:.1f} s",
        )
    )
    assert share < 0.8, "10,000 waiting triggers fit on one core"


def test_ten_thousand_files(stack: Stack, original: dict[str, Any], table: list[Row]) -> None:
    _make(stack, original, WATCHED - 1, classpath="scheduler_app.authoring.triggers:FileTrigger")
    claimed_s, share = _watched_cost(stack)
    table.append(
        Row(
            name="waits",
            what=f"{WATCHED:,} file triggers, each looking every 5 s",
            measured=f"{share:.0%} of a core; claimed and started within {claimed_s:.1f} s",
        )
    )
    assert share < 0.8


def test_ten_thousand_timers_due_at_once(
    stack: Stack, original: dict[str, Any], table: list[Row]
) -> None:
    _make(stack, original, WATCHED, due_at="2026-01-01T00:00:00Z")
    began = time.monotonic()
    wait_for(
        "every timer has fired",
        lambda: _count(stack, "is_waiting AND kind = 'time'") == 0,
        within_s=120,
        every_s=0.05,
    )
    took_s = time.monotonic() - began
    table.append(
        Row(
            name="waits",
            what=f"{WATCHED:,} timers due at once",
            measured=f"{WATCHED / took_s:,.0f} fires/s",
        )
    )
    assert took_s < 60


def test_a_million_waiting_timers_cost_a_look_nothing(
    stack: Stack, original: dict[str, Any], table: list[Row]
) -> None:
    with psycopg.connect(stack.addresses.database_url, autocommit=True) as connection:

        def look_ms() -> float:
            times = []
            for _ in range(30):
                began = time.monotonic()
                fire_due(connection, limit=500)
                times.append(time.monotonic() - began)
            return statistics.median(times) * 1000

        empty_ms = look_ms()
        _make(stack, original, TIMERS, due_at="2100-01-01T00:00:00Z")
        connection.execute("ANALYZE trigger")
        full_ms = look_ms()
    table.append(
        Row(
            name="waits",
            what=f"a look at what is due, {TIMERS:,} timers waiting",
            measured=f"{full_ms:.2f} ms; {empty_ms:.2f} ms with none",
        )
    )
    assert full_ms < max(5.0, 5 * empty_ms)
