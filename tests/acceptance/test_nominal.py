"""The main job, through the doors that people use."""

from __future__ import annotations

import urllib.error
from typing import TYPE_CHECKING

import pytest

from tests.stack import wait_for
from tests.tutorial import blocks

if TYPE_CHECKING:
    from tests.stack import Stack

FLOW = """
    from scheduler_app.authoring import flow, task

    @task
    def extract(ctx):
        print("extracting", ctx.run_id)
        return {"rows": [1, 2, 3], "fence": ctx.fence}

    @task
    def total(data):
        return sum(data["rows"])

    @task
    def broken():
        raise ValueError("this one is meant to fail")

    @flow
    def nominal():
        total(extract())

    @flow
    def failing():
        broken()
"""


@pytest.fixture(scope="module", autouse=True)
def _flow(stack: Stack) -> None:
    stack.write_flow("nominal.py", FLOW)
    stack.wait_for_flow("nominal")
    stack.wait_for_flow("failing")


def test_a_triggered_run_turns_green_on_a_real_worker(stack: Stack) -> None:
    run = stack.trigger("nominal", conf={"undeclared": 1})
    assert run["conf"] == {"undeclared": 1}
    ended = stack.wait_for_run(run)
    assert ended["state"] == "success"
    attempts = stack.attempts(run)
    assert [a["task_id"] for a in attempts] == ["extract", "total"]
    assert attempts[1]["result"] == 6
    workers = stack.job_pids("worker")
    for attempt in attempts:
        assert attempt["lease_token"] >= 1
        assert attempt["pid"] not in workers, "user code runs in a child of the worker"
        assert attempt["hostname"]
    assert attempts[0]["result"]["fence"] == attempts[0]["fence"] < attempts[1]["fence"]
    kinds = [e["kind"] for a in attempts for e in _events_when_there(stack, a)]
    assert kinds == ["exit_success", "exit_success"]
    stack.assert_nothing_hidden()


def test_the_log_of_a_task_can_be_read(stack: Stack) -> None:
    run = stack.trigger("nominal")
    stack.wait_for_run(run)
    done = stack.manage("tasks", "log", "nominal", run["run_id"], "extract")
    assert f"extracting {run['run_id']}" in done.stdout, done.stderr


def test_follow_shows_progress_and_exits_by_the_outcome(stack: Stack) -> None:
    good = stack.manage("flows", "trigger", "nominal", "--follow")
    assert good.returncode == 0, good.stderr
    assert "success" in good.stdout
    bad = stack.manage("flows", "trigger", "failing", "--follow")
    assert bad.returncode != 0
    assert "failed" in bad.stdout + bad.stderr


def test_a_run_id_that_exists_is_refused_and_nothing_is_lost(stack: Stack) -> None:
    stack.trigger("nominal", run_id="by-hand")
    with pytest.raises(urllib.error.HTTPError) as refused:
        stack.trigger("nominal", run_id="by-hand")
    assert refused.value.code == 409
    rows = stack.rows("SELECT id FROM run WHERE run_key = 'by-hand'")
    assert len(rows) == 1


def _events_when_there(stack: Stack, attempt: dict[str, object]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = wait_for(
        "the exit event", lambda: stack.events(attempt["id"]), within_s=10
    )
    return found


def test_the_tutorial_holds_on_a_stack(stack: Stack) -> None:
    files = {block.file: block.text for block in blocks() if block.file.startswith("flows/")}
    names = ("shop", "by_day", "polite", "month")
    for name in names:
        stack.write_flow(f"{name}.py", files[f"flows/{name}.py"])
    for name in names:
        stack.wait_for_flow(name)
    shop = files["flows/shop.py"]
    told = {}
    for block in blocks():
        if block.chapter < 7:
            continue
        for command in block.commands:
            if command[0] == "up":
                continue  # the stack is
            if command[:2] == ("flows", "versions"):
                stack.write_flow("shop.py", shop.replace("12, 30, 7", "12, 30, 8"))
                stack.wait_for_flow("shop", version=2)
            done = stack.manage(*command)
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            told[command] = done.stdout
    assert len(told) == 12
    assert "shop:north" in told["limits", "list"]
    done = stack.manage("flows", "trigger", "month", "--follow")
    assert done.returncode == 0, (done.stdout, done.stderr)
    rows = stack.rows("SELECT conf, note FROM run WHERE flow_id = 'by_day' ORDER BY id")
    assert [(row["conf"]["region"], row["conf"]["limit"]) for row in rows] == [
        ("south", 5),
        ("north", 3),
    ]
    assert rows[0]["note"].startswith("of manual__")
    assert "try 1" in told["tasks", "log", "shop", "first", "extract"]
    for words in (("flows", "diff", "shop"), ("flows", "diff", "shop", "--run", "first")):
        assert "+    return [12, 30, 8]" in told[words]
