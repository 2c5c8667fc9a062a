"""Replays, section callback: once for what happened, not at all for what a person did."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Attempt, Audit
from scheduler_app.operations.terminate import terminate_task_instance
from scheduler_app.rules.callbacks import CallbackOn
from scheduler_app.transitions.job import start_job
from tests import stack as stacks
from tests.stack import wait_for
from tests.world import chain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import psycopg

    from tests.stack import Stack
    from tests.world import World

EVERY: dict[str, tuple[str, ...]] = {on.value: ("tell",) for on in CallbackOn}

FLOW = """
    import os, time
    from scheduler_app.authoring import flow, task

    def tell(context):
        fd = os.open({sink!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        task = context["ti"].task_id if context["ti"] else "-"
        os.write(fd, f"{{context['run_id']}} {{task}} {{context['callback']}}\\n".encode())
        os.close(fd)

    every = {{f"on_{{on}}_callback": tell for on in ("retry", "success", "failure")}}
    of_run = {{"on_success_callback": tell, "on_failure_callback": tell}}

    @task
    def fails():
        raise ValueError("once")

    @flow(default_args=every, **of_run)
    def b181_fails():
        fails()

    @task
    def waits(ctx):
        while not os.path.exists(ctx.conf["gate"]):
            time.sleep(0.05)

    @flow(default_args=every, **of_run)
    def b183_waits():
        waits()

    @task
    def sleeps():
        time.sleep(600)

    @task
    def follows():
        print("never")

    @flow(run_timeout=1, default_args=every, **of_run)
    def b187_is_overdue():
        sleeps() >> follows()
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[stacks.Stack]:
    """Real processes for these replays."""
    folder = tmp_path_factory.mktemp("callbacks")
    with stacks.running(folder, flags=["--no-examples", "--concurrency", "2"]) as made:
        yield made


@pytest.fixture(scope="module")
def sink(stack: Stack) -> Path:
    """What the callbacks wrote down, outside the product; the flows that they belong to are known."""
    path = stack.folder / "callbacks"
    stack.write_flow("callbacks.py", FLOW.format(sink=str(path)))
    stack.wait_for_flow("b181_fails")
    stack.wait_for_flow("b183_waits")
    stack.wait_for_flow("b187_is_overdue")
    return path


def _told(sink: Path, run: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [line.split() for line in sink.read_text().splitlines()] if sink.exists() else []
    return [(task_id, on) for run_id, task_id, on in lines if run_id == run["run_id"]]


def _wait_for_callbacks(stack: Stack, run: dict[str, Any], number: int) -> None:
    """So many callbacks of the run are over, and none is left."""

    def over() -> bool:
        rows = [row for row in stack.attempts(run) if row["kind"] == "callback"]
        return len(rows) == number and not any(row["is_live"] for row in rows)

    wait_for(f"{number} callbacks end", over, within_s=90)


def _called(run_id: int) -> list[str]:
    rows = Attempt.objects.filter(run_id=run_id, kind="callback").order_by("fence")
    return [row.callback["on"] for row in rows if row.callback]


def test_b181_one_failure_calls_its_callback_once(stack: Stack, sink: Path) -> None:
    run = stack.trigger("b181_fails")
    stack.wait_for_run(run)
    _wait_for_callbacks(stack, run, 2)
    assert sorted(_told(sink, run)) == [("-", "on_failure"), ("fails", "on_failure")]
    stack.assert_nothing_hidden()


def test_b183_a_worker_that_is_stopped_mid_task_hands_it_on_and_its_end_is_told_once(
    stack: Stack, sink: Path, tmp_path: Path
) -> None:
    """The report wants a failure callback. Here the task has not failed: another process takes it."""
    gate = tmp_path / "gate"
    run = stack.trigger("b183_waits", conf={"gate": str(gate)})

    def running() -> dict[str, Any] | None:
        rows = [row for row in stack.attempts(run) if row["kind"] == "task"]
        return rows[-1] if rows and rows[-1]["state"] == "running" else None

    first = wait_for("the task runs", running, within_s=60)
    worker = stack.row("SELECT pid FROM job WHERE id = %s", first["worker_job_id"])
    assert worker is not None
    os.kill(worker["pid"], signal.SIGTERM)

    def taken_on() -> dict[str, Any] | None:
        row = running()
        return row if row is not None and row["id"] != first["id"] else None

    second = wait_for("another process has it", taken_on, within_s=90)
    assert (second["try_number"], second["dispatch_no"]) == (1, 2)
    assert _told(sink, run) == [], "nothing has failed, so nobody is told of a failure"
    gate.touch()
    assert stack.wait_for_run(run)["state"] == "success"
    _wait_for_callbacks(stack, run, 2)
    assert sorted(_told(sink, run)) == [("-", "on_success"), ("waits", "on_success")]
    stack.assert_nothing_hidden()


@pytest.mark.parametrize("state", ["queued", "running"])
def test_b185_a_task_that_a_person_fails_calls_nobody_and_is_in_the_audit(
    world: World, raw: psycopg.Connection[Any], state: str
) -> None:
    """Decided: who fails a task by hand knows of it. The audit says who, when and why."""
    start_job(raw, job_id=world.worker, kind="worker", name="", hostname="host-1", pid=1, detail={})
    run_id = world.run(world.flow("f", chain("a", callbacks=EVERY), callbacks=EVERY))
    world.tick(run_id)
    message = world.messages.pop()
    if state == "running":
        assert world.claim_with_callbacks(message) is not None
    before = _called(run_id)
    terminate_task_instance(ti_id=message.ti_id, actor="ada", reason="a wrong input")
    if state == "running":
        # Its worker stops it, and whatever it makes of that, it fails.
        world.finish_with_callbacks(message, ok=False)
    world.tick(run_id)
    world.tick(run_id)
    assert world.states(run_id) == {"a": "failed"}
    assert _called(run_id) == before
    entry = Audit.objects.get(action="terminate")
    assert (entry.actor, entry.reason) == ("ada", "a wrong input")


def test_b187_a_run_that_takes_too_long_is_told_of_as_a_run_and_not_as_its_tasks(
    stack: Stack, sink: Path
) -> None:
    run = stack.trigger("b187_is_overdue")
    ended = stack.wait_for_run(run)
    assert ended["state"] == "failed"
    assert ended["state_reason"].startswith("It did not end within its run_timeout of 1 s.")
    _wait_for_callbacks(stack, run, 1)
    assert _told(sink, run) == [("-", "on_failure")]
    (stopped,) = [row for row in stack.attempts(run) if row["kind"] == "task"]
    assert (stopped["outcome"], stopped["is_live"]) == ("terminated", False)
    assert "run_timeout of 1 s" in stopped["outcome_reason"]
    stack.assert_nothing_hidden()
