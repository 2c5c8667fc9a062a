"""On a real stack a run is terminated, and tasks are cleared and marked: what runs is stopped first."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.stack import running, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stack import Stack

WITHIN_S = 90.0
FLOW = """
import signal, subprocess, time
from datetime import timedelta
from scheduler_app.authoring import Defer, TimeTrigger, flow, task

@task(retries=3, retry_delay=timedelta(0))
def minds(folder):
    child = subprocess.Popen(["sleep", "600"])
    open(folder + "/pid", "w").write(str(child.pid))
    time.sleep(600)

@task(retries=3, retry_delay=timedelta(0))
def ignores():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        try:
            time.sleep(600)
        except BaseException:
            pass

@task(retries=3)
def waits():
    raise Defer(TimeTrigger(after=timedelta(hours=1)), method="woken")

@waits.method
def woken(event):
    return 1

@task
def last():
    return 1

@flow
def many():
    [minds("{folder}"), ignores(), waits()] >> last()
"""


HELD = """
import os, time
from scheduler_app.authoring import flow, task

@task
def works(folder):
    with open(folder + "/works", "a") as file:
        file.write(f"{os.getpid()}\\n")
    if len(open(folder + "/works").readlines()) == 1:
        time.sleep(600)
    return 1

@task
def said():
    time.sleep(600)

@task
def behind():
    return 1

@flow
def held():
    works("{folder}")
    said() >> behind()
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("terminated")
    with running(folder, flags=("--no-examples", "--concurrency", "3")) as made:
        made.write_flow("many.py", FLOW.replace("{folder}", str(folder)))
        made.wait_for_flow("many")
        yield made


def states(stack: Stack, run: dict[str, Any]) -> dict[str, str]:
    rows = stack.rows("SELECT task_id, state FROM task_instance WHERE run_id = %s", run["id"])
    return {row["task_id"]: row["state"] for row in rows}


def test_a_run_is_terminated_and_nothing_of_it_goes_on(stack: Stack) -> None:
    run = stack.trigger("many")
    wait_for(
        "two run, one waits",
        lambda: (
            states(stack, run)
            == {"minds": "running", "ignores": "running", "waits": "deferred", "last": "none"}
        ),
        within_s=WITHIN_S,
    )
    pid = int(wait_for("the child", lambda: _read(stack.folder / "pid"), within_s=WITHIN_S))
    done = stack.manage("flows", "terminate", "many", run["run_id"], "--reason", "wrong day")
    assert done.returncode == 0, done.stderr
    ended = stack.wait_for_run(run, within_s=WITHIN_S)
    assert ended["state"] == "failed"
    assert set(states(stack, run).values()) == {"failed"}
    told = {one["task_id"]: one for one in stack.attempts(run)}
    assert {name: one["outcome"] for name, one in told.items()} == {
        "minds": "terminated",
        "ignores": "terminated",
        "waits": "deferred",
    }
    assert "ended at the exception" in told["minds"]["outcome_reason"]
    assert "it was killed" in told["ignores"]["outcome_reason"]
    took = [
        (one["ended_at"] - one["stop_requested_at"]).total_seconds()
        for one in (told["minds"], told["ignores"])
    ]
    print(f"stopped by exception after {took[0]:.1f} s, by kill after {took[1]:.1f} s")
    wait_for("its child ended", lambda: not Path(f"/proc/{pid}").exists(), within_s=WITHIN_S)
    for name, stage in (("minds", "exception"), ("ignores", "kill")):
        (event,) = wait_for(
            "the exit event", partial(stack.events, told[name]["id"]), within_s=WITHIN_S
        )
        assert (event["verdict"], event["payload"]["stopped_by"]) == ("confirmed", stage)
    (trigger,) = stack.rows("SELECT state FROM trigger WHERE run_id = %s", run["id"])
    assert trigger["state"] == "cancelled"
    assert (
        stack.manage("flows", "terminate", "many", run["run_id"], "--reason", "x").returncode == 1
    )
    stack.assert_nothing_hidden()


def test_what_runs_is_stopped_before_it_runs_anew_or_is_what_a_person_says(stack: Stack) -> None:
    """A clear and a mark of running tasks: neither its successor nor what is behind it starts beside it."""
    stack.write_flow("held.py", HELD.replace("{folder}", str(stack.folder)))
    stack.wait_for_flow("held")
    run = stack.trigger("held")
    wait_for(
        "both run",
        lambda: (
            states(stack, run) == {"works": "running", "said": "running", "behind": "none"}
            and _read(stack.folder / "works")
        ),
        within_s=WITHIN_S,
    )
    where = ("held", run["run_id"])
    done = stack.manage("tasks", "clear", *where, "works", "--reason", "bad data")
    assert done.returncode == 0, done.stderr
    done = stack.manage("tasks", "mark", "success", *where, "said", "--reason", "done by hand")
    assert done.returncode == 0, done.stderr
    assert stack.wait_for_run(run, within_s=WITHIN_S)["state"] == "success"
    of: dict[str, list[dict[str, Any]]] = {}
    for one in stack.attempts(run):
        of.setdefault(one["task_id"], []).append(one)
    first, again = of["works"]
    assert (first["outcome"], first["filter_code"]) == ("terminated", "superseded_by_clear")
    assert first["ended_at"] <= again["started_at"], "one after the other"
    assert (again["outcome"], again["filter_code"], again["try_number"]) == ("success", None, 2)
    (said,), (behind,) = of["said"], of["behind"]
    assert said["outcome"] == "terminated"
    assert said["ended_at"] <= behind["started_at"]
    (row,) = stack.rows(
        "SELECT state, mark FROM task_instance WHERE run_id = %s AND task_id = 'said'", run["id"]
    )
    assert (row["state"], row["mark"]["reason"]) == ("success", "done by hand")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
