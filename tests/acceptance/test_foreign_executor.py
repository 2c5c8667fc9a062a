"""An executor outside the stack reports over REST: what it guesses wrong about moves nothing."""

from __future__ import annotations

import re
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.stack import wait_for

if TYPE_CHECKING:
    from tests.stack import Stack

FLAGS = ["--no-examples", "--concurrency", "2"]
ENVIRONMENT: dict[str, str] = {}

FLOW = """
    import time
    from datetime import timedelta
    from scheduler_app.authoring import Defer, EventTrigger, flow, task

    @task(retries=1, retry_delay=timedelta(seconds=0))
    def waits(ctx):
        if ctx.try_number > 1:
            return "second try"
        raise Defer(EventTrigger("go"), method="resumed")

    @waits.method
    def resumed(ctx, event):
        time.sleep(120)  # until somebody says that it was killed

    @flow
    def foreign():
        waits()
"""


@pytest.fixture(scope="module", autouse=True)
def _flow(stack: Stack) -> None:
    stack.write_flow("foreign.py", FLOW)
    stack.wait_for_flow("foreign")


def _say(stack: Stack, run: dict[str, Any], state: str, **more: Any) -> dict[str, Any]:
    body = {
        "flow_id": "foreign",
        "run_id": run["run_id"],
        "task_id": "waits",
        "try_number": 1,
        "state": state,
        **more,
    }
    said: dict[str, Any] = stack.api("POST", "/api/v1/executor-events/", body)
    return said


def _judged(stack: Stack, event: dict[str, Any]) -> dict[str, Any]:
    def verdict() -> dict[str, Any] | None:
        row: dict[str, Any] = stack.api("GET", f"/api/v1/executor-events/{event['id']}/")
        return row if row["verdict"] != "pending" else None

    found: dict[str, Any] = wait_for("a verdict", verdict, within_s=60)
    return found


def _state(stack: Stack, run: dict[str, Any]) -> str:
    row = stack.row("SELECT state FROM task_instance WHERE run_id = %s", run["id"])
    assert row is not None
    return str(row["state"])


def _counter(stack: Stack, name: str) -> float:
    with urllib.request.urlopen(f"{stack.url}/metrics", timeout=10) as answer:
        found = re.search(rf"^{name} ([0-9.]+)$", answer.read().decode(), re.MULTILINE)
    assert found is not None, name
    return float(found.group(1))


def test_stale_exits_by_try_move_nothing_and_a_real_end_uses_one_retry(stack: Stack) -> None:
    killed = _counter(stack, "scheduler_tasks_killed_externally_total")
    judged = _counter(stack, "scheduler_executor_events_processed_total")
    run = stack.trigger("foreign")
    wait_for("it waits", lambda: _state(stack, run) == "deferred", within_s=60)
    stale = _judged(stack, _say(stack, run, "success", key="exit of the first process"))
    assert (stale["verdict"], stale["verdict_code"]) == ("ignored", "stale_after_defer")
    ti = stale["ti"]
    stack.api("POST", f"/api/v1/task-instances/{ti}/event/", {"key": "go"})
    wait_for("it is resumed", lambda: _state(stack, run) == "running", within_s=60)
    again = _judged(stack, _say(stack, run, "success"))
    assert (again["verdict"], again["verdict_code"]) == ("ignored", "stale_after_defer")
    assert again["verdict_detail"]["is_resumed"] is True
    assert _say(stack, run, "success", key="exit of the first process")["id"] == stale["id"]
    assert _judged(stack, _say(stack, run, "running", info="pod-7"))["verdict"] == "confirmed"
    assert _state(stack, run) == "running", "nothing of it has moved the task"
    assert _counter(stack, "scheduler_tasks_killed_externally_total") == killed
    end = _judged(stack, _say(stack, run, "failed", info="pod-7"))
    assert (end["verdict"], end["verdict_code"]) == ("confirmed", "killed_externally")
    ended = wait_for(
        "the run ends",
        lambda: stack.row("SELECT state FROM run WHERE id = %s AND NOT is_active", run["id"]),
        within_s=60,
    )
    assert ended["state"] == "success", "the second try has it"
    rows = stack.attempts(run)
    assert [(r["try_number"], r["resume_index"], r["outcome"]) for r in rows] == [
        (1, 0, "deferred"),
        (1, 1, "terminated"),
        (2, 0, "success"),
    ]
    assert _counter(stack, "scheduler_tasks_killed_externally_total") == killed + 1
    assert _counter(stack, "scheduler_executor_events_processed_total") >= judged + 4
    log = "\n".join(stack.lines) + "".join(
        path.read_text(errors="replace") for path in stack.data_dir.rglob("scheduler*.log*")
    )
    line = next(one for one in log.splitlines() if "it was killed externally" in one)
    assert (
        'executor_state="Exit with failure"' in line or "executor_state='Exit with failure'" in line
    )
    assert "task_state=running" in line, "both states are told"
