"""Callbacks with real processes: what happened is told once, whoever was killed while it happened."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.stack import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stack import Stack

# Two schedulers, each with its judge and its sweeps.
FLAGS = ["--no-examples", "--concurrency", "2", "--schedulers", "2"]
ENVIRONMENT = {"DAYLIGHT_INFRASTRUCTURE_BUDGET": "1", "DAYLIGHT_EXIT_GRACE_S": "0.5"}

FLOW = """
    import json, os, signal, time
    from scheduler_app.authoring import flow, task

    # Ground truth outside the product: one line for each call, in one write.
    def say(**what):
        fd = os.open({sink!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(fd, (json.dumps(what) + chr(10)).encode())
        os.fsync(fd)
        os.close(fd)

    def tell(context):
        ti, run, error = context["ti"], context["dag_run"], context["exception"]
        say(run=run.run_id, on=context["callback"], task=ti and ti.task_id,
            state=(ti or run).state, try_number=context["try_number"],
            error=None if error is None else str(error), pid=os.getpid())
        print("told of", context["callback"])

    def refuse(context):
        tell(context)
        raise RuntimeError("nobody answers")

    def die_once(context):
        tell(context)
        marker = {sink!r} + "." + context["run_id"].replace(":", "_")
        if not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

    def die(context):
        tell(context)
        os.kill(os.getpid(), signal.SIGKILL)

    def linger(context):
        tell(context)
        time.sleep(context["conf"].get("seconds", 0))

    every = {{f"on_{{on}}_callback": tell for on in ("execute", "retry", "success", "failure", "skipped")}}
    of_run = {{"on_success_callback": tell, "on_failure_callback": tell}}

    @task(retries=1, retry_delay=0)
    def killed():
        os.kill(os.getpid(), signal.SIGKILL)

    @flow(default_args=every, **of_run)
    def kills():
        killed()

    @task
    def fine():
        print("fine")

    @task(trigger_rule="one_failed")
    def alarm():
        print("never")

    @flow(default_args=every, **of_run)
    def goes_well():
        fine() >> alarm()

    @task
    def slow():
        time.sleep(600)

    @flow(default_args={{"on_failure_callback": [tell, refuse], "on_retry_callback": tell}}, **of_run)
    def loses_workers():
        slow()

    @flow(default_args={{"on_success_callback": die_once}})
    def dies_once():
        fine()

    @flow(default_args={{"on_success_callback": die}})
    def dies():
        fine()

    @flow(default_args={{"on_success_callback": linger}})
    def lingers():
        fine()
"""


@pytest.fixture(scope="module")
def sink(stack: Stack) -> Path:
    return stack.folder / "sink"


@pytest.fixture(scope="module", autouse=True)
def _flows(stack: Stack, sink: Path) -> None:
    stack.write_flow("callbacks.py", FLOW.format(sink=str(sink)))
    stack.wait_for_flow("lingers")


def told(sink: Path, run: dict[str, Any]) -> list[dict[str, Any]]:
    """What the callbacks of the run wrote down, in that order."""
    if not sink.exists():
        return []
    lines = [json.loads(line) for line in sink.read_text().splitlines()]
    return [line for line in lines if line["run"] == run["run_id"]]


def kinds(sink: Path, run: dict[str, Any]) -> list[tuple[str | None, str, str, int | None]]:
    """Task, kind, state and try of each call of the run, sorted."""
    found = [(c["task"], c["on"], c["state"], c["try_number"]) for c in told(sink, run)]
    return sorted(found, key=str)


def callbacks(stack: Stack, run: dict[str, Any]) -> list[dict[str, Any]]:
    """Attempts of kind callback, oldest first."""
    return [row for row in stack.attempts(run) if row["kind"] == "callback"]


def wait_for_callbacks(stack: Stack, run: dict[str, Any]) -> list[dict[str, Any]]:
    """The run ended, and so did its callbacks."""
    stack.wait_for_run(run, within_s=120)

    def ended() -> list[dict[str, Any]] | None:
        rows = callbacks(stack, run)
        return rows if rows and not any(row["is_live"] for row in rows) else None

    found: list[dict[str, Any]] = wait_for("every callback ended", ended, within_s=120)
    return found


def log_of(stack: Stack, attempt: dict[str, Any]) -> str:
    """What the attempt printed, by the command line."""
    rows = stack.rows(
        "SELECT data FROM attempt_log_chunk WHERE attempt_id = %s ORDER BY start_offset",
        attempt["id"],
    )
    return b"".join(bytes(row["data"]) for row in rows).decode()


def test_a_killed_child_calls_for_its_retry_once_and_at_the_last_try_for_its_failure_once(
    stack: Stack, sink: Path
) -> None:
    run = stack.trigger("kills")
    rows = wait_for_callbacks(stack, run)
    assert kinds(sink, run) == sorted(
        [
            ("killed", "on_execute", "running", 1),
            ("killed", "on_retry", "up_for_retry", 1),
            ("killed", "on_execute", "running", 2),
            ("killed", "on_failure", "failed", 2),
            (None, "on_failure", "failed", None),
        ],
        key=str,
    )
    assert {row["outcome"] for row in rows} == {"success"}
    of_failure = [c for c in told(sink, run) if c["on"] == "on_failure" and c["task"]]
    assert "it was killed externally" in of_failure[0]["error"]
    # Each recorded with its log, and with the exit that its worker saw.
    for row in rows:
        assert log_of(stack, row) == f"told of {row['callback']['on']}\n"
        (event,) = wait_for("its exit event", lambda row=row: stack.events(row["id"]))  # type: ignore[misc]  # bound now
        assert (event["kind"], event["verdict"]) == ("exit_success", "confirmed")
    assert not {c["pid"] for c in told(sink, run)} & {os.getpid()}
    stack.assert_nothing_hidden()


def test_what_goes_well_is_told_too_and_so_is_a_skip(stack: Stack, sink: Path) -> None:
    run = stack.trigger("goes_well")
    wait_for_callbacks(stack, run)
    assert kinds(sink, run) == sorted(
        [
            ("fine", "on_execute", "running", 1),
            ("fine", "on_success", "success", 1),
            ("alarm", "on_skipped", "skipped", 0),
            (None, "on_success", "success", None),
        ],
        key=str,
    )
    stack.assert_nothing_hidden()


def _kill_worker_of(stack: Stack, attempt: dict[str, Any]) -> None:
    row = stack.row("SELECT pid FROM job WHERE id = %s", attempt["worker_job_id"])
    assert row is not None
    os.kill(row["pid"], signal.SIGKILL)


def _running(stack: Stack, run: dict[str, Any], kind: str, number: int) -> dict[str, Any]:
    """The running attempt of this kind and dispatch."""

    def look() -> dict[str, Any] | None:
        for row in stack.attempts(run):
            if (row["kind"], row["state"], row["dispatch_no"]) == (kind, "running", number):
                return row
        return None

    found: dict[str, Any] = wait_for(f"{kind} {number} runs", look, within_s=90)
    return found


def test_lost_workers_call_for_the_failure_once_when_their_budget_is_used_up(
    stack: Stack, sink: Path
) -> None:
    run = stack.trigger("loses_workers")
    for dispatch_no in (1, 2):
        assert told(sink, run) == [], "a loss within the budget is no failure"
        _kill_worker_of(stack, _running(stack, run, "task", dispatch_no))
    rows = wait_for_callbacks(stack, run)
    assert kinds(sink, run) == sorted(
        [
            ("slow", "on_failure", "failed", 1),
            ("slow", "on_failure", "failed", 1),
            (None, "on_failure", "failed", None),
        ],
        key=str,
    )
    named = {row["callback"]["name"]: row for row in rows if row["ti_id"]}
    assert (named["tell"]["outcome"], named["refuse"]["outcome"]) == ("success", "failed")
    assert named["refuse"]["outcome_reason"] == "RuntimeError: nobody answers"
    assert "RuntimeError: nobody answers" in log_of(stack, named["refuse"])
    ti = stack.row("SELECT * FROM task_instance WHERE run_id = %s", run["id"])
    assert ti is not None
    assert (ti["state"], ti["try_number"], ti["infra_losses"]) == ("failed", 1, 2)
    stack.assert_nothing_hidden()


def test_a_killed_callback_is_called_again_and_its_task_is_left_alone(
    stack: Stack, sink: Path
) -> None:
    run = stack.trigger("dies_once")
    first, second = wait_for_callbacks(stack, run)
    assert (first["outcome"], first["filter_code"]) == ("terminated", "callback_repeated")
    assert first["superseded_by"] == str(second["id"])
    assert (second["dispatch_no"], second["outcome"]) == (2, "success")
    assert len(told(sink, run)) == 2, "at least once: it had begun before it was killed"
    (event,) = stack.events(first["id"])
    assert (event["kind"], event["verdict_code"]) == ("exit_killed", "callback_lost")
    ti = stack.row("SELECT * FROM task_instance WHERE run_id = %s", run["id"])
    assert ti is not None
    assert (ti["state"], ti["infra_losses"]) == ("success", 0)
    stack.assert_nothing_hidden()


def test_a_callback_that_always_dies_is_given_up_and_a_person_is_told(
    stack: Stack, sink: Path
) -> None:
    run = stack.trigger("dies")
    wait_for("the last call", lambda: len(callbacks(stack, run)) == 3, within_s=90)
    rows = wait_for_callbacks(stack, run)
    assert [row["dispatch_no"] for row in rows] == [1, 2, 3]
    assert len(told(sink, run)) == 3
    incident = wait_for(
        "the incident",
        lambda: stack.row("SELECT * FROM incident WHERE subject = %s", str(rows[-1]["id"])),
    )
    assert incident["kind"] == "callback_lost"
    assert "Callback die (on_success of fine" in incident["message"]
    stack.assert_nothing_hidden()


def test_a_callback_outlives_its_run_and_the_loss_of_its_worker(stack: Stack, sink: Path) -> None:
    run = stack.trigger("lingers", conf={"seconds": 600})
    ended = stack.wait_for_run(run)
    assert ended["state"] == "success", "the run does not wait for it"
    running = _running(stack, run, "callback", 1)
    wait_for("it has begun", lambda: told(sink, run))
    _kill_worker_of(stack, running)
    again = _running(stack, run, "callback", 2)
    (lost, _) = callbacks(stack, run)
    assert (lost["outcome"], lost["superseded_by"]) == ("lost", str(again["id"]))
    # Ended so that the stack can stop without waiting for it.
    os.kill(again["pid"], signal.SIGKILL)
    stack.assert_nothing_hidden()
