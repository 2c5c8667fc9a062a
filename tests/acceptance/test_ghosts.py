"""Real ghosts: a database put back to earlier while workers run, and a worker that wakes too late."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests import stack as stacks
from tests.stack import CHECKOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.stack import Stack

FLAGS = ["--no-examples", "--concurrency", "2"]
# An execution that the database forgot goes on until a person asks for its end.
ENVIRONMENT = {"DAYLIGHT_GHOST_POLICY": "human", "DAYLIGHT_GHOST_AUDIT_INTERVAL_S": "1"}

FLOW = """
    import os, time
    from scheduler_app.authoring import flow, task

    # Ground truth outside the product: one line at the start and one at the end of each execution.
    def note(ctx, what):
        line = f"{{ctx.run_id}} {{ctx.attempt_id}} {{ctx.fence}} {{os.getpid()}} {{what}}\\n".encode()
        fd = os.open({sink!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(fd, line)
        os.fsync(fd)
        os.close(fd)

    @task
    def write(ctx):
        note(ctx, "start")
        time.sleep(ctx.conf.get("seconds", 0))
        note(ctx, "end")

    @flow
    def haunted():
        write()
"""


def wait_for(what: str, condition: Callable[[], Any], *, within_s: float = 90.0) -> Any:
    """As ``tests.stack.wait_for``, for a machine that has much else to do."""
    return stacks.wait_for(what, condition, within_s=within_s)


@pytest.fixture
def sink(stack: Stack, tmp_path: Path) -> Path:
    """Where the tasks write; the flow is known."""
    path = tmp_path / "sink"
    tmp_path.chmod(0o755)
    stack.write_flow("haunted.py", FLOW.format(sink=str(path)))
    number = stack.row("SELECT count(*) AS n FROM flow_version WHERE flow_id = 'haunted'")
    assert number is not None
    stack.wait_for_flow("haunted", version=number["n"] or 1)
    wait_for("the flow writes into this test's file", lambda: _knows(stack, str(path)))
    return path


def _knows(stack: Stack, text: str) -> bool:
    row = stack.row(
        "SELECT b.archive FROM flow f JOIN flow_version v ON v.id = f.current_version_id"
        " JOIN bundle b ON b.digest = v.bundle_id WHERE f.flow_id = 'haunted'"
    )
    if row is None:
        return False
    import io  # noqa: PLC0415 - for this look alone
    import zipfile  # noqa: PLC0415

    archive = zipfile.ZipFile(io.BytesIO(bytes(row["archive"])))
    return any(text in archive.read(name).decode() for name in archive.namelist())


def lines(sink: Path) -> list[list[str]]:
    """What the tasks wrote: run, attempt, fence, pid, what."""
    return [line.split() for line in sink.read_text().splitlines()] if sink.exists() else []


@contextlib.contextmanager
def database_stopped(stack: Stack) -> Iterator[Path]:
    """PostgreSQL is stopped in an orderly way, and nobody starts it; then it comes back."""
    assert stack.process is not None
    folder = stack.data_dir / "postgres"
    pid = int((folder / "postmaster.pid").read_text().splitlines()[0])
    os.kill(stack.process.pid, signal.SIGSTOP)
    try:
        os.kill(pid, signal.SIGINT)
        # Its parent is stopped too, so it stays a zombie: what it leaves behind says that it ended.
        wait_for("PostgreSQL ended", lambda: not (folder / "postmaster.pid").exists())
        yield folder
    finally:
        os.kill(stack.process.pid, signal.SIGCONT)
    wait_for("PostgreSQL answers", lambda: _answers(stack), within_s=90)


def _answers(stack: Stack) -> bool:
    try:
        return stack.row("SELECT 1 AS one") is not None
    except psycopg.Error:
        return False


def copy(source: Path, target: Path) -> None:
    """The whole folder, owners and all."""
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


def running(stack: Stack, run: dict[str, Any]) -> dict[str, Any]:
    """The attempt of the run that runs."""
    attempt: dict[str, Any] = wait_for(
        "the task runs",
        lambda: stack.row(
            "SELECT * FROM attempt WHERE run_id = %s AND state = 'running'", run["id"]
        ),
    )
    return attempt


def ghost(stack: Stack, kind: str, *, is_open: bool = True) -> dict[str, Any] | None:
    """The newest ghost of this kind."""
    return stack.row(
        "SELECT * FROM ghost WHERE kind = %s AND (ended_at IS NULL) = %s ORDER BY id DESC LIMIT 1",
        kind,
        is_open,
    )


def test_f32_a_database_put_back_to_earlier_names_what_runs_without_a_record(
    stack: Stack, sink: Path
) -> None:
    backup = stack.data_dir / "backup"
    stack.api("GET", "/api/v1/health/")  # this test's own login is older than the backup
    with database_stopped(stack) as folder:
        copy(folder, backup)
    lost = stack.trigger("haunted", run_id="night", conf={"seconds": 300})
    attempt = running(stack, lost)
    wait_for("its code runs", lambda: len(lines(sink)) == 1)
    # The worker has said so, and knows what the attempt belongs to.
    wait_for(
        "the worker reports it",
        lambda: stack.row(
            "SELECT 1 AS one FROM inventory WHERE executions @> %s::jsonb",
            json.dumps([{"attempt": str(attempt["id"])}]),
        ),
    )
    with database_stopped(stack) as folder:
        shutil.rmtree(folder)
        copy(backup, folder)
    assert stack.row("SELECT 1 AS one FROM run WHERE run_key = 'night'") is None

    seen = wait_for(
        "the execution is a ghost", lambda: ghost(stack, "execution_without_record"), within_s=90
    )
    assert seen["attempt_id"] == attempt["id"]
    assert seen["pid"] == attempt["pid"]
    # The audit may be the first to see it; the worker then says what it belonged to.
    seen = wait_for(
        "the worker says what it belonged to",
        lambda: stack.row("SELECT * FROM ghost WHERE id = %s AND detail ? 'run_id'", seen["id"]),
    )
    assert seen["detail"]["run_id"] == "night"
    assert seen["detail"]["task_id"] == "write"
    row = stack.row("SELECT * FROM attempt WHERE id = %s", attempt["id"])
    assert row is not None
    # The outage may have cost the lease: then the take-over, which asks too, was the first to find it.
    assert row["filter_code"] in {"ghost_no_record", "ghost_after_takeover"}
    run = stack.row("SELECT * FROM run WHERE id = %s", row["run_id"])
    assert run is not None
    assert (run["filter_code"], run["filter_detail"]["run_id"]) == ("ghost_run", "night")

    # The run is made again, as its schedule would: now it exists twice.
    again = stack.trigger("haunted", run_id="night", conf={"seconds": 0})
    ended = stack.wait_for_run(again)
    assert ended["state"] == "success"
    twice = wait_for("the run exists twice", lambda: ghost(stack, "run_exists_twice"))
    assert twice["run_id"] == run["id"]
    assert twice["detail"]["kept_run"] == again["id"]

    # A person and a script see it, and end it.
    assert stack.manage("ghosts", "--check").returncode == 1
    audit = stack.manage("audit", "ghosts", "--json")
    assert audit.returncode == 1, audit.stdout + audit.stderr
    found = json.loads(audit.stdout)
    assert [each["sighting"]["kind"] for each in found["ghosts"]] == ["execution_without_record"]
    assert found["compared"] >= 1
    assert os.path.exists(f"/proc/{attempt['pid']}")
    stack.api("POST", f"/api/v1/ghosts/{seen['id']}/stop/", {"reason": "it writes twice"})
    over = wait_for(
        "the ghost is over", lambda: ghost(stack, "execution_without_record", is_open=False)
    )
    assert over["end_reason"] == "its process ended"

    # Nothing that ran is hidden, and one of the two executions counts.
    starts = [line for line in lines(sink) if line[4] == "start"]
    assert [line[0] for line in starts] == ["night", "night"]
    for _, attempt_id, *_ in starts:
        assert stack.row("SELECT 1 AS one FROM attempt WHERE id = %s", attempt_id)
    accepted = stack.rows(
        "SELECT p.id FROM attempt p JOIN run r ON r.id = p.run_id"
        " WHERE p.is_accepted AND r.run_key LIKE 'night%%'"
    )
    assert [str(each["id"]) for each in accepted] == [starts[1][1]]
    wait_for("the refused report", lambda: stack.events(attempt["id"])[-1]["kind"] != "inventory")
    assert {event["verdict"] for event in stack.events(attempt["id"])} == {"ghost"}
    stack.assert_nothing_hidden()


@pytest.fixture
def second_worker(stack: Stack) -> Iterator[int]:
    """One more worker of the stack; its pid."""
    environment = {**stack._environment, "DAYLIGHT_DATA_DIR": str(stack.data_dir)}
    before = set(stack.job_pids("worker"))
    with (stack.folder / "second-worker.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "worker", "--concurrency", "2"],
            cwd=CHECKOUT,
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        wait_for("the second worker", lambda: set(stack.job_pids("worker")) - before)
        yield process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_f11_a_worker_that_sleeps_through_its_replacement_is_seen_beside_it(
    stack: Stack, sink: Path, second_worker: int
) -> None:
    run = stack.trigger("haunted", run_id="asleep", conf={"seconds": 45})
    first = running(stack, run)
    wait_for("its code runs", lambda: len(lines(sink)) == 1)
    owner = stack.row("SELECT pid FROM job WHERE id = %s", first["worker_job_id"])
    assert owner is not None
    # The main process alone: its child, which executes the task, goes on beside the new one.
    os.kill(owner["pid"], signal.SIGSTOP)
    try:
        second = wait_for(
            "another worker has the next attempt",
            lambda: stack.row(
                "SELECT * FROM attempt WHERE run_id = %s AND state = 'running' AND id <> %s",
                run["id"],
                first["id"],
            ),
            within_s=90,
        )
        assert second["fence"] > first["fence"]
        wait_for("both run", lambda: len(lines(sink)) == 2)
    finally:
        os.kill(owner["pid"], signal.SIGCONT)
    seen = wait_for(
        "the late one is a ghost",
        lambda: (
            ghost(stack, "execution_superseded")
            or ghost(stack, "execution_superseded", is_open=False)
        ),
        within_s=90,
    )
    assert seen["attempt_id"] == first["id"]
    assert seen["current_attempt_id"] == second["id"]
    assert seen["detail"]["filter_code"] == "lost_worker"
    both = wait_for(
        "both are seen at once",
        lambda: (
            ghost(stack, "two_live_executions")
            or ghost(stack, "two_live_executions", is_open=False)
        ),
        within_s=90,
    )
    assert f":{first['pid']}" in both["detail"]["where"]
    assert f":{second['pid']}" in both["detail"]["where"]
    # The late one is stopped, and the one in its place goes on.
    wait_for(
        "the late one is gone",
        lambda: ghost(stack, "execution_superseded") is None,
        within_s=90,
    )
    ended = stack.wait_for_run(run, within_s=120)
    assert ended["state"] == "success"
    accepted = stack.rows("SELECT id FROM attempt WHERE run_id = %s AND is_accepted", run["id"])
    assert [each["id"] for each in accepted] == [second["id"]]
    ends = [line[1] for line in lines(sink) if line[4] == "end"]
    assert ends == [str(second["id"])], "the late one was stopped before it wrote its end"
    stack.assert_nothing_hidden()
