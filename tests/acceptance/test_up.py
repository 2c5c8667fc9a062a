"""`manage.py up` from the outside: what it prints, what it leaves, what it refuses."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import psycopg
import pytest

from scheduler_app.launch import data_folder
from tests.stack import CHECKOUT, Stack, free_port, running, wait_for

ONE = """
    from scheduler_app.authoring import flow, task

    @task
    def step():
        return 1

    @flow
    def one():
        step()
"""
PARTS = ("web", "scheduler", "triggerer", "worker")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack with its examples, which the tests of this module leave running."""
    with running(tmp_path_factory.mktemp("first"), is_readymade=False) as stack:
        yield stack


def up(*flags: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """An `up` that is expected to refuse."""
    clean = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith("DAYLIGHT_") and not k.endswith("_URL")
    }
    return subprocess.run(
        [sys.executable, "manage.py", "up", *flags],
        cwd=CHECKOUT,
        env={**clean, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def children(pid: int) -> dict[int, str]:
    """Pids and command lines of the processes that this one started."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                command = (entry / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
            if parent == pid:
                found[int(entry.name)] = command
    return found


def is_running(pid: int) -> bool:
    try:
        state = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def descendants(pid: int) -> set[int]:
    """Every process below this one."""
    found: set[int] = set()
    new = {pid}
    while new:
        new = {child for parent in new for child in children(parent)} - found
        found |= new
    return found


def test_the_ready_line_is_exactly_the_one_that_scripts_wait_for(first: Stack) -> None:
    assert first.lines.count(f"Daylight is ready at {first.url}") == 1


def test_every_part_runs_as_a_child_whose_arguments_can_be_read(first: Stack) -> None:
    assert first.process is not None
    commands = [*children(first.process.pid).values()]
    for part in PARTS:
        assert [c for c in commands if re.search(rf"manage\.py {part}\b", c)], part


def test_no_secret_is_in_a_command_line_or_in_a_readable_file(first: Stack) -> None:
    assert first.process is not None
    secrets = [
        (first.data_dir / name).read_text().strip()
        for name in ("postgres-password", "valkey-password", "secret-key")
    ]
    for pid in descendants(first.process.pid):
        try:
            command = (Path("/proc") / str(pid) / "cmdline").read_text()
        except FileNotFoundError:
            continue  # it ended meanwhile, as what prepares a stack does
        assert not [secret for secret in secrets if secret in command]
    for name in ("postgres-password", "valkey-password", "secret-key", "servers.json"):
        assert stat.S_IMODE((first.data_dir / name).stat().st_mode) == 0o600


def test_the_first_start_triggers_each_example_once(first: Stack) -> None:
    flows = first.rows("SELECT flow_id FROM flow WHERE removed_at IS NULL")
    assert len(flows) >= 4
    runs = first.rows(
        "SELECT flow_id, count(*) AS n FROM run WHERE run_key = 'first_up' GROUP BY 1"
    )
    assert {row["flow_id"]: row["n"] for row in runs} == {row["flow_id"]: 1 for row in flows}


def test_the_first_look_has_green_runs_replaced_tries_and_a_refused_delivery(first: Stack) -> None:
    for row in first.rows("SELECT id, flow_id, run_key AS run_id FROM run"):
        assert first.wait_for_run(row)["state"] == "success", row
    tries = first.rows(
        "SELECT attempt.filter_code FROM attempt JOIN run ON run.id = attempt.run_id"
        " WHERE run.flow_id = 'example_fails_twice' AND attempt.task_id = 'fetch'"
        " AND attempt.kind = 'task' ORDER BY fence"
    )
    codes = [row["filter_code"] for row in tries]
    assert codes.count("superseded_by_retry") == 2
    assert codes[-1] is None
    refused = wait_for(
        "the delivery that came twice",
        lambda: first.rows(
            "SELECT e.verdict, e.filter_code FROM executor_event e JOIN run r ON r.id = e.run_id"
            " WHERE e.kind = 'delivery_refused' AND r.flow_id = 'example_delivered_twice'"
        ),
    )
    assert refused[0] == {"verdict": "refused", "filter_code": "duplicate_delivery"}
    starts = first.data_dir / "examples-output" / "delivered_twice.starts"
    attempts = [line.split()[2] for line in starts.read_text(encoding="utf-8").splitlines()]
    assert len(attempts) == len(set(attempts)), "the second delivery started the work again"
    first.assert_nothing_hidden()


def test_a_folder_in_use_is_refused_with_one_line(first: Stack) -> None:
    refused = up("--port", str(free_port()), "--data-dir", str(first.data_dir))
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert refused.stderr.count("\n") == 1
    assert f"{first.data_dir} is in use by another stack" in refused.stderr


def test_a_port_in_use_is_refused_with_one_line_and_nothing_is_made(
    first: Stack, tmp_path: Path
) -> None:
    refused = up("--port", str(first.port), "--data-dir", str(tmp_path / "data"))
    assert refused.returncode == 1
    assert refused.stderr == (
        f"Port {first.port} cannot be used (Address already in use): choose another with --port.\n"
    )
    assert not (tmp_path / "data").exists()


def test_wrong_settings_are_refused_with_the_variable(tmp_path: Path) -> None:
    flags = ["--port", str(free_port()), "--data-dir", str(tmp_path / "data")]
    url = {"DATABASE_URL": "postgresql://u@127.0.0.1:1/d", "BROKER_URL": "x", "CACHE_URL": "x"}
    refused = up(*flags, DAYLIGHT_LEASE_TTL="soon", **url)
    assert refused.returncode == 1
    assert refused.stderr == "Wrong settings: DAYLIGHT_LEASE_TTL='soon' is not a number\n"


def test_a_database_that_does_not_answer_is_told_in_one_line(tmp_path: Path) -> None:
    flags = ["--port", str(free_port()), "--data-dir", str(tmp_path / "data")]
    url = {"DATABASE_URL": "postgresql://u@127.0.0.1:1/d", "BROKER_URL": "x", "CACHE_URL": "x"}
    refused = up(*flags, **url)
    assert refused.returncode == 1
    assert refused.stderr.startswith("The database cannot be prepared: ")
    assert refused.stderr.count("\n") == 1


def test_a_second_stack_runs_beside_the_first(first: Stack, tmp_path: Path) -> None:
    with running(tmp_path, flags=["--no-examples"]) as second:
        assert second.api("GET", "/api/v1/flows/")["counts"]["total"] == 0
        assert first.api("GET", "/api/v1/flows/")["counts"]["total"] >= 4
        assert second.addresses.database_url != first.addresses.database_url
        assert second.addresses.broker_url != first.addresses.broker_url
    assert first.process is not None
    assert first.process.poll() is None


def test_servers_that_are_given_by_address_are_used_and_left_running(
    tmp_path: Path, database_url: str, broker_url: str
) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE given")
    given = {
        "DATABASE_URL": database_url.replace("/daylight?", "/given?"),
        "BROKER_URL": broker_url.removesuffix("/0") + "/5",
        "CACHE_URL": broker_url.removesuffix("/0") + "/5",
    }
    with running(tmp_path, flags=["--no-examples"], environment=given, is_readymade=False) as stack:
        assert stack.process is not None
        assert asdict(stack.addresses) == {
            **{name.lower(): url for name, url in given.items()},
            "executor": "celery",
        }
        commands = " ".join(children(stack.process.pid).values())
        assert "postgres" not in commands
        assert "valkey" not in commands
        assert not (stack.data_dir / "postgres").exists()
        stack.write_flow("one.py", ONE)
        stack.wait_for_flow("one")
        assert stack.wait_for_run(stack.trigger("one"))["state"] == "success"
    with psycopg.connect(given["DATABASE_URL"]) as connection:
        assert connection.execute("SELECT count(*) FROM job WHERE ended_at IS NULL").fetchone() == (
            0,
        )


def test_what_is_killed_starts_again_and_nothing_else_does(first: Stack) -> None:
    (pid,) = first.job_pids("triggerer")
    others = [first.job_pids(kind) for kind in ("web", "scheduler", "worker")]
    os.kill(pid, signal.SIGKILL)
    wait_for("another triggerer", lambda: set(first.job_pids("triggerer")) - {pid})
    assert "triggerer ended (signal SIGKILL); it starts again in 1 s" in first.lines
    assert [first.job_pids(kind) for kind in ("web", "scheduler", "worker")] == others


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each starts by its own command")
def test_processes_share_what_they_load_and_outlive_the_nursery(tmp_path: Path) -> None:
    with running(tmp_path, flags=["--no-examples"]) as stack:
        assert stack.process is not None
        up_pid = stack.process.pid
        (nursery,) = [p for p, c in children(up_pid).items() if c.endswith("manage.py nursery ")]
        assert not [p for p in descendants(nursery) if is_running(p)], "it has no children"
        own = {kind: stack.job_pids(kind)[0] for kind in PARTS}
        for kind, pid in own.items():
            assert private_share(pid) < 0.5, kind
        os.kill(own["triggerer"], signal.SIGKILL)
        again = wait_for(
            "another triggerer", lambda: set(stack.job_pids("triggerer")) - {own["triggerer"]}
        ).pop()
        assert private_share(again) < 0.5
        assert children(up_pid)[again].endswith("manage.py triggerer ")
        # What is there goes on without the nursery, and the next one starts by its own command.
        os.kill(nursery, signal.SIGKILL)
        os.kill(again, signal.SIGKILL)
        by_itself = wait_for("a third", lambda: set(stack.job_pids("triggerer")) - {again}).pop()
        assert private_share(by_itself) > 0.5
        assert children(up_pid)[by_itself].endswith("manage.py triggerer ")
        assert {k: stack.job_pids(k)[0] for k in own if k != "triggerer"} == {
            k: pid for k, pid in own.items() if k != "triggerer"
        }
        stack.write_flow("one.py", ONE)
        stack.wait_for_flow("one")
        assert stack.wait_for_run(stack.trigger("one"))["state"] == "success"
        below = descendants(up_pid)
        assert stack.stop() == 0
        assert not [pid for pid in below if is_running(pid)]


def private_share(pid: int) -> float:
    """How much of the memory that the process wrote, or that was written before it, is its alone."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    kb = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return kb["Private_Dirty"] / (kb["Private_Dirty"] + kb["Shared_Dirty"])


def test_the_stack_survives_the_death_of_its_database(first: Stack) -> None:
    assert first.process is not None
    (pid,) = [p for p, c in children(first.process.pid).items() if "/postgres -D" in c]
    os.kill(pid, signal.SIGQUIT)
    wait_for("PostgreSQL again", lambda: any("PostgreSQL ended" in line for line in first.lines))
    wait_for("an answer", lambda: _answers(first), within_s=60)
    run = first.trigger("example_simplest_dag")
    assert first.wait_for_run(run, within_s=90)["state"] == "success"


def test_a_stop_ends_everything_and_a_second_start_finds_what_was_kept(tmp_path: Path) -> None:
    stack = Stack(tmp_path, flags=["--no-examples"])
    try:
        stack.start()
        assert stack.process is not None
        below = descendants(stack.process.pid)
        assert len(below) >= 6
        kept = stack.row("SELECT id FROM installation")
        assert stack.stop() == 0
        assert not [pid for pid in below if is_running(pid)]
        assert not (stack.data_dir / "servers.json").exists()
        assert stack.lines[-1] == "Everything has ended"
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", stack.port))
        stack.lines.clear()
        stack.start()
        assert stack.row("SELECT id FROM installation") == kept
    finally:
        stack.stop()


def test_when_the_supervisor_is_killed_nothing_outlives_it(tmp_path: Path) -> None:
    with running(tmp_path, flags=["--no-examples"]) as stack:
        assert stack.process is not None
        below = descendants(stack.process.pid)
        stack.process.kill()
        stack.process.wait()
        wait_for("all have ended", lambda: not [pid for pid in below if is_running(pid)])
        stack.lines.clear()
        stack.start()  # a killed stack leaves a folder that starts again


def test_a_schema_newer_than_the_code_is_refused_with_one_line(tmp_path: Path) -> None:
    with running(tmp_path, flags=["--no-examples"]) as stack:
        with psycopg.connect(stack.addresses.database_url) as connection:
            connection.execute(
                "INSERT INTO django_migrations (app, name, applied)"
                " VALUES ('scheduler_app', '9999_of_tomorrow', now())"
            )
        stack.stop()
        refused = up("--port", str(free_port()), "--data-dir", str(stack.data_dir))
        assert refused.returncode == 1
        assert refused.stderr.count("\n") == 1
        assert "scheduler_app.9999_of_tomorrow is unknown here" in refused.stderr


def test_a_signal_while_it_is_being_prepared_ends_it_at_once(tmp_path: Path) -> None:
    stack = Stack(tmp_path, flags=["--no-examples"])
    assert not data_folder.logs_of(stack.data_dir).exists()
    process = subprocess.Popen(
        [
            *(sys.executable, "manage.py", "up", "--data-dir", str(stack.data_dir)),
            *("--port", str(stack.port)),
        ],
        cwd=CHECKOUT,
        env=stack._environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for("it began", (stack.data_dir / "postgres-password").exists, every_s=0.01)
    below = descendants(process.pid)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=30)
    assert (process.returncode, error) == (0, "")
    assert time.monotonic() - began < 15
    assert not [pid for pid in below if is_running(pid)]


def _answers(stack: Stack) -> bool:
    try:
        stack.api("GET", "/api/v1/flows/")
    except OSError:
        return False
    return True
