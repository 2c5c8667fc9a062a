"""`manage.py up --executor local`: the whole product on one machine, with PostgreSQL alone."""

from __future__ import annotations

import asyncio
import http.cookiejar
import json
import os
import re
import signal
import socket
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import websockets

from tests.acceptance.test_up import descendants, up
from tests.stack import PASSWORD, Stack, free_port, running, wait_for

FLOWS = """
    import time
    from datetime import timedelta
    from scheduler_app.authoring import Defer, TimeTrigger, flow, task

    @task
    def nothing():
        pass

    @flow(max_active_tasks=200)
    def fan():
        for _ in range(200):
            nothing()

    @task
    def waits(ctx):
        raise Defer(TimeTrigger(timedelta(seconds=1)), method="came")

    @waits.method
    def came(event):
        return "came"

    @flow
    def deferring():
        waits()

    @task
    def sleeps(ctx):
        time.sleep(ctx.conf["seconds"])

    @flow(max_active_tasks=50)
    def sleeping():
        for _ in range(20):
            sleeps()
"""


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack with its examples, two schedulers and no broker."""
    with running(
        tmp_path_factory.mktemp("local"),
        flags=["--executor", "local", "--schedulers", "2"],
        # Given by mistake, and not to be used: nobody answers there.
        environment={"BROKER_URL": "redis://127.0.0.1:1/0"},
    ) as stack:
        stack.write_flow("flows.py", FLOWS)
        stack.wait_for_flow("fan")
        yield stack


def processes(stack: Stack) -> list[str]:
    """The command lines of everything that the stack started."""
    assert stack.process is not None
    found = []
    for pid in descendants(stack.process.pid):
        try:
            found.append((Path("/proc") / str(pid) / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def test_postgresql_is_the_only_server(local: Stack) -> None:
    commands = processes(local)
    assert any("postgres" in command for command in commands)
    assert not [command for command in commands if re.search("valkey|redis|celery", command)]
    assert not (local.data_dir / "valkey-port").exists()
    assert (local.addresses.broker_url, local.addresses.cache_url) == ("", "")
    assert any("No broker runs" in line for line in local.lines)


def test_the_examples_run_and_the_delivery_that_comes_twice_is_refused(local: Stack) -> None:
    for run in local.rows(
        "SELECT id, flow_id, run_key AS run_id FROM run WHERE run_key = 'first_up'"
    ):
        assert local.wait_for_run(run, within_s=120)["state"] == "success", run
    refused = wait_for(
        "the delivery that came twice",
        lambda: local.rows(
            "SELECT e.verdict, e.filter_code FROM executor_event e JOIN run r ON r.id = e.run_id"
            " WHERE e.kind = 'delivery_refused' AND r.flow_id = 'example_delivered_twice'"
        ),
        within_s=120,
    )
    assert refused[0] == {"verdict": "refused", "filter_code": "duplicate_delivery"}
    local.assert_nothing_hidden()


def test_a_fan_of_two_hundred_ends_and_each_ran_once(local: Stack) -> None:
    run = local.trigger("fan")
    assert local.wait_for_run(run, within_s=180)["state"] == "success"
    attempts = local.attempts(run)
    assert len(attempts) == 200
    assert {(a["outcome"], a["filter_code"]) for a in attempts} == {("success", None)}
    # A claim may be quicker than the note that its message is out.
    assert {a["publish_count"] for a in attempts} <= {0, 1}
    kinds = wait_for(
        "an exit event of each",
        lambda: local.rows(
            "SELECT kind, verdict, count(*) AS n FROM executor_event WHERE run_id = %s"
            " GROUP BY 1, 2 HAVING count(*) = 200",
            run["id"],
        ),
    )
    assert kinds == [{"kind": "exit_success", "verdict": "confirmed", "n": 200}]


def test_hints_arrive_so_that_nothing_waits_for_a_sweep(local: Stack) -> None:
    """A task that is ready is published long before anybody would look by himself."""
    runs = [local.wait_for_run(local.trigger("deferring")) for _ in range(3)]
    delays = []
    for run in runs:
        first = local.attempts(run)[0]
        delays.append((first["published_at"] - run["queued_at"]).total_seconds())
    assert min(delays) < 0.5, delays
    for name in ("scheduler-1", "scheduler-2", "triggerer", "worker", "web"):
        log = (local.data_dir / "logs" / f"{name}.log").read_text()
        assert "hints" not in log, log
        assert "Traceback" not in log, log


async def test_an_open_page_hears_at_once_that_a_run_moved(local: Stack) -> None:
    cookie = await asyncio.to_thread(_log_in, local)
    async with websockets.connect(
        f"ws://127.0.0.1:{local.port}/ws/live",
        additional_headers={"Cookie": cookie},
        origin=websockets.Origin(local.url),
    ) as page:
        heard: list[dict[str, Any]] = []
        async with asyncio.timeout(60):
            while not any(message.get("mode") == "live" for message in heard):
                await page.send(json.dumps({"sub": ["runs"]}))
                heard.append(json.loads(await page.recv()))
                await asyncio.sleep(0.1)
            run = await asyncio.to_thread(local.trigger, "deferring")
            await page.send(json.dumps({"sub": [f"run:{run['id']}"]}))
            changes: list[dict[str, Any]] = []
            while len(changes) < 2:  # it was dispatched, it deferred, it was resumed, it ended
                message = json.loads(await page.recv())
                changes += [message] if message.get("t") == f"run:{run['id']}" else []
        assert changes[0]["rev"] < changes[1]["rev"]
    await asyncio.to_thread(local.wait_for_run, run)


def test_health_and_metrics_are_as_with_a_broker(local: Stack) -> None:
    def is_healthy() -> bool:
        try:
            with urllib.request.urlopen(f"{local.url}/healthz") as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError:
            return False

    # Another test of this stack may have killed a worker just now.
    wait_for("every component gets on", is_healthy, within_s=90)
    wait_for(
        "the end of every incident",
        lambda: not local.rows("SELECT 1 FROM incident WHERE resolved_at IS NULL"),
        within_s=90,
    )
    with urllib.request.urlopen(f"{local.url}/metrics") as answer:
        assert 'kind="worker"' in answer.read().decode()
    workers = local.rows("SELECT detail FROM job WHERE kind = 'worker'")
    assert workers
    for worker in workers:
        assert worker["detail"]["carrier"].startswith(f"local at {socket.gethostname()}:")


def test_a_command_finds_the_executor_of_the_stack_by_its_folder(local: Stack) -> None:
    """A second worker, started by hand, needs no word of the executor."""
    done = local.manage("worker", "--concurrency", "600")
    assert done.returncode != 0
    assert "must be between 0 and 512 with the local executor" in done.stderr


def test_a_worker_that_is_killed_is_started_again_and_what_it_had_is_made_good(
    local: Stack,
) -> None:
    run = local.trigger("sleeping", conf={"seconds": 0.5})
    wait_for("some run", lambda: [a for a in local.attempts(run) if a["state"] == "running"])
    (pid,) = local.job_pids("worker")
    os.kill(pid, signal.SIGKILL)
    assert local.wait_for_run(run, within_s=180)["state"] == "success"
    assert any(re.search(r"worker ended \(signal SIGKILL\)", line) for line in local.lines)
    local.assert_nothing_hidden()


def test_a_process_per_task_has_no_limit_but_the_pools(tmp_path: Path) -> None:
    flags = ["--executor", "local", "--concurrency", "0", "--no-examples"]
    with running(tmp_path, flags=flags) as stack:
        stack.write_flow("flows.py", FLOWS)
        stack.wait_for_flow("sleeping")
        run = stack.trigger("sleeping", conf={"seconds": 20})
        wait_for(
            "all at the same time",
            lambda: [a["state"] for a in stack.attempts(run)] == ["running"] * 20,
            within_s=60,
        )
        assert stack.wait_for_run(run, within_s=120)["state"] == "success"
        assert stack.stop() == 0


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--executor", "kubernetes"], "there is no executor 'kubernetes'; choose celery or local"),
        (["--concurrency", "0"], "--concurrency 0 (a process per task) needs --executor local"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_in_one_line(
    flags: list[str], part: str, tmp_path: Path
) -> None:
    refused = up(*flags, "--port", str(free_port()), "--data-dir", str(tmp_path / "data"))
    assert refused.returncode == 2
    assert part in refused.stderr.splitlines()[-1]
    assert not (tmp_path / "data").exists()


def _log_in(stack: Stack) -> str:
    """The cookie of somebody who has logged in by the form."""
    jar = http.cookiejar.CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    with browser.open(f"{stack.url}/login/"):
        cookies = {cookie.name: cookie.value for cookie in jar}
    form = {
        "username": "admin",
        "password": PASSWORD,
        "csrfmiddlewaretoken": cookies["csrftoken"],
    }
    request = urllib.request.Request(
        f"{stack.url}/login/",
        data=urllib.parse.urlencode(form).encode(),
        headers={"Referer": f"{stack.url}/login/"},
    )
    with browser.open(request):
        return "; ".join(f"{cookie.name}={cookie.value}" for cookie in jar)
