"""Heartbeats: the dead taken for living, and the living taken for dead."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Attempt, ExecutorEvent, TaskInstance
from scheduler_app.rules.states import RunState
from scheduler_app.scheduler import sweep
from scheduler_app.scheduler.judge import judge_pending
from scheduler_app.scheduler.tick import Ticker
from scheduler_app.transitions import attempt
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.run import end_runs
from tests.replays import saying
from tests.together import together
from tests.world import World, chain

if TYPE_CHECKING:
    import psycopg

    from scheduler_app.scheduler.leases import Leases
    from scheduler_app.transitions.attempt import Message

CALLS: dict[str, tuple[str, ...]] = {"on_retry": ("tell",), "on_failure": ("tell",)}
SWEEPERS = 4
CHECKOUT = Path(__file__).parents[2]


def _running(world: World, raw: psycopg.Connection[Any], **options: Any) -> Message:
    """A claimed attempt on a live worker."""
    saying.start_worker(raw, world)
    run_id = world.run(world.flow("f", chain("a", **options)))
    world.tick(run_id)
    message = world.messages.pop()
    assert world.claim(message) is not None
    return message


def test_b021_a_silent_attempt_that_is_swept_by_everybody_twice_costs_no_retry(
    world: World, raw: psycopg.Connection[Any], leases: Leases, dead_soon: None
) -> None:
    """Retries 2, the attempt falls silent, and sweeps come in between: one loss, both retries left.

    A silent worker is no fault of the task, so a loss is made good from the infrastructure budget.
    """
    message = _running(world, raw, retries=2, retry_delay_s=0, callbacks=CALLS)
    saying.silence(raw)
    terms = leases.terms()
    for _ in range(2):
        together([lambda c: sweep.lose_silent(c, leases=leases, terms=terms)] * SWEEPERS)
    ti = TaskInstance.objects.get()
    assert (ti.state, ti.try_number, ti.infra_losses) == ("scheduled", 1, 1)
    assert saying.verdicts(message.attempt_id) == [("worker_lost", "worker_lost", None)]
    assert saying.callbacks(message.run_id) == []
    world.tick(message.run_id)
    assert saying.outcomes(message.run_id) == [("lost", 1, 0, 1), (None, 1, 0, 2)]
    saying.assert_nothing_hidden()


def test_b021_a_killed_child_that_everybody_tells_and_judges_twice_costs_one_retry(
    world: World, raw: psycopg.Connection[Any], leases: Leases
) -> None:
    """The same where a retry is due: one of two is used, and one callback says so."""
    message = _running(world, raw, retries=2, retry_delay_s=0, callbacks=CALLS)
    saying.say(raw, message.attempt_id, "exit_killed", times=3)
    terms = leases.terms()
    for _ in range(2):
        together([lambda c: judge_pending(c, leases=leases, terms=terms)] * SWEEPERS)
    ti = TaskInstance.objects.get()
    assert (ti.state, ti.try_number, ti.max_tries) == ("up_for_retry", 1, 2)
    assert saying.callbacks(message.run_id) == ["on_retry"]
    codes = [code for _, code, _ in saying.verdicts(message.attempt_id)]
    assert codes.count("killed_externally") >= 1
    for tries in (2, 3):
        world.tick(message.run_id)
        again = world.messages.pop()
        assert world.claim(again) is not None, "both retries were there to be used"
        assert TaskInstance.objects.get().try_number == tries
        if tries == 2:
            world.finish(again, ok=False, retry_after_s=0.0)
        else:
            world.finish(again)
    saying.assert_nothing_hidden()


def test_b023_a_monitor_that_acts_on_what_it_read_before_a_success_changes_nothing(
    world: World, raw: psycopg.Connection[Any], leases: Leases, dead_soon: None
) -> None:
    """Read as running and silent; it succeeds; now the reader acts, in each way that there is."""
    message = _running(world, raw)
    saying.silence(raw)
    seen = sweep._running(raw, leases.terms(), 0.5)
    assert [row["is_stale"] for row in seen] == [True]
    world.finish(message)
    lost = attempt.lose(
        raw,
        attempt_ids=[row["attempt_id"] for row in seen],
        dead_after_s=0.5,
        budget=0,
        source="a monitor",
    )
    assert lost == []
    assert world.states(message.run_id) == {"a": "success"}
    world.tick(message.run_id)
    assert end_runs(raw, ends={message.run_id: (RunState.FAILED, "as it was")}) == {}
    row = raw.execute("SELECT state FROM run").fetchone()
    assert row is not None
    assert "success" in str(row)
    assert Attempt.objects.get().outcome == "success"


def test_b025_beats_that_are_read_late_kill_nobody(
    world: World, raw: psycopg.Connection[Any], dead_soon: None, settings: Any
) -> None:
    """Nobody carries beats but the database: they are as old as they say, whoever reads them when.

    Two intervals without one are no death, and one that comes between reading and acting counts.
    """
    settings.HEARTBEAT_DEAD_AFTER_S = 20.0
    message = _running(world, raw)
    saying.silence(raw, for_s=10)  # twice the interval
    assert saying.lose(raw, world) == set()
    settings.HEARTBEAT_DEAD_AFTER_S = 0.5
    saying.silence(raw)
    seen = sweep._running(raw, world.leases.terms(), 0.5)
    assert [row["is_stale"] for row in seen] == [True]
    (answer,) = attempt.beat(raw, attempt_ids=[message.attempt_id], worker_job_id=world.worker)
    assert answer.is_wanted
    lost = attempt.lose(
        raw,
        attempt_ids=[message.attempt_id],
        dead_after_s=5.0,
        budget=3,
        source="a sweep that read before",
    )
    assert lost == []
    assert world.states(message.run_id) == {"a": "running"}


@pytest.mark.parametrize("dead_after_s", [30, 29, 45])
def test_b027_a_threshold_that_kills_the_healthy_is_refused_at_the_start(
    dead_after_s: int,
) -> None:
    """Interval 30 s and dead after 30 s: no process starts, and the line names both."""
    environment = {
        **os.environ,
        "DAYLIGHT_HEARTBEAT_INTERVAL_S": "30",
        "DAYLIGHT_HEARTBEAT_DEAD_AFTER_S": str(dead_after_s),
        "DAYLIGHT_LEASE_TTL": "60",
    }
    done = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=CHECKOUT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert "DAYLIGHT_HEARTBEAT_DEAD_AFTER_S" in last
    assert "DAYLIGHT_HEARTBEAT_INTERVAL_S" in last


def test_b029_two_dispatchers_over_one_row_never_queue_what_runs(
    world: World, raw: psycopg.Connection[Any], leases: Leases
) -> None:
    """Both decide from what they read; one queues it, it is claimed; the other one finds it changed."""
    run_id = world.run(world.flow("f", chain("a")))
    terms = leases.terms()

    def tick(connection: psycopg.Connection[Any]) -> list[Message]:
        outcome = Ticker(leases).tick(
            connection, terms=terms, run_ids=[run_id], queue_slots={"default": 8}
        )
        return outcome.messages

    sent = [message for messages in together([tick] * SWEEPERS) for message in messages]
    assert len(sent) == 1, "one of them dispatched"
    assert world.claim(sent[0]) is not None
    stale = attempt.Dispatch(
        ti_id=sent[0].ti_id,
        attempt_id=uuid7(),
        previous=None,  # as it was when that one read it
        try_number=1,
        resume_index=0,
        dispatch_no=1,
        run_attempt=1,
        token=sent[0].lease_token,
        cause=None,
    )
    for previous in (None, sent[0].attempt_id):
        with raw.transaction():
            late = attempt.dispatch(
                raw,
                dispatches=[
                    attempt.Dispatch(
                        **{n: getattr(stale, n) for n in stale.__slots__} | {"previous": previous}
                    )
                ],
            )
        assert late == []
    assert world.states(run_id) == {"a": "running"}
    for _ in range(3):
        together([tick] * SWEEPERS)
    assert world.states(run_id) == {"a": "running"}
    (answer,) = attempt.beat(raw, attempt_ids=[sent[0].attempt_id], worker_job_id=world.worker)
    assert answer.is_wanted, "and nobody tells its worker to stop"
    world.finish(sent[0])
    assert saying.outcomes(run_id) == [("success", 1, 0, 1)]


def test_b029_a_worker_whose_attempt_was_replaced_is_told_and_its_record_names_the_successor(
    world: World, raw: psycopg.Connection[Any], dead_soon: None
) -> None:
    """Given up and dispatched again while its worker was cut off: not wanted, and by what replaced."""
    message = _running(world, raw)
    saying.silence(raw)
    assert saying.lose(raw, world) == {message.run_id}
    world.tick(message.run_id)
    successor = world.messages.pop()
    (answer,) = attempt.beat(raw, attempt_ids=[message.attempt_id], worker_job_id=world.worker)
    assert (answer.is_wanted, answer.state) == (False, "ended")
    old = Attempt.objects.get(pk=message.attempt_id)
    assert (old.filter_code, old.superseded_by) == ("lost_worker", str(successor.attempt_id))
    assert world.claim(message, uuid.uuid4()) is None
    assert saying.refuse_delivery(raw, world, message, uuid.uuid4()) == "refused_superseded"
    event = ExecutorEvent.objects.latest("id")
    assert str(successor.attempt_id) in str(event.verdict_detail)
    saying.assert_nothing_hidden()
