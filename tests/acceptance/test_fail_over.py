"""Schedulers come, go, stall and die under load, on one stack: nothing is lost, nothing runs twice.

The ground truth is a file outside the product: one line at the start and one at the end of each
execution of user code.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.stack import CHECKOUT, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.stack import Stack

FLAGS = ["--no-examples", "--concurrency", "4"]
ENVIRONMENT = {"DAYLIGHT_QUEUED_TIMEOUT_S": "4"}
FLOWS = 6  # of the load, in as many shards as their names fall into
TASKS = 3  # of each, one after the other
TTL_S = 3.0

SOURCE = """
    import os, time
    from scheduler_app.authoring import flow, task

    def note(ctx, what):
        line = f"{{ctx.attempt_id}} {{ctx.run_id}} {{ctx.task_id}} {{what}}\\n".encode()
        fd = os.open({sink!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(fd, line)
        os.close(fd)

    @task
    def step(ctx, seconds, after=None):
        note(ctx, "start")
        time.sleep(seconds)
        note(ctx, "end")

    for number in range({flows}):
        @flow(flow_id=f"load_{{number}}")
        def load():
            previous = None
            for _ in range({tasks}):
                previous = step(0.05, previous)

    @flow
    def short_and_long():
        step.override(task_id="short")(4)
        step.override(task_id="long")(16)
"""


class Scheduler:
    """One more scheduler of the stack, started and ended by the test, with failpoints of its own."""

    def __init__(self, stack: Stack, *, failpoints: str = "") -> None:
        self.stack = stack
        self.log = (stack.folder / f"scheduler-{time.monotonic_ns()}.log").open("w+b")
        environment = {
            **stack._environment,
            "DAYLIGHT_DATA_DIR": str(stack.data_dir),
            "DAYLIGHT_FLOWS": str(stack.flows),
            "DAYLIGHT_NO_EXAMPLES": "1",
            "DAYLIGHT_FAILPOINTS": failpoints,
        }
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "scheduler"],
            cwd=CHECKOUT,
            env=environment,
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def text(self) -> str:
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def job(self) -> Any:
        """Its job id, once it takes part."""
        return wait_for(
            "its job row",
            lambda: (
                (row := self.stack.row("SELECT id FROM job WHERE pid = %s", self.pid)) and row["id"]
            ),
            within_s=60,
        )

    def is_stopped(self) -> bool:
        """Whether a stop signal has it."""
        with open(f"/proc/{self.pid}/stat", encoding="utf-8") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "T"

    def end(self) -> None:
        """It is gone."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()


class Load:
    """Runs that are triggered all the time, until told to stop."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.runs: list[dict[str, Any]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._trigger)

    def _trigger(self) -> None:
        number = 0
        while not self._over.wait(0.4):
            self.runs.append(self.stack.trigger(f"load_{number % FLOWS}"))
            number += 1

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.fixture(scope="module")
def sink(stack: Stack) -> Path:
    return stack.folder / "sink"


@pytest.fixture(scope="module", autouse=True)
def _flows(stack: Stack, sink: Path) -> None:
    stack.write_flow("load.py", SOURCE.format(sink=str(sink), flows=FLOWS, tasks=TASKS))
    for number in range(FLOWS):
        stack.wait_for_flow(f"load_{number}")
    stack.wait_for_flow("short_and_long")


@pytest.fixture
def started(stack: Stack) -> Iterator[list[Scheduler]]:
    """Schedulers that the test starts; ended afterwards, and the stack's own leads all shards again."""
    made: list[Scheduler] = []
    yield made
    for one in made:
        one.end()
    wait_for("one scheduler leads", lambda: sorted(_shares(stack)) == [16], within_s=60)


def _shares(stack: Stack) -> list[int]:
    """How many shards each leader holds now."""
    rows = stack.rows(
        "SELECT count(*) AS n FROM lease WHERE holder IS NOT NULL AND expires_at > clock_timestamp()"
        " GROUP BY holder"
    )
    return [row["n"] for row in rows]


def _held_by(stack: Stack, job: Any) -> int:
    row = stack.row("SELECT count(*) AS n FROM lease WHERE holder = %s", job)
    assert row is not None
    return int(row["n"])


def _stop_cleanly(stack: Stack, one: Scheduler, job: Any) -> float:
    """It was asked to end, and did; after how many seconds nothing was held by it any more."""
    asked_at = time.monotonic()
    one.process.send_signal(signal.SIGTERM)
    wait_for(
        "its leases are released",
        lambda: _held_by(stack, job) == 0,
        within_s=30,
        every_s=0.02,
    )
    took_s = time.monotonic() - asked_at
    assert one.process.wait(30) == 0
    return took_s


def _assert_each_ran_once(stack: Stack, sink: Path, runs: list[dict[str, Any]]) -> None:
    """Every run succeeded, each of its tasks by one attempt that began once and ended once."""
    for run in runs:
        assert stack.wait_for_run(run, within_s=120)["state"] == "success"
    lines = Counter(sink.read_text().splitlines())
    for run in runs:
        attempts = stack.attempts(run)
        assert len(attempts) == TASKS
        for attempt in attempts:
            assert (attempt["dispatch_no"], attempt["outcome"]) == (1, "success")
            said = f"{attempt['id']} {run['run_id']} {attempt['task_id']}"
            assert (lines[f"{said} start"], lines[f"{said} end"]) == (1, 1)
        started = sum(
            n for line, n in lines.items() if f" {run['run_id']} " in line and "start" in line
        )
        assert started == TASKS, "nothing ran that has no row"


def _assert_tokens_grow(stack: Stack) -> None:
    falls = stack.rows(
        "SELECT * FROM (SELECT shard, token, lag(token) OVER (PARTITION BY shard ORDER BY id) AS before"
        " FROM lease_event WHERE kind = 'acquired') t WHERE token <= before"
    )
    assert falls == []


def test_one_two_three_and_one_scheduler_share_the_load_and_nothing_runs_twice(
    stack: Stack, sink: Path, started: list[Scheduler]
) -> None:
    wait_for("the first leads all", lambda: _shares(stack) == [16], within_s=60)
    with Load(stack) as load:
        started.append(Scheduler(stack))
        second = started[0].job()
        wait_for("halves", lambda: sorted(_shares(stack)) == [8, 8], within_s=60)
        started.append(Scheduler(stack))
        third = started[1].job()
        wait_for("thirds", lambda: sorted(_shares(stack)) == [4, 6, 6], within_s=60)
        for one, job in ((started[1], third), (started[0], second)):
            took_s = _stop_cleanly(stack, one, job)
            assert took_s < TTL_S, f"a planned stop released after {took_s:.2f} s"
        wait_for("the first leads all again", lambda: _shares(stack) == [16], within_s=60)
    _assert_each_ran_once(stack, sink, load.runs)
    _assert_tokens_grow(stack)
    why = stack.row(
        "SELECT detail->>'why' AS why FROM lease_event WHERE kind = 'released' AND holder = %s",
        third,
    )
    assert why == {"why": "the scheduler stopped"}
    # All of it was planned: nobody had to be fenced.
    planned = stack.rows(
        "SELECT DISTINCT kind FROM lease_event WHERE holder = ANY(%s)", [second, third]
    )
    assert {"kind": "fenced_write"} not in planned
    stack.assert_nothing_hidden()


def test_a_killed_leader_is_replaced_and_its_shards_are_gone_over_by_asking(
    stack: Stack, sink: Path, started: list[Scheduler]
) -> None:
    started.append(Scheduler(stack))
    killed = started[0].job()
    wait_for("halves", lambda: sorted(_shares(stack)) == [8, 8], within_s=60)
    with Load(stack) as load:
        wait_for("some load", lambda: len(load.runs) >= 4)
        killed_at = time.monotonic()
        started[0].process.kill()
        wait_for(
            "the other leads all",
            lambda: _shares(stack) == [16] and _held_by(stack, killed) == 0,
            within_s=60,
            every_s=0.05,
        )
        took_s = time.monotonic() - killed_at
    assert took_s < 3 * TTL_S, f"taken over after {took_s:.1f} s"
    _assert_each_ran_once(stack, sink, load.runs)
    taken = stack.rows(
        "SELECT id, ask_id FROM take_over WHERE old_holder = %s AND cause = 'expired'", killed
    )
    assert len(taken) == 8
    wait_for(
        "every report is complete",
        lambda: (
            not stack.rows(
                "SELECT 1 FROM take_over WHERE old_holder = %s AND ended_at IS NULL", killed
            )
        ),
        within_s=60,
    )
    answers = stack.rows("SELECT * FROM inquiry WHERE ask_id = %s", taken[0]["ask_id"])
    assert answers
    assert all(one["answered_at"] >= one["asked_at"] for one in answers)
    assert {one["pid"] for one in answers} == set(stack.job_pids("worker"))
    _assert_tokens_grow(stack)


def test_a_leader_that_is_stopped_inside_a_transaction_is_replaced_and_wakes_to_nothing(
    stack: Stack, sink: Path, started: list[Scheduler]
) -> None:
    """The proof that it holds locks the take-over out, until the database ends its session."""
    started.append(Scheduler(stack, failpoints="tick.before_commit=stop"))
    stalled = started[0].job()
    with Load(stack) as load:
        wait_for("it stopped in its first tick", started[0].is_stopped, within_s=60)
        wait_for(
            "the other leads all",
            lambda: _held_by(stack, stalled) == 0 and _shares(stack) == [16],
            within_s=60,
        )
        os.kill(started[0].pid, signal.SIGCONT)
        wait_for(
            "it is told, and has its share again",
            lambda: sorted(_shares(stack)) == [8, 8],
            within_s=60,
        )
    _assert_each_ran_once(stack, sink, load.runs)
    seen = stack.rows(
        "SELECT DISTINCT kind FROM lease_event WHERE holder = %s AND kind IN ('expired', 'demoted',"
        " 'fenced_write')",
        stalled,
    )
    assert {"kind": "expired"} in seen
    assert len(seen) > 1, "its own waking is a record too"
    _assert_tokens_grow(stack)
    stack.assert_nothing_hidden()


def test_schedulers_that_die_at_every_step_leave_nothing_undone_and_nothing_doubled(
    stack: Stack, sink: Path, started: list[Scheduler]
) -> None:
    points = (
        "lease.acquired",
        "take_over.before_commit",
        "take_over.after_commit",
        "tick.before_commit",
        "tick.after_commit",
        "publish.after",
    )
    with Load(stack) as load:
        # All at once, as at the restart of a whole cluster.
        started += [Scheduler(stack, failpoints=f"{point}=kill") for point in points]
        for point, one in zip(points, started, strict=True):
            try:
                assert one.process.wait(90) == -signal.SIGKILL, one.text()
            except subprocess.TimeoutExpired:
                # Shares that others hold may leave one without work: its point is never reached.
                assert point not in {"lease.acquired", "take_over.before_commit"}, one.text()
        for one in started:
            one.end()
        wait_for("one leads all", lambda: _shares(stack) == [16], within_s=60)
    _assert_each_ran_once(stack, sink, load.runs)
    _assert_tokens_grow(stack)
    stack.assert_nothing_hidden()


def test_a_fork_of_a_scheduler_ends_at_its_first_step_and_its_parent_goes_on(
    stack: Stack, started: list[Scheduler]
) -> None:
    started.append(Scheduler(stack, failpoints="turn.begin=fork@2"))
    job = started[0].job()
    wait_for("the fork has ended", lambda: "only its parent decides" in started[0].text())
    wait_for("the parent has its share", lambda: _held_by(stack, job) == 8, within_s=60)
    assert started[0].process.poll() is None
    run = stack.trigger("load_0")
    assert stack.wait_for_run(run)["state"] == "success"


def test_with_all_schedulers_dead_workers_finish_and_on_return_nothing_is_started_again(
    stack: Stack, sink: Path
) -> None:
    run = stack.trigger("short_and_long")

    def running() -> dict[str, Any] | None:
        found = {a["task_id"]: a for a in stack.attempts(run) if a["state"] == "running"}
        return found if len(found) == 2 else None

    attempts = wait_for("both tasks run", running)
    assert stack.process is not None
    os.kill(stack.process.pid, signal.SIGSTOP)  # the supervisor starts nobody anew meanwhile
    try:
        for pid in stack.job_pids("scheduler"):
            os.kill(pid, signal.SIGKILL)
        short = wait_for(
            "the short task is accepted while nobody leads",
            lambda: stack.row(
                "SELECT * FROM attempt WHERE id = %s AND is_accepted", attempts["short"]["id"]
            ),
        )
        assert short["outcome"] == "success"
        wait_for("all leases ran out", lambda: _shares(stack) == [], within_s=30)
    finally:
        os.kill(stack.process.pid, signal.SIGCONT)
    assert stack.wait_for_run(run, within_s=90)["state"] == "success"
    assert len(stack.attempts(run)) == 2, "nothing was started again"
    item = stack.row(
        "SELECT i.*, t.cause FROM take_over_item i JOIN take_over t ON t.id = i.take_over_id"
        " WHERE i.attempt_id = %s ORDER BY i.id DESC",
        attempts["long"]["id"],
    )
    assert item is not None
    assert (item["found"], item["decision"], item["cause"]) == ("running", "adopted", "expired")
    lines = sink.read_text().splitlines()
    assert sum(1 for line in lines if f" {run['run_id']} " in line) == 4
    stack.assert_nothing_hidden()
