"""Database and broker restart, flap and come back empty, under a stack of real processes."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import redis

from tests.replays.flows import broker_pid, database_pid, noted, open_gate, running_attempt
from tests.stack import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.stack import Stack


def _runs_through(stack: Stack) -> None:
    """A task that is triggered now is executed, once."""
    run = wait_for("a run can be made", lambda: _trigger(stack, "quickly"), within_s=90)
    assert _ended(stack, run) == "success"
    assert noted(stack, run) == ["quick start", "quick end"]


def _trigger(stack: Stack, flow_id: str) -> dict[str, Any] | None:
    try:
        return stack.trigger(flow_id)
    except OSError:  # the API says so while its servers are away
        return None


def _look(stack: Stack, query: str, *parameters: Any) -> list[dict[str, Any]] | None:
    """The rows, or nothing while the server is away."""
    try:
        return stack.rows(query, *parameters)
    except psycopg.OperationalError:
        return None


def _ended(stack: Stack, run: dict[str, Any]) -> str:
    (row,) = wait_for(
        "the run ends",
        lambda: _look(stack, "SELECT state FROM run WHERE id = %s AND NOT is_active", run["id"]),
        within_s=120,
    )
    return str(row["state"])


def test_b279_a_broker_connection_that_flaps_costs_no_task(stack: Stack, gate: str) -> None:
    """Every connection to the broker is cut, three times within three seconds, while a task runs."""
    run = stack.trigger("holds", conf={"gate": gate})
    running_attempt(stack, run, "held")
    broker = redis.Redis.from_url(stack.addresses.broker_url)
    for _ in range(3):
        broker.client_kill_filter(_type="normal", skipme=True)
        broker.client_kill_filter(_type="pubsub", skipme=True)
        time.sleep(1)
    _runs_through(stack)
    open_gate(stack, gate)
    assert _ended(stack, run) == "success"
    (only,) = stack.attempts(run)
    assert only["outcome"] == "success"
    assert noted(stack, run) == ["held start", "held end"]
    stack.assert_nothing_hidden()


def test_b281_a_worker_goes_on_after_the_broker_was_killed_and_came_back_empty(
    stack: Stack, gate: str
) -> None:
    """The broker is killed with messages in its queue: they are sent again, and consumed."""
    holders = [stack.trigger("holds", conf={"gate": gate}) for _ in range(2)]
    for holder in holders:
        running_attempt(stack, holder, "held")
    waiting = stack.trigger("quickly")
    wait_for(
        "its message lies in the queue",
        lambda: [p for p in stack.attempts(waiting) if p["published_at"]],
    )
    (worker,) = stack.job_pids("worker")
    old = broker_pid(stack)
    os.kill(old, signal.SIGKILL)
    wait_for("another broker runs", lambda: broker_pid(stack) not in {0, old}, within_s=60)
    open_gate(stack, gate)
    for run in (*holders, waiting):
        assert _ended(stack, run) == "success"
        assert len(stack.attempts(run)) == 1, "no attempt but the first, published again"
    assert stack.job_pids("worker") == [worker], "it did not have to be restarted"
    _runs_through(stack)
    stack.assert_nothing_hidden()


def test_b283_scheduling_goes_on_after_the_database_was_restarted(stack: Stack) -> None:
    """By hand and by schedule; of the slots that were missed the newest is made (no catch-up)."""
    _kill_database(stack)
    _runs_through(stack)
    # As if it had been away for five hours: the slots between have passed, and none has its run.
    stack.rows(
        "UPDATE run SET run_key = 'before', logical_date = logical_date - interval '1 day'"
        " WHERE flow_id = 'hourly' AND run_type = 'scheduled' RETURNING id"
    )
    (before,) = stack.rows(
        "UPDATE flow SET last_interval_start = date_trunc('hour', now()) - interval '7 hours',"
        " last_interval_end = date_trunc('hour', now()) - interval '6 hours',"
        " next_interval_start = date_trunc('hour', now()) - interval '6 hours',"
        " next_interval_end = date_trunc('hour', now()) - interval '5 hours'"
        " WHERE flow_id = 'hourly' RETURNING date_trunc('hour', now()) AS newest"
    )
    made = wait_for(
        "the scheduled run ends",
        lambda: stack.rows(
            "SELECT state, data_interval_end FROM run WHERE flow_id = 'hourly'"
            " AND run_type = 'scheduled' AND NOT is_active AND run_key <> 'before'"
            " ORDER BY data_interval_end"
        ),
        within_s=120,
    )
    # One more where an hour ended meanwhile.
    assert {row["state"] for row in made} == {"success"}
    assert made[0]["data_interval_end"] >= before["newest"]
    assert len({row["data_interval_end"] for row in made}) == len(made)
    stack.assert_nothing_hidden()


def _kill_database(stack: Stack) -> None:
    """The server is killed, as by a power cut, and another one is there."""
    old = database_pid(stack)
    os.kill(old, signal.SIGQUIT)
    wait_for(
        "another database runs",
        lambda: database_pid(stack) not in {0, old} and _look(stack, "SELECT 1 AS one"),
        within_s=90,
    )


def _in(task_id: str, state: str) -> Callable[[Stack, dict[str, Any]], bool]:
    def look(stack: Stack, run: dict[str, Any]) -> bool:
        rows = _look(
            stack,
            "SELECT 1 AS one FROM task_instance WHERE run_id = %s AND task_id = %s AND state = %s",
            run["id"],
            task_id,
            state,
        )
        return bool(rows)

    return look


# Where the run is when the database goes away, and whether it has to be told to go on.
WINDOWS = {
    "created": lambda stack, run: True,
    "running": _in("slow", "running"),
    "deferred": _in("waits", "deferred"),
    "waiting for its retry": _in("fails_first", "up_for_retry"),
}


def test_b285_a_database_that_goes_away_in_each_window_leaves_nothing_stuck(stack: Stack) -> None:
    """Killed while the run is made, runs, is deferred and waits for a retry: all ends, once each."""
    run = stack.trigger("windows")
    for name, is_there in WINDOWS.items():
        wait_for(name, lambda: is_there(stack, run), within_s=90, every_s=0.02)  # noqa: B023
        _kill_database(stack)
        if name == "deferred":
            _tell(stack, run)
    assert _ended(stack, run) == "success"
    states = stack.rows("SELECT DISTINCT state FROM task_instance WHERE run_id = %s", run["id"])
    assert states == [{"state": "success"}]
    attempts = stack.attempts(run)
    accepted = [
        (p["task_id"], p["try_number"], p["resume_index"]) for p in attempts if p["is_accepted"]
    ]
    assert len(accepted) == len(set(accepted)) == 6
    assert not [p for p in attempts if p["is_live"]]
    said = noted(stack, run)
    for task_id in ("slow", "waits", "fails_first", "quick"):
        assert said.count(f"{task_id} end") == 1, said
    stack.assert_nothing_hidden()


def _tell(stack: Stack, run: dict[str, Any]) -> None:
    """The event that the deferred task waits for is sent, once the API can take it."""
    ti = stack.row(
        "SELECT id FROM task_instance WHERE run_id = %s AND task_id = 'waits'", run["id"]
    )
    assert ti is not None

    def send() -> bool:
        try:
            stack.api("POST", f"/api/v1/task-instances/{ti['id']}/event/", {"key": "go"})
        except OSError:
            return False
        return True

    wait_for("the event is sent", send, within_s=60)


@pytest.fixture(autouse=True)
def _nothing_is_left_over(stack: Stack) -> Iterator[None]:
    """Each of these leaves a stack whose servers answer."""
    yield
    wait_for("the database answers", lambda: _look(stack, "SELECT 1 AS one"), within_s=90)
