"""Alerts of a whole stack: signed, once, with a sender other than what the alert is about."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.couriers import webhook
from tests import receivers
from tests import stack as stacks
from tests.stack import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.receivers import WebServer
    from tests.stack import Stack

KEY = "canary-shared-key-0123456789"
FLOW = """
    import os, time
    from datetime import timedelta
    from scheduler_app.authoring import Secret, WebhookNotifier, flow, task

    hook = WebhookNotifier({url!r}, key=Secret("team"))

    @task(on_failure_callback=hook)
    def waits(ctx):
        while not os.path.exists(ctx.conf["gate"]):
            time.sleep(0.05)
        raise ValueError("no page 7")

    @flow(deadline=timedelta(seconds=2), alerts=[hook])
    def late():
        waits()

    @flow(deadline=timedelta(seconds=2))
    def late_unseen():
        waits.override(on_failure_callback=None)()
"""


@pytest.fixture(scope="module")
def web() -> Iterator[WebServer]:
    """Who is told."""
    with receivers.web_server() as server:
        yield server


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, web: WebServer) -> Iterator[Stack]:
    """A stack whose notifiers may reach this machine alone."""
    environment = {
        "DAYLIGHT_NOTIFIER_NETWORKS": "127.0.0.1/32",
        "DAYLIGHT_NOTIFIER_SECRET_TEAM": KEY,
        "DAYLIGHT_ALERTS": json.dumps([{"kind": "webhook", "url": web.url("/ops")}]),
    }
    folder = tmp_path_factory.mktemp("alerts")
    with stacks.running(folder, flags=["--no-examples"], environment=environment) as made:
        made.write_flow("late.py", FLOW.format(url=web.url("/team")))
        made.wait_for_flow("late_unseen")
        yield made


def _told(web: WebServer, path: str, event: str, **facts: Any) -> list[dict[str, Any]]:
    bodies = [json.loads(taken.body) for taken in web.taken if taken.path == path]
    return [b for b in bodies if b["event"] == event and facts.items() <= b.items()]


def test_a_late_run_is_told_and_its_failure_too_each_once_and_signed(
    stack: Stack, web: WebServer, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    run = stack.trigger("late", conf={"gate": str(gate)})
    wait_for(
        "its lateness is told",
        lambda: _told(web, "/team", "incident.opened", kind="deadline_missed"),
        within_s=90,
    )
    gate.touch()
    stack.wait_for_run(run)
    wait_for(
        "its failure is told",
        lambda: _told(web, "/team", "on_failure", task_id="waits"),
        within_s=90,
    )
    incident = wait_for(
        "the incident is over",
        lambda: stack.row(
            "SELECT * FROM incident WHERE run_id = %s AND resolved_at IS NOT NULL", run["id"]
        ),
        within_s=90,
    )
    assert incident["resolution"].startswith("The run ended as failed, ")
    for taken in web.taken:
        if taken.path == "/team":
            timestamp = int(taken.headers["Daylight-Timestamp"])
            made = webhook.signature(taken.body, timestamp=timestamp, key=KEY)
            assert taken.headers["Daylight-Signature"] == made
    (failure,) = _told(web, "/team", "on_failure")
    assert failure["url"].startswith(f"{stack.url}/task-instances/")
    assert failure["exception"]["message"] == "no page 7"
    assert len(_told(web, "/team", "incident.opened", flow_id="late")) == 1
    assert KEY not in str(stack.rows("SELECT alert::text FROM alert"))
    logs = "".join(path.read_text(errors="replace") for path in (stack.data_dir / "logs").iterdir())
    assert KEY not in logs
    stack.assert_nothing_hidden()


def test_the_loss_of_every_scheduler_is_told_by_who_is_left_and_late_runs_once_they_are_back(
    stack: Stack, web: WebServer, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    run = stack.trigger("late_unseen", conf={"gate": str(gate)})
    wait_for(
        "it runs",
        lambda: stack.row(
            "SELECT 1 AS one FROM run WHERE id = %s AND late_at IS NOT NULL", run["id"]
        ),
        within_s=60,
    )
    (scheduler,) = stack.job_pids("scheduler")
    os.kill(scheduler, signal.SIGSTOP)
    try:
        wait_for(
            "somebody tells that no scheduler gets on",
            lambda: _told(web, "/ops", "incident.opened", kind="no_scheduler"),
            within_s=90,
        )
    finally:
        os.kill(scheduler, signal.SIGCONT)
    wait_for(
        "it is over",
        lambda: stack.row(
            "SELECT 1 AS one FROM incident WHERE kind = 'no_scheduler' AND resolved_at IS NOT NULL"
        ),
        within_s=90,
    )
    row = wait_for(
        "the lateness has its incident",
        lambda: stack.row("SELECT * FROM incident WHERE run_id = %s", run["id"]),
        within_s=90,
    )
    gate.touch()
    stack.wait_for_run(run)
    assert row["kind"] == "deadline_missed"
    assert len(stack.rows("SELECT 1 AS one FROM incident WHERE run_id = %s", run["id"])) == 1
    assert len(_told(web, "/ops", "incident.opened", kind="no_scheduler")) == 1
