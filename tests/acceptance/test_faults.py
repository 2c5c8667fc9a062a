"""Real processes killed with real signals; messages lost, doubled and late."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import redis
from celery import Celery

from scheduler_app.executors.celery import CeleryExecutor
from scheduler_app.transitions.attempt import Message
from scheduler_app.transitions.identity import database_identity
from tests.stack import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stack import Stack

FLAGS = ["--no-examples", "--concurrency", "2"]
ENVIRONMENT = {"DAYLIGHT_QUEUED_TIMEOUT_S": "2"}

FLOW = """
    import os, time
    from datetime import timedelta
    from scheduler_app.authoring import flow, task

    # Ground truth outside the product: one line at the start and one at the end of each execution.
    def note(ctx, what):
        line = f"{{ctx.attempt_id}} {{ctx.fence}} {{os.getpid()}} {{what}}\\n".encode()
        fd = os.open({sink!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(fd, line)
        os.fsync(fd)
        os.close(fd)

    @task(retries=1, retry_delay=timedelta(seconds=0))
    def work(ctx):
        note(ctx, "start")
        # Long the first time, so that it can be disturbed; short once it was.
        time.sleep(ctx.conf.get("seconds", 0) if ctx.try_number == 1 and not ctx.conf.get("once") else 0.2)
        note(ctx, "end")

    @task
    def quick(ctx, number):
        note(ctx, "start")
        note(ctx, "end")

    @flow
    def disturbed():
        work()

    @flow
    def many():
        for number in range(20):
            quick(number)
"""


@pytest.fixture(scope="module")
def sink(stack: Stack) -> Path:
    return stack.folder / "sink"


@pytest.fixture(scope="module", autouse=True)
def _flow(stack: Stack, sink: Path) -> None:
    stack.write_flow("faults.py", FLOW.format(sink=str(sink)))
    stack.wait_for_flow("disturbed")
    stack.wait_for_flow("many")


def _lines(sink: Path, attempt: dict[str, Any]) -> list[str]:
    found = [line.split() for line in sink.read_text().splitlines()]
    return [what for attempt_id, _, _, what in found if attempt_id == str(attempt["id"])]


def _running_attempt(stack: Stack, run: dict[str, Any], sink: Path) -> dict[str, Any]:
    """The run's running attempt, once its user code has started."""

    def look() -> dict[str, Any] | None:
        for attempt in stack.attempts(run):
            if attempt["state"] == "running" and sink.exists() and _lines(sink, attempt):
                return attempt
        return None

    found: dict[str, Any] = wait_for("an attempt runs", look)
    return found


def test_a_killed_child_is_witnessed_within_two_seconds_and_uses_a_retry(
    stack: Stack, sink: Path
) -> None:
    run = stack.trigger("disturbed", conf={"seconds": 60})
    attempt = _running_attempt(stack, run, sink)
    os.kill(attempt["pid"], signal.SIGKILL)
    killed_at = time.monotonic()
    wait_for(
        "the exit event",
        lambda: [e for e in stack.events(attempt["id"]) if e["kind"] == "exit_killed"],
        within_s=2.0,
        every_s=0.05,
    )
    assert time.monotonic() - killed_at < 2.0
    assert stack.wait_for_run(run)["state"] == "success"
    first, second = stack.attempts(run)
    assert (first["outcome"], first["filter_code"]) == ("terminated", "superseded_by_retry")
    assert (second["try_number"], second["dispatch_no"]) == (2, 1)
    (event,) = [e for e in stack.events(attempt["id"]) if e["kind"] == "exit_killed"]
    assert event["verdict_code"] == "killed_externally"
    assert _lines(sink, first) == ["start"]
    assert _lines(sink, second) == ["start", "end"]
    stack.assert_nothing_hidden()


def test_a_killed_worker_loses_its_attempt_and_another_dispatch_of_the_same_try_follows(
    stack: Stack, sink: Path
) -> None:
    run = stack.trigger("disturbed", conf={"seconds": 6})
    attempt = _running_attempt(stack, run, sink)
    (worker,) = stack.job_pids("worker")
    os.kill(worker, signal.SIGKILL)
    assert stack.wait_for_run(run, within_s=90)["state"] == "success"
    first, second = stack.attempts(run)
    assert first["id"] == attempt["id"]
    assert (first["outcome"], first["filter_code"]) == ("lost", "lost_worker")
    assert (second["try_number"], second["dispatch_no"]) == (1, 2)
    assert _lines(sink, first) == ["start"], "the child of a killed worker dies with it"
    assert second["fence"] > first["fence"]
    stack.assert_nothing_hidden()


def test_a_terminated_worker_hands_its_attempt_back_without_using_a_budget(
    stack: Stack, sink: Path
) -> None:
    run = stack.trigger("disturbed", conf={"seconds": 60})
    attempt = _running_attempt(stack, run, sink)
    (worker,) = stack.job_pids("worker")
    stack.rows("UPDATE run SET conf = '{\"seconds\": 0}' WHERE id = %s RETURNING id", run["id"])
    os.kill(worker, signal.SIGTERM)
    assert stack.wait_for_run(run, within_s=90)["state"] == "success"
    first, second = stack.attempts(run)
    assert first["id"] == attempt["id"]
    assert first["outcome"] == "lost"
    assert (second["try_number"], second["dispatch_no"]) == (1, 2)
    (row,) = stack.rows("SELECT infra_losses FROM task_instance WHERE run_id = %s", run["id"])
    assert row["infra_losses"] == 0
    stack.assert_nothing_hidden()


def test_an_emptied_broker_loses_no_task_and_doubles_none(stack: Stack, sink: Path) -> None:
    holders = [stack.trigger("disturbed", conf={"seconds": 5}) for _ in range(2)]
    for holder in holders:
        _running_attempt(stack, holder, sink)
    run = stack.trigger("many")
    wait_for(
        "messages wait in the queue",
        lambda: [a for a in stack.attempts(run) if a["published_at"] and a["state"] == "issued"],
    )
    redis.Redis.from_url(stack.addresses.broker_url).flushall()
    assert stack.wait_for_run(run, within_s=90)["state"] == "success"
    attempts = stack.attempts(run)
    assert len(attempts) == 20
    assert all(_lines(sink, a) == ["start", "end"] for a in attempts)
    assert any(a["publish_count"] > 1 for a in attempts)
    for holder in holders:
        assert stack.wait_for_run(holder)["state"] == "success"
    stack.assert_nothing_hidden()


def _deliver_again(stack: Stack, attempt: dict[str, Any]) -> None:
    with psycopg.connect(stack.addresses.database_url) as connection:
        identity = database_identity(connection)
    executor = CeleryExecutor(
        Celery(broker=stack.addresses.broker_url, fixups=[], set_as_current=False)
    )
    message = Message(
        attempt_id=attempt["id"],
        ti_id=attempt["ti_id"],
        run_id=attempt["run_id"],
        fence=attempt["fence"],
        lease_token=attempt["lease_token"],
        queue=attempt["queue"],
    )
    assert executor.publish([message], identity=identity) == {attempt["id"]}
    executor.close()


def _refusals(stack: Stack, attempt: dict[str, Any]) -> list[dict[str, Any]]:
    return [e for e in stack.events(attempt["id"]) if e["verdict"] == "refused"]


def test_a_second_delivery_is_refused_disturbs_nothing_and_is_a_record(
    stack: Stack, sink: Path
) -> None:
    run = stack.trigger("disturbed", conf={"seconds": 4})
    attempt = _running_attempt(stack, run, sink)
    _deliver_again(stack, attempt)
    (refusal,) = wait_for("the refusal", lambda: _refusals(stack, attempt))
    assert refusal["verdict_code"] == refusal["filter_code"] == "duplicate_delivery"
    assert stack.wait_for_run(run)["state"] == "success"
    assert _lines(sink, attempt) == ["start", "end"]
    # And again, long after: the attempt ended, its row says so.
    stack.rows(
        "UPDATE attempt SET issued_at = issued_at - interval '1 hour',"
        " started_at = started_at - interval '1 hour', ended_at = ended_at - interval '1 hour'"
        " WHERE id = %s RETURNING id",
        attempt["id"],
    )
    _deliver_again(stack, attempt)
    wait_for("the second refusal", lambda: len(_refusals(stack, attempt)) == 2)
    assert _lines(sink, attempt) == ["start", "end"]
    assert len(stack.attempts(run)) == 1
    stack.assert_nothing_hidden()


def test_a_delivery_for_another_database_is_refused(stack: Stack) -> None:
    run = stack.trigger("disturbed", conf={"seconds": 0})
    stack.wait_for_run(run)
    (attempt,) = stack.attempts(run)
    executor = CeleryExecutor(
        Celery(broker=stack.addresses.broker_url, fixups=[], set_as_current=False)
    )
    message = Message(
        attempt_id=attempt["id"],
        ti_id=attempt["ti_id"],
        run_id=attempt["run_id"],
        fence=attempt["fence"],
        lease_token=attempt["lease_token"],
        queue=attempt["queue"],
    )
    executor.publish([message], identity="7:00000001:1:elsewhere")
    executor.close()
    (refusal,) = wait_for("the refusal", lambda: _refusals(stack, attempt))
    assert refusal["verdict_code"] == "fenced_other_database"


def test_a_restarted_database_costs_time_and_nothing_else(stack: Stack, sink: Path) -> None:
    run = stack.trigger("disturbed", conf={"seconds": 4})
    attempt = _running_attempt(stack, run, sink)
    pid_file = next(stack.data_dir.rglob("postmaster.pid"), None)
    assert pid_file is not None, "the embedded server's folder is in the data folder"
    os.kill(int(pid_file.read_text().split()[0]), signal.SIGINT)
    assert wait_for("the run ends", lambda: _ended(stack, run), within_s=90) == "success"
    assert _lines(sink, attempt) == ["start", "end"], "the task did not run again"
    assert len(stack.attempts(run)) == 1
    for _ in range(20):
        assert stack.api("GET", "/api/v1/runs/?limit=1")["results"], (
            "no connection of before is used"
        )


def _ended(stack: Stack, run: dict[str, Any]) -> str | None:
    try:
        row = stack.row("SELECT state FROM run WHERE id = %s AND NOT is_active", run["id"])
    except psycopg.OperationalError:
        return None
    return row["state"] if row else None
