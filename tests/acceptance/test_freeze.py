"""A run is frozen on a real stack: what runs is stopped, what is queued is refused, and all goes on."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.stack import running, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stack import Stack

WITHIN_S = 90.0
FLOW = """
import os, time
from scheduler_app.authoring import flow, task

@task(retries=0)
def waits_for_a_file(folder):
    while not os.path.exists(folder + "/go"):
        time.sleep(0.05)
    return 1

@task(retries=0)
def behind():
    return 1

@flow
def one():
    waits_for_a_file("{folder}") >> behind()
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("frozen")
    with running(folder, flags=("--no-examples", "--concurrency", "1")) as made:
        made.write_flow("one.py", FLOW.replace("{folder}", str(folder)))
        made.wait_for_flow("one")
        yield made


def states(stack: Stack, run: dict[str, Any]) -> dict[str, str]:
    rows = stack.rows("SELECT task_id, state FROM task_instance WHERE run_id = %s", run["id"])
    return {row["task_id"]: row["state"] for row in rows}


def test_a_hard_freeze_stops_and_refuses_and_the_thaw_lets_all_go_on(stack: Stack) -> None:
    """One worker process: the first run's task runs, the second run's waits in the queue behind it."""
    (stack.folder / "go").unlink(missing_ok=True)
    first = stack.trigger("one")
    wait_for(
        "it runs",
        lambda: states(stack, first)["waits_for_a_file"] == "running",
        within_s=WITHIN_S,
    )
    second = stack.trigger("one")
    wait_for(
        "the other is queued",
        lambda: states(stack, second)["waits_for_a_file"] == "queued",
        within_s=WITHIN_S,
    )
    done = stack.manage(
        "flows", "freeze", "one", "--mode", "hard", "--reason", "look first", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["stopped_count"] == 1
    wait_for(
        "what ran has stopped",
        lambda: states(stack, first)["waits_for_a_file"] == "scheduled",
        within_s=WITHIN_S,
    )
    # The one process is free now: it takes the other's message, which is refused.
    wait_for(
        "the delivery was refused",
        lambda: stack.rows(
            "SELECT 1 FROM executor_event WHERE filter_code = 'refused_frozen' AND run_id = %s",
            second["id"],
        ),
        within_s=WITHIN_S,
    )
    (stack.folder / "go").write_text("go", encoding="utf-8")
    assert stack.manage("flows", "thaw", "one", "--reason", "looked").returncode == 0
    for run in (first, second):
        assert stack.wait_for_run(run, within_s=WITHIN_S)["state"] == "success"
    tried = stack.attempts(first)
    stopped = [one for one in tried if one["outcome"] == "terminated"]
    assert len(stopped) == 1
    assert "froze flow one: look first" in stopped[0]["outcome_reason"]
    assert {one["try_number"] for one in tried} == {1}, "no retry: the task has none"
    assert [one["try_number"] for one in stack.attempts(second)] == [1, 1], "the same attempt again"
    inside = stack.rows(
        'SELECT p.id FROM attempt p JOIN run r ON r.id = p.run_id JOIN "freeze" z'
        " ON p.started_at > z.created_at AND p.started_at < z.ended_at"
    )
    assert inside == [], "nothing started while it was frozen"
    stack.assert_nothing_hidden()


def test_a_freeze_ends_by_itself(stack: Stack) -> None:
    (stack.folder / "go").write_text("go", encoding="utf-8")
    until = datetime.now(UTC) + timedelta(seconds=6)
    done = stack.manage(
        "flows", "freeze", "--all", "--until", until.isoformat(), "--reason", "for a moment"
    )
    assert done.returncode == 0, done.stderr
    run = stack.trigger("one")
    ended = stack.wait_for_run(run, within_s=WITHIN_S)
    assert ended["state"] == "success"
    (thaw,) = stack.rows(
        "SELECT at, actor FROM audit WHERE action = 'thaw' AND object_kind = 'all'"
    )
    assert thaw["actor"] == "scheduler"
    assert thaw["at"] >= until
    assert all(one["started_at"] > thaw["at"] for one in stack.attempts(run))
