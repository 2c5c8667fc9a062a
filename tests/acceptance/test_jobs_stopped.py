"""Real processes of every kind end when they are asked to through their job row."""

from __future__ import annotations

import time
import urllib.error
from typing import TYPE_CHECKING, Any

import pytest

from tests.stack import running, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stack import Stack

# Without haste a loaded machine needs a while; what is measured is printed.
WITHIN_S = 60.0
LONG = """
import time
from pathlib import Path
from scheduler_app.authoring import flow, task

@task(retries=0)
def waits(folder):
    if not Path(folder, "go").exists():
        Path(folder, "begun").touch()
        time.sleep(300)
    return "went on"

@flow
def long():
    waits("{folder}")
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("stopped")
    flags = ("--schedulers", "2", "--no-examples")
    with running(folder, flags=flags, environment={"DAYLIGHT_WORKER_DRAIN_S": "1"}) as made:
        made.write_flow("long.py", LONG.format(folder=folder))
        made.wait_for_flow("long")
        yield made


def job_of(stack: Stack, kind: str) -> dict[str, Any]:
    """The oldest live job of the kind."""
    found: dict[str, Any] = wait_for(
        f"a live {kind}",
        lambda: stack.row(
            "SELECT * FROM job WHERE kind = %s AND ended_at IS NULL AND state = 'running'"
            " AND stop_requested_at IS NULL AND progress_at > started_at ORDER BY started_at",
            kind,
        ),
        within_s=WITHIN_S,
    )
    return found


def ended(stack: Stack, job: dict[str, Any]) -> dict[str, Any]:
    """The job once it ended in order, and how long that took since it was asked."""
    row: dict[str, Any] = wait_for(
        f"the {job['kind']} ends",
        lambda: stack.row(
            "SELECT *, extract(epoch FROM ended_at - stop_requested_at)::float8 AS took_s"
            " FROM job WHERE id = %s AND state = 'ended'",
            job["id"],
        ),
        within_s=WITHIN_S,
    )
    print(f"{job['kind']} ended {row['took_s']:.2f} s after it was asked to")
    return row


def stop(stack: Stack, job: dict[str, Any]) -> Any:
    return stack.api("POST", f"/api/v1/jobs/{job['id']}/stop/", {"reason": "a test"})


def test_a_scheduler_gives_its_leases_back_within_two_seconds_of_reading(stack: Stack) -> None:
    wait_for(
        "both schedulers hold their share",
        lambda: (
            [
                row["n"]
                for row in stack.rows(
                    "SELECT count(*) AS n FROM lease GROUP BY holder, holder IS NULL"
                )
            ]
            == [8, 8]
        ),
        within_s=WITHIN_S,
    )
    job = job_of(stack, "scheduler")
    assert "releases the leases of 8 shards" in " ".join(stop(stack, job)["effects"])
    row = ended(stack, job)
    released = stack.row(
        "SELECT extract(epoch FROM max(e.at) - j.stop_requested_at)::float8 AS after_s,"
        " count(*) AS shards FROM lease_event e JOIN job j ON j.id = e.holder"
        " WHERE e.holder = %s AND e.kind = 'released' AND e.at > j.stop_requested_at"
        " GROUP BY j.stop_requested_at",
        row["id"],
    )
    assert released is not None
    print(f"{released['shards']} leases released after {released['after_s']:.2f} s")
    assert released["shards"] == 8
    assert released["after_s"] < 10, "2 s on a machine that has nothing else to do"
    wait_for(
        "the other holds every shard, until the new one takes its share",
        lambda: (
            not stack.rows("SELECT 1 FROM lease WHERE holder IS NULL OR holder = %s", job["id"])
        ),
        within_s=WITHIN_S,
    )


def test_a_worker_hands_its_task_back_and_another_process_finishes_it(stack: Stack) -> None:
    run = stack.trigger("long")
    wait_for(
        "the task runs",
        (stack.folder / "begun").exists,
        within_s=WITHIN_S,
    )
    (stack.folder / "go").touch()
    job = job_of(stack, "worker")
    assert stop(stack, job)["is_asked"] is True
    ended(stack, job)
    assert stack.wait_for_run(run, within_s=120)["state"] == "success"
    first, last = stack.attempts(run)
    assert (first["outcome"], first["filter_code"]) == ("lost", "lost_worker")
    assert (last["outcome"], last["try_number"]) == ("success", 1)
    assert last["worker_job_id"] != job["id"]


@pytest.mark.parametrize("kind", ["triggerer", "web"])
def test_triggerer_and_web_end_and_are_replaced(stack: Stack, kind: str) -> None:
    job = job_of(stack, kind)
    stop(stack, job)
    ended(stack, job)
    replaced = job_of(stack, kind)
    assert replaced["id"] != job["id"]
    if kind == "web":
        wait_for("the pages answer", lambda: _answers(stack), within_s=WITHIN_S)
    with pytest.raises(urllib.error.HTTPError) as refused:
        stop(stack, job)
    assert refused.value.code == 409


def _answers(stack: Stack) -> bool:
    try:
        return bool(stack.api("GET", "/api/v1/health/"))
    except (urllib.error.URLError, OSError):
        time.sleep(0.1)
        return False


def test_the_command_line_stops_one_too_and_every_end_was_counted(stack: Stack) -> None:
    job = job_of(stack, "triggerer")
    done = stack.manage("jobs", "stop", str(job["id"]), "--reason", "by hand")
    assert done.returncode == 0, done.stderr
    assert "was asked to stop" in done.stdout
    ended(stack, job)
    assert stack.manage("jobs", "stop", str(job["id"]), "--reason", "again").returncode == 1
    for kind in ("scheduler", "triggerer", "worker", "web"):
        seen = stack.row(
            "SELECT max(c.value) FILTER (WHERE c.name = %s) AS starts,"
            " max(c.value) FILTER (WHERE c.name = %s) AS ends,"
            " (SELECT count(*) FROM job WHERE kind = %s) AS rows,"
            " (SELECT count(*) FROM job WHERE kind = %s AND state = 'ended') AS ended"
            " FROM counter c",
            f"{kind}_start_total",
            f"{kind}_end_total",
            kind,
            kind,
        )
        assert seen is not None
        assert (seen["starts"], seen["ends"]) == (seen["rows"], seen["ended"]), kind
    stack.assert_nothing_hidden()
