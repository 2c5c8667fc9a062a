"""What a task may do wrong: each gets a clear error, and the worker goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.stack import Stack

FLAGS = ["--no-examples", "--concurrency", "2"]

FLOW = """
    import os, signal, sys
    from datetime import timedelta
    from scheduler_app.authoring import flow, task

    @task
    def unserialisable():
        return object()

    @task
    def huge():
        return "x" * 50_000_000

    @task
    def exits():
        sys.exit(3)

    @task
    def base():
        raise BaseException("not an Exception")

    @task
    def interrupt():
        raise KeyboardInterrupt

    @task
    def out_of_memory():
        raise MemoryError

    @task
    def kills_itself():
        os.kill(os.getpid(), signal.SIGKILL)

    @task
    def leaves():
        os._exit(0)

    @task(timeout=timedelta(seconds=1))
    def endless():
        while True:
            pass

    @task
    def noisy():
        chunk = b"y" * 1_000_000
        for _ in range(100):
            os.write(1, chunk)

    @task
    def binary():
        os.write(1, bytes(range(256)) * 10)
        print("and text after it")

    TASKS = {
        one.__name__: one
        for one in (unserialisable, huge, exits, base, interrupt, out_of_memory, kills_itself,
                    leaves, endless, noisy, binary)
    }

    def make(name, one):
        @flow(flow_id="bad_" + name)
        def bad():
            one()

    for name, one in TASKS.items():
        make(name, one)
"""

FAILING = {
    "unserialisable": "object",
    "huge": "50,000",
    "exits": "3",
    "base": "not an Exception",
    "interrupt": "KeyboardInterrupt",
    "out_of_memory": "MemoryError",
    "endless": "1",
}


@pytest.fixture(scope="module")
def runs(stack: Stack) -> dict[str, dict[str, Any]]:
    """Every bad task was run once, all at the same time."""
    stack.write_flow("bad_tasks.py", FLOW)
    names = [*FAILING, "kills_itself", "leaves", "noisy", "binary"]
    for name in names:
        stack.wait_for_flow(f"bad_{name}")
    return {name: stack.trigger(f"bad_{name}") for name in names}


@pytest.mark.parametrize("name", list(FAILING))
def test_it_fails_and_says_why(stack: Stack, runs: dict[str, Any], name: str) -> None:
    assert stack.wait_for_run(runs[name], within_s=90)["state"] == "failed"
    (attempt,) = stack.attempts(runs[name])
    assert attempt["outcome"] == "failed"
    assert FAILING[name] in str(attempt["error"]) + str(attempt["outcome_reason"])


@pytest.mark.parametrize("name", ["kills_itself", "leaves"])
def test_a_process_that_ends_itself_is_witnessed(
    stack: Stack, runs: dict[str, Any], name: str
) -> None:
    assert stack.wait_for_run(runs[name], within_s=90)["state"] == "failed"
    (attempt,) = stack.attempts(runs[name])
    assert attempt["outcome"] == "terminated"
    events = stack.events(attempt["id"])
    assert "killed_externally" in {e["verdict_code"] for e in events}


def test_output_without_end_is_capped_with_a_notice(stack: Stack, runs: dict[str, Any]) -> None:
    assert stack.wait_for_run(runs["noisy"], within_s=120)["state"] == "success"
    (attempt,) = stack.attempts(runs["noisy"])
    row = stack.row(
        "SELECT sum(length(data)) AS size FROM attempt_log_chunk WHERE attempt_id = %s",
        attempt["id"],
    )
    assert row is not None
    assert 1_000_000 < row["size"] < 12_000_000


def test_output_of_any_bytes_is_kept(stack: Stack, runs: dict[str, Any]) -> None:
    assert stack.wait_for_run(runs["binary"], within_s=90)["state"] == "success"
    (attempt,) = stack.attempts(runs["binary"])
    chunks = stack.rows(
        "SELECT data FROM attempt_log_chunk WHERE attempt_id = %s ORDER BY start_offset",
        attempt["id"],
    )
    log = b"".join(bytes(chunk["data"]) for chunk in chunks)
    assert bytes(range(256)) in log
    assert b"and text after it" in log


def test_the_worker_goes_on_and_nothing_is_hidden(stack: Stack, runs: dict[str, Any]) -> None:
    for run in runs.values():
        stack.wait_for_run(run, within_s=120)
    assert stack.rows("SELECT * FROM attempt WHERE is_live") == []
    stack.assert_nothing_hidden()
