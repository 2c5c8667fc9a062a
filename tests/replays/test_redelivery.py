"""Redelivery: messages that come twice, late or after the fact, and workers that die with theirs."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import redis

from scheduler_app.operations.terminate import terminate_run
from tests.replays import saying
from tests.replays.flows import noted, open_gate, running_attempt
from tests.stack import wait_for
from tests.workshop import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stack import Stack
    from tests.workshop import Workshop

HELD = """
    import os, time
    from scheduler_app.authoring import flow, task

    @task
    def t(ctx):
        with open({sink!r}, "a") as sink:
            print(os.getpid(), file=sink)
        while not os.path.exists({gate!r}):
            time.sleep(0.02)

    @flow
    def f():
        t()
"""


def test_b075_the_refused_delivery_of_what_runs_disturbs_nothing(
    workshop: Workshop, tmp_path: Path
) -> None:
    """The broker gives the message of a running task to a second child, which runs nothing."""
    sink, gate = tmp_path / "sink", tmp_path / "gate"
    message = workshop.issue_one(HELD.format(sink=str(sink), gate=str(gate)))
    first = workshop.start(message)
    try:
        wait_until(sink.exists, within_s=60)
        again = workshop.deliver(message)
        assert again.what == "refused"
        attempt = workshop.attempt(message)
        assert (attempt.state, attempt.pid) == ("running", first.pid)
        assert workshop.ti(message).state == "running"
    finally:
        gate.touch()
    assert first.outcome(within_s=60).outcome == "success"
    (event,) = workshop.events(message)
    assert (event.kind, event.verdict, event.filter_code) == (
        "delivery_refused",
        "refused",
        "duplicate_delivery",
    )
    assert len(sink.read_text().splitlines()) == 1
    assert workshop.ti(message).state == "success"
    saying.assert_nothing_hidden()


def test_b077_while_a_task_runs_the_broker_holds_nothing_that_it_could_deliver_again(
    stack: Stack, gate: str
) -> None:
    """Longer than any visibility timeout or not: the message is acknowledged before user code.

    Delays are the scheduler's own: ``tests/integration/scheduler/test_replays.py::test_b077_...``.
    """
    run = stack.trigger("holds", conf={"gate": gate})
    running_attempt(stack, run, "held")
    with redis.Redis.from_url(stack.addresses.broker_url) as broker:
        assert broker.hlen("unacked") == 0
        assert broker.zcard("unacked_index") == 0
        assert broker.llen("daylight.default") == 0
    open_gate(stack, gate)
    assert stack.wait_for_run(run, within_s=90)["state"] == "success"
    assert noted(stack, run) == ["held start", "held end"]


def test_b079_a_worker_that_dies_after_its_acknowledgement_is_made_good_by_heartbeats(
    stack: Stack, gate: str
) -> None:
    """The price of the early acknowledgement: no broker delivers again, so silence has to be seen."""
    run = stack.trigger("holds", conf={"gate": gate})
    attempt = running_attempt(stack, run, "held")
    (worker,) = stack.rows("SELECT pid FROM job WHERE id = %s", attempt["worker_job_id"])
    os.kill(worker["pid"], signal.SIGKILL)
    again = wait_for(
        "a second execution, of the same try",
        lambda: (
            (found := running_attempt(stack, run, "held", starts=2))["id"] != attempt["id"]
            and found
        ),
        within_s=90,
    )
    open_gate(stack, gate)
    assert stack.wait_for_run(run, within_s=90)["state"] == "success"
    lost, kept = stack.attempts(run)
    assert (lost["outcome"], lost["filter_code"]) == ("lost", "lost_worker")
    assert (kept["id"], kept["outcome"]) == (again["id"], "success")
    assert (kept["try_number"], kept["dispatch_no"]) == (1, 2), "no retry was used"
    assert noted(stack, run) == ["held start", "held start", "held end"]
    stack.assert_nothing_hidden()


def test_b081_a_task_that_was_cancelled_while_its_message_waited_never_starts(
    workshop: Workshop, tmp_path: Path
) -> None:
    """No revoke has to reach anybody in time: the claim is refused, whenever the message comes."""
    sink = tmp_path / "sink"
    message = workshop.issue_one(HELD.format(sink=str(sink), gate=str(tmp_path)))
    terminate_run(run_id=message.run_id, actor="ana", reason="not needed any more")
    outcome = workshop.deliver(message)
    assert outcome.what == "refused"
    assert not sink.exists()
    attempt = workshop.attempt(message)
    assert (attempt.outcome, attempt.started_at) == ("terminated", None)
    (event,) = [e for e in workshop.events(message) if e.kind == "delivery_refused"]
    assert event.verdict == "refused"
    saying.assert_nothing_hidden()
