"""The flows of the replays with real processes, and the ground truth that their tasks leave behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import redis

from tests.stack import wait_for

if TYPE_CHECKING:
    from tests.stack import Stack

SOURCE = """
    import os, time
    from datetime import timedelta
    from scheduler_app.authoring import *

    FOLDER = {folder!r}

    # Ground truth outside the product: one line at the start and one at the end of each execution.
    def note(run_id, task_id, what):
        fd = os.open(f"{{FOLDER}}/sink", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(fd, f"{{run_id}} {{task_id}} {{what}}\\n".encode())
        os.close(fd)

    def wait_for_gate(name):
        while not os.path.exists(f"{{FOLDER}}/{{name}}"):
            time.sleep(0.05)

    def retried(context):
        note(context["dag_run"].run_id, context["ti"].task_id, "on_retry")

    def failed(context):
        note(context["dag_run"].run_id, context["ti"].task_id, "on_failure")

    @task(retries=1, retry_delay=timedelta(0), on_retry_callback=retried, on_failure_callback=failed)
    def held(ctx):
        note(ctx.run_id, ctx.task_id, "start")
        if "gate" in ctx.conf:
            wait_for_gate(ctx.conf["gate"])
        note(ctx.run_id, ctx.task_id, "end")

    @flow
    def holds():
        held()

    @task
    def quick(ctx):
        note(ctx.run_id, ctx.task_id, "start")
        note(ctx.run_id, ctx.task_id, "end")

    @flow
    def quickly():
        quick()

    @flow(schedule="@hourly", catchup=False)
    def hourly():
        quick()

    @task(retries=1, retry_delay=timedelta(seconds=1))
    def fails_first(ctx):
        note(ctx.run_id, ctx.task_id, "start")
        if ctx.try_number == 1:
            raise RuntimeError("the first try")
        note(ctx.run_id, ctx.task_id, "end")

    @task
    def waits(ctx):
        note(ctx.run_id, ctx.task_id, "start")
        ctx.defer(EventTrigger("go"), method="went")

    @waits.method
    def went(ctx, event):
        note(ctx.run_id, ctx.task_id, "end")
        return event

    @task
    def slow(ctx):
        note(ctx.run_id, ctx.task_id, "start")
        time.sleep(3)
        note(ctx.run_id, ctx.task_id, "end")

    @flow
    def windows():
        slow() >> waits() >> fails_first() >> quick()
"""
FLOWS = ("holds", "quickly", "hourly", "windows")


def write(stack: Stack) -> None:
    """The flows are known to the stack."""
    stack.write_flow("replays.py", SOURCE.format(folder=str(stack.folder)))
    for flow_id in FLOWS:
        stack.wait_for_flow(flow_id)


def noted(stack: Stack, run: dict[str, Any]) -> list[str]:
    """What the tasks and callbacks of the run noted: task and word, oldest first."""
    sink = stack.folder / "sink"
    lines = sink.read_text().splitlines() if sink.exists() else []
    return [line.split(" ", 1)[1] for line in lines if line.startswith(f"{run['run_id']} ")]


def running_attempt(stack: Stack, run: dict[str, Any], task_id: str, *, starts: int = 1) -> Any:
    """The attempt of the task whose user code started, for so many times by now."""

    def look() -> dict[str, Any] | None:
        if noted(stack, run).count(f"{task_id} start") < starts:
            return None
        live = [p for p in stack.attempts(run) if p["kind"] == "task" and p["state"] == "running"]
        return live[0] if live and live[0]["task_id"] == task_id else None

    return wait_for(f"{task_id} runs", look, within_s=90)


def open_gate(stack: Stack, name: str) -> None:
    """Tasks behind the gate go on."""
    (stack.folder / name).touch()


def database_pid(stack: Stack) -> int:
    """The process of the embedded PostgreSQL; 0 while there is none."""
    file = next(stack.data_dir.rglob("postmaster.pid"), None)
    try:
        return int(file.read_text().split()[0]) if file else 0
    except (FileNotFoundError, IndexError):
        return 0


def broker_pid(stack: Stack) -> int:
    """The process of the embedded Valkey; 0 while none answers."""
    try:
        with redis.Redis.from_url(stack.addresses.broker_url, socket_timeout=5) as broker:
            return int(broker.info("server")["process_id"])
    except redis.RedisError:
        return 0
