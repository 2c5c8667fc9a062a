"""Flows that trigger flows and tasks that wait, on a whole stack: real workers, a real triggerer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.stack import Stack, running, wait_for

FLOWS = """
    import os, pathlib, signal, time
    from datetime import timedelta
    from scheduler_app.authoring import *

    FOLDER = pathlib.Path({folder!r})

    @task
    def work(ctx):
        while "until" in ctx.conf and not (FOLDER / ctx.conf["until"]).exists():
            time.sleep(0.05)
        if ctx.conf.get("fails"):
            raise OSError("no rows")

    @flow
    def child():
        work()

    @task(retries=0)
    def asks(ctx):
        run = ctx.trigger_flow("child", conf={{"for": ctx.run_id}}, waits=True)
        killed = FOLDER / "killed"
        if not killed.exists():
            killed.touch()
            os.kill(os.getppid(), signal.SIGKILL)  # its worker, right after the run was made
            time.sleep(60)
        ctx.defer(run.trigger(), method="came")

    @asks.method
    def came(event):
        return event["state"]

    @flow
    def loses_its_worker():
        asks()

    @flow
    def waits():
        trigger_flow(child, wait=True, conf={{"fails": Template("{{conf[fails]}}")}}, task_id="ask")

    @flow
    def is_stopped():
        trigger_flow(child, wait=True, conf={{"until": "never"}}, on_stop="terminate", task_id="ask")

    @task.sensor(poll_interval=0.2, mode="reschedule")
    def there(ctx):
        return (FOLDER / "there").exists()

    @flow
    def all_wait():
        with group("all"):
            for mode in ("defer", "reschedule", "poke"):
                WaitForFile(path=str(FOLDER / "there"), mode=mode, poll_interval=0.2,
                            task_id=f"file_{{mode}}")
                WaitForRun(flow_id="child", run_id="wanted", mode=mode, poll_interval=0.2,
                           task_id=f"run_{{mode}}")
                WaitForTime(after=1, mode=mode, task_id=f"time_{{mode}}")
                there.override(task_id=f"python_{{mode}}", mode=mode)()
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A ready stack with these flows, whose lost workers are soon given up."""
    flags = ["--no-examples", "--concurrency", "8"]
    environment = {"DAYLIGHT_LEASE_TTL": "5"}
    folder = tmp_path_factory.mktemp("stack")
    with running(folder, flags=flags, environment=environment) as made:
        made.write_flow("triggering.py", FLOWS.format(folder=str(made.folder)))
        for flow_id in ("child", "loses_its_worker", "waits", "is_stopped", "all_wait"):
            made.wait_for_flow(flow_id)
        yield made


def _children(stack: Stack, run: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs that a task of the run asked for, as the API tells of them."""
    listed = stack.api("GET", f"/api/v1/runs/?triggered_by={run['id']}&order=id")
    found: list[dict[str, Any]] = listed["results"]
    return found


def test_a_worker_killed_right_after_the_creation_leaves_one_run(stack: Stack) -> None:
    run = stack.trigger("loses_its_worker")
    assert stack.wait_for_run(run, within_s=120)["state"] == "success"
    (child,) = _children(stack, run)
    assert child["conf"] == {"for": run["run_id"]}
    assert len(stack.rows("SELECT 1 FROM run WHERE flow_id = 'child'")) >= 1
    asked = stack.rows(
        "SELECT how, try_number FROM triggered_run WHERE parent_run_id = %s", run["id"]
    )
    assert [(one["how"], one["try_number"]) for one in asked] == [("created", 1)]
    outcomes = [one["outcome"] for one in stack.attempts(run)]
    assert outcomes == ["lost", "deferred", "success"]
    told = child["triggered_by"]
    assert (told["flow_id"], told["task_id"]) == ("loses_its_worker", "asks")


def test_the_runs_end_is_the_tasks(stack: Stack) -> None:
    good, bad = (stack.trigger("waits", conf={"fails": fails}) for fails in ("", "yes"))
    assert stack.wait_for_run(good)["state"] == "success"
    assert stack.wait_for_run(bad)["state"] == "failed"
    (child,) = _children(stack, bad)
    *_, last = stack.attempts(bad)
    assert (
        f"Run {child['run_id']} of flow 'child', which this task triggered, ended as failed"
        in (last["outcome_reason"])
    )
    stack.assert_nothing_hidden()


def test_a_terminated_task_takes_its_run_along(stack: Stack) -> None:
    run = stack.trigger("is_stopped")
    wait_for("the run is there", lambda: _children(stack, run))
    wait_for(
        "the task waits",
        lambda: stack.row(
            "SELECT 1 FROM task_instance WHERE run_id = %s AND state = 'deferred'", run["id"]
        ),
    )
    stack.api("POST", f"/api/v1/runs/{run['id']}/terminate/", {"reason": "enough"})
    (child,) = _children(stack, run)
    assert stack.wait_for_run(child)["state"] == "failed"
    (after,) = _children(stack, run)
    assert after["state"] == "failed"


def test_every_kind_of_sensor_wakes_in_every_mode(stack: Stack) -> None:
    run = stack.trigger("all_wait")

    def have_looked() -> bool:
        """Whether each looks at it in its place, or has looked and waits."""
        rows = stack.rows(
            "SELECT i.task_id, i.state, count(*) FILTER (WHERE p.outcome IS NOT NULL) AS looked"
            " FROM task_instance i LEFT JOIN attempt p ON p.ti_id = i.id WHERE i.run_id = %s"
            " GROUP BY i.id",
            run["id"],
        )
        return all(
            row["state"] == "running" if row["task_id"].endswith("poke") else row["looked"]
            for row in rows
            if "time" not in row["task_id"]
        )

    wait_for("all wait", have_looked)
    (stack.folder / "there").touch()
    stack.trigger("child", run_id="wanted")
    assert stack.wait_for_run(run, within_s=120)["state"] == "success"
    rows = stack.rows(
        "SELECT i.task_id, i.try_number, count(*) AS attempts FROM task_instance i"
        " JOIN attempt p ON p.ti_id = i.id WHERE i.run_id = %s GROUP BY 1, 2",
        run["id"],
    )
    assert {row["try_number"] for row in rows} == {1}
    assert {row["attempts"] for row in rows if row["task_id"].endswith("poke")} == {1}
    assert all(row["attempts"] > 1 for row in rows if not row["task_id"].endswith("poke"))
