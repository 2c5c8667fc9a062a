"""A flow with a run retry on a real stack: two branches fail at once, and the leader is killed meanwhile."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any, Final

from tests.stack import wait_for

if TYPE_CHECKING:
    from tests.stack import Stack

FLAGS: Final = ["--no-examples", "--schedulers", "2", "--concurrency", "2"]
COOLDOWN_S: Final = 4  # longer than the kill takes; the lease runs out meanwhile, or after it
WITHIN_S: Final = 90.0
FLOW = f"""
from scheduler_app.authoring import RunRetry, flow, task

class Flaky(RuntimeError):
    pass

@task
def before(ctx):
    return ctx.run_attempt

@task
def left(ctx, begun):
    if ctx.run_attempt == 1:
        raise Flaky("the target is away")

@task
def right(ctx, begun):
    if ctx.run_attempt == 1:
        raise Flaky("the target is away")

@task
def after(ctx):
    return ctx.run_attempt

@flow(run_retry=RunRetry(3, cooldown={COOLDOWN_S}, on=(RuntimeError,)))
def begins_again():
    begun = before()
    [left(begun), right(begun)] >> after()
"""


def leader(stack: Stack, run: dict[str, Any]) -> int | None:
    """The process that holds the run's shard."""
    row = stack.row(
        "SELECT j.pid FROM lease l JOIN job j ON j.id = l.holder"
        " WHERE l.shard = %s AND l.expires_at > clock_timestamp()",
        run["shard"],
    )
    return None if row is None else int(row["pid"])


def test_the_leader_dies_between_the_failure_and_the_retry(stack: Stack) -> None:
    """Exactly one run attempt more, whoever begins it."""
    stack.write_flow("begins_again.py", FLOW)
    stack.wait_for_flow("begins_again")
    run = stack.trigger("begins_again")
    failed = wait_for(
        "the run failed and waits",
        lambda: stack.row("SELECT * FROM run WHERE id = %s AND retry_at IS NOT NULL", run["id"]),
        within_s=WITHIN_S,
    )
    assert failed["state"] == "failed"
    assert failed["retry_reason"] == "Go 2 of 3 follows because left, right failed."
    pid = wait_for("its shard has a leader", lambda: leader(stack, run), within_s=WITHIN_S)
    os.kill(pid, signal.SIGKILL)
    ended = wait_for(
        "the run succeeded",
        lambda: stack.row("SELECT * FROM run WHERE id = %s AND state = 'success'", run["id"]),
        within_s=WITHIN_S,
    )
    assert (ended["run_attempt"], ended["retry_count"], ended["retry_at"]) == (2, 1, None)
    goes = stack.rows(
        "SELECT number, cause, state, filter_code FROM run_attempt WHERE run_id = %s ORDER BY 1",
        run["id"],
    )
    assert [tuple(go.values()) for go in goes] == [
        (1, "created", "failed", "superseded_by_run_attempt"),
        (2, "run_retry", "success", None),
    ]
    tries = [
        (attempt["task_id"], attempt["run_attempt"])
        for attempt in stack.attempts(run)
        if attempt["outcome"] != "lost"
    ]
    assert sorted(set(tries)) == [
        ("after", 2),
        ("before", 1),
        ("left", 1),
        ("left", 2),
        ("right", 1),
        ("right", 2),
    ]
    actions = stack.rows("SELECT * FROM automatic_action WHERE run_id = %s", run["id"])
    assert len(actions) == 1
    stack.assert_nothing_hidden()
