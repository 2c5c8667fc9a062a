"""The main process as a witness: one exit event per execution, also of children that die."""

from __future__ import annotations

import os
import signal
import time
import uuid
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.utils import timezone

from scheduler_app.models import ExecutorEvent
from scheduler_app.processes import database
from scheduler_app.transitions import executor_event
from scheduler_app.worker import folder, witness
from scheduler_app.worker.outcome import Outcome
from tests.workshop import Hints, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from scheduler_app.transitions.attempt import Message
    from tests.workshop import Forked, Workshop

HEAD = "from scheduler_app.authoring import flow, task\n"
GOOD = f"{HEAD}@task\ndef t():\n    return 1\n@flow\ndef f():\n    t()\n"
BAD = GOOD.replace("return 1", "raise ValueError")
SLOW = GOOD.replace("return 1", "import time; time.sleep(60)")


@pytest.fixture
def notices() -> Hints:
    return Hints()


@pytest.fixture
def watching(workshop: Workshop, notices: Hints) -> Iterator[witness.Witness]:
    made = witness.Witness(workshop.station, notices=notices)
    made.start()
    yield made
    made.stop(5)


def _run(workshop: Workshop, watching: witness.Witness, source: str) -> Message:
    """A whole execution, told to the witness as the event loop tells it."""
    message = workshop.issue_one(source)
    child = workshop.start(message)
    watching.accepted(child.pid, str(message.attempt_id))
    outcome = child.outcome()
    watching.returned(child.pid, str(message.attempt_id), outcome)
    return message


def _start_slow(workshop: Workshop, watching: witness.Witness) -> tuple[Message, Forked]:
    message = workshop.issue_one(SLOW)
    child = workshop.start(message)
    watching.accepted(child.pid, str(message.attempt_id))
    wait_until(lambda: workshop.attempt(message).state == "running")
    return message, child


def _event(workshop: Workshop, message: Message) -> ExecutorEvent:
    (event,) = wait_until(lambda: workshop.events(message))
    assert isinstance(event, ExecutorEvent)
    return event


@pytest.mark.parametrize(("source", "kind"), [(GOOD, "exit_success"), (BAD, "exit_failed")])
def test_an_exit_that_agrees_with_the_report_is_confirmed_at_once(
    workshop: Workshop, watching: witness.Witness, notices: Hints, source: str, kind: str
) -> None:
    event = _event(workshop, _run(workshop, watching, source))
    assert (event.kind, event.verdict, event.filter_code) == (kind, "confirmed", None)
    assert event.source_job_id == workshop.station.job_id
    topics = [f"run:{event.run_id}", "runs", f"ti:{event.ti_id}"]
    wait_until(lambda: notices.sent)
    # A slow one is told of when it begins, too. Nobody is woken.
    assert all(hint == {"topics": topics} for hint in notices.sent)


def test_pages_hear_of_an_execution_that_takes_longer_once(
    workshop: Workshop, watching: witness.Witness, notices: Hints
) -> None:
    message, child = _start_slow(workshop, watching)
    topics = ["runs", f"run:{message.run_id}", f"ti:{message.ti_id}"]
    wait_until(lambda: {"topics": sorted(topics)} in notices.sent)
    time.sleep(0.5)
    assert len(notices.sent) == 1
    os.kill(child.pid, signal.SIGKILL)
    child.status()


def test_many_exits_share_one_insert(
    workshop: Workshop, watching: witness.Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []
    record = executor_event.record_events

    def counted(connection: Any, *, events: Any) -> int:
        batches.append(len(events))
        return record(connection, events=events)

    monkeypatch.setattr("scheduler_app.worker.witness.record_events", counted)
    messages = [workshop.issue_one(GOOD) for _ in range(5)]
    outcomes = [workshop.deliver(message) for message in messages]
    for pid, (message, outcome) in enumerate(
        zip(messages, outcomes, strict=True), start=10_000_000
    ):
        watching._executions[pid] = witness.Execution(
            str(message.attempt_id), pid, time.monotonic()
        )
        watching.returned(pid, str(message.attempt_id), outcome)
    wait_until(lambda: sum(batches) == 5)
    assert len(batches) <= 2


def test_a_child_that_is_killed_is_told_within_two_seconds(
    workshop: Workshop, watching: witness.Witness, notices: Hints
) -> None:
    message, child = _start_slow(workshop, watching)
    killed_at = timezone.now()
    os.kill(child.pid, signal.SIGKILL)
    event = _event(workshop, message)
    child.status()
    assert (event.kind, event.verdict) == ("exit_killed", "pending")
    assert event.payload["signal_name"] == "SIGKILL"
    assert (event.received_at - killed_at).total_seconds() < 2
    wait_until(lambda: {"runs": [], "events": 1} in notices.sent)


def test_a_child_that_the_pool_buried_first_is_told_once(
    workshop: Workshop, watching: witness.Witness
) -> None:
    message, child = _start_slow(workshop, watching)
    os.kill(child.pid, signal.SIGKILL)
    watching.lost(child.pid, str(message.attempt_id), -signal.SIGKILL)
    child.status()
    event = _event(workshop, message)
    time.sleep(0.6)  # until the watch has told it too
    assert len(workshop.events(message)) == 1
    assert event.payload["signal_name"] == "SIGKILL"


def test_a_child_that_leaves_by_itself_is_told_with_its_exit_code(
    workshop: Workshop, watching: witness.Witness
) -> None:
    message = workshop.issue_one(GOOD.replace("return 1", "import os; os._exit(3)"))
    child = workshop.start(message)
    watching.accepted(child.pid, str(message.attempt_id))
    event = _event(workshop, message)
    child.status()
    assert (event.kind, event.verdict, event.payload["exit_code"]) == ("exit_killed", "pending", 3)


def test_what_a_killed_child_had_started_is_ended_too(
    workshop: Workshop, watching: witness.Witness
) -> None:
    body = "import subprocess, time; print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)"
    message = workshop.issue_one(GOOD.replace("return 1", body))
    child = workshop.start(message)
    watching.accepted(child.pid, str(message.attempt_id))
    grandchild = int(wait_until(lambda: workshop.printed(message)))
    os.kill(child.pid, signal.SIGKILL)
    child.status()

    def is_gone() -> bool:
        try:
            with open(f"/proc/{grandchild}/stat", encoding="ascii") as stat:
                return stat.read().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    wait_until(is_gone)


def test_a_child_that_dies_right_after_its_report_harms_nothing(
    workshop: Workshop, watching: witness.Witness
) -> None:
    message = workshop.issue_one(GOOD)
    child = workshop.start(message)
    watching.accepted(child.pid, str(message.attempt_id))
    child.outcome()  # reported, and gone before the event loop heard of it
    event = _event(workshop, message)
    assert (event.kind, event.verdict, event.verdict_code) == (
        "exit_killed",
        "ignored",
        "late_after_terminal",
    )
    assert workshop.ti(message).state == "success"


def test_a_child_that_dies_with_a_second_delivery_does_not_fail_the_first(
    workshop: Workshop, watching: witness.Witness
) -> None:
    message, child = _start_slow(workshop, watching)
    second = workshop.fork(lambda: time.sleep(60))
    watching.accepted(second.pid, str(message.attempt_id))
    os.kill(second.pid, signal.SIGKILL)
    event = _event(workshop, message)
    second.status()
    assert (event.kind, event.verdict, event.verdict_code) == (
        "delivery_refused",
        "refused",
        "duplicate_delivery",
    )
    assert str(child.pid) in (event.verdict_reason or "")
    assert workshop.attempt(message).state == "running"
    os.kill(child.pid, signal.SIGKILL)
    child.status()


def test_a_child_that_dies_before_its_claim_is_left_to_the_scheduler(
    workshop: Workshop, watching: witness.Witness
) -> None:
    message = workshop.issue_one(GOOD)
    child = workshop.fork(lambda: time.sleep(60))
    watching.accepted(child.pid, str(message.attempt_id))
    os.kill(child.pid, signal.SIGKILL)
    event = _event(workshop, message)
    child.status()
    assert (event.kind, event.verdict) == ("exit_killed", "pending")
    assert workshop.attempt(message).state == "issued"


def test_an_idle_child_that_dies_is_no_event(workshop: Workshop, watching: witness.Witness) -> None:
    message = _run(workshop, watching, GOOD)
    _event(workshop, message)
    time.sleep(0.6)
    assert len(workshop.events(message)) == 1


def test_a_report_that_a_killed_child_had_spooled_is_sent_before_its_exit_is_told(
    workshop: Workshop, watching: witness.Witness
) -> None:
    message, child = _start_slow(workshop, watching)
    attempt = workshop.attempt(message)
    workshop.folder.write(
        message.attempt_id,
        folder.REPORT,
        {
            "ti_id": message.ti_id,
            "attempt_id": str(message.attempt_id),
            "nonce": str(attempt.nonce),
            "state": "success",
            "is_open": False,
            "outcome": "success",
            "result": 42,
        },
    )
    os.kill(child.pid, signal.SIGKILL)
    event = _event(workshop, message)
    child.status()
    assert event.verdict_code == "late_after_terminal"
    assert workshop.attempt(message).result == 42
    assert workshop.folder.attempts(folder.REPORT) == []


def test_an_execution_that_is_handed_back_is_scheduled_again_without_loss_of_budget(
    workshop: Workshop, watching: witness.Witness, notices: Hints
) -> None:
    message, child = _start_slow(workshop, watching)
    os.kill(child.pid, signal.SIGKILL)
    child.status()
    watching.returned(child.pid, str(message.attempt_id), Outcome(what="handed_back"))
    event = _event(workshop, message)
    assert (event.kind, event.verdict) == ("handed_back", "confirmed")
    ti, attempt = workshop.ti(message), workshop.attempt(message)
    assert (ti.state, ti.infra_losses, ti.is_open) == ("scheduled", 0, True)
    assert (attempt.state, attempt.outcome, attempt.is_accepted) == ("ended", "lost", False)
    assert {"runs": [message.run_id]} in notices.sent


def test_a_second_delivery_that_is_given_back_does_not_give_the_first_back(
    workshop: Workshop, watching: witness.Witness
) -> None:
    message, child = _start_slow(workshop, watching)
    second = workshop.fork(lambda: time.sleep(60))
    watching.accepted(second.pid, str(message.attempt_id))
    (execution,) = [one for one in watching.executions() if one.pid == second.pid]
    execution.is_handed_back = True
    os.kill(second.pid, signal.SIGKILL)
    event = _event(workshop, message)
    second.status()
    assert (event.verdict, event.verdict_code) == ("refused", "duplicate_delivery")
    assert workshop.ti(message).state == "running"
    os.kill(child.pid, signal.SIGKILL)
    child.status()


def test_exits_wait_for_the_database(
    workshop: Workshop, watching: witness.Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = database.connect
    tries: list[int] = []

    def flaky(*args: Any, **options: Any) -> Any:
        tries.append(1)
        if len(tries) < 2:
            raise psycopg.OperationalError("away")
        return connect(*args, **options)

    monkeypatch.setattr(database, "connect", flaky)
    event = _event(workshop, _run(workshop, watching, GOOD))
    assert event.verdict == "confirmed"
    assert len(tries) == 2


def test_a_delivery_that_broke_in_our_own_code_is_left_to_the_scheduler(
    workshop: Workshop, watching: witness.Witness
) -> None:
    message, child = _start_slow(workshop, watching)
    watching.broke(child.pid, str(message.attempt_id), "a\x00bug")
    event = _event(workshop, message)
    assert (event.kind, event.verdict, event.payload["error"]) == (
        "exit_failed",
        "pending",
        "a\\x00bug",
    )
    os.kill(child.pid, signal.SIGKILL)
    child.status()


def test_a_limit_that_is_told_before_its_delivery_is_known_is_kept(
    workshop: Workshop, watching: witness.Witness
) -> None:
    message = workshop.issue_one(SLOW)
    child = workshop.fork(lambda: time.sleep(60))
    workshop.station.notes.write(pid=child.pid, attempt=str(message.attempt_id), limit_s=5.0)
    time.sleep(0.3)
    watching.accepted(child.pid, str(message.attempt_id))
    wait_until(lambda: watching.executions()[0].limit_s == 5.0)
    os.kill(child.pid, signal.SIGKILL)
    child.status()


def test_printed_logs_are_announced(workshop: Workshop, watching: witness.Witness) -> None:
    printed: list[tuple[UUID, int]] = []
    watching.on_printed = lambda attempt_id, stored: printed.append((attempt_id, stored))
    message = _run(workshop, watching, GOOD.replace("return 1", "print(1)"))
    assert printed == [(message.attempt_id, 2)]
    _run(workshop, watching, GOOD)
    assert printed == [(message.attempt_id, 2)]


def test_what_a_child_goes_on_with_is_known_before_the_event_loop_hears_of_it(
    workshop: Workshop, watching: witness.Witness
) -> None:
    first, second = str(uuid.uuid4()), str(uuid.uuid4())
    watching.accepted(os.getpid(), first, pool_tells=True)
    watching.expects(os.getpid(), second)
    assert [str(each.attempt_id) for each in watching.executions()] == [first, second]
    expected = watching.executions()[1]
    assert watching.still_executes(expected)
    # Its child has begun with it meanwhile.
    workshop.station.notes.write(pid=os.getpid(), attempt=second, limit_s=9.0)
    wait_until(lambda: expected.limit_s == 9.0)
    watching.returned(os.getpid(), first, Outcome(what="refused"))
    watching.accepted(os.getpid(), second, pool_tells=True)
    assert watching.executions() == [expected]
    assert (expected.is_pools, watching.taken) == (True, 2)


def test_what_was_taken_out_of_a_childs_hands_is_not_expected_any_more(
    watching: witness.Witness,
) -> None:
    watching.expects(os.getpid(), str(uuid.uuid4()))
    (expected,) = watching.executions()
    watching.expects_no_more(os.getpid())
    assert watching.executions() == []
    assert not watching.still_executes(expected)


def test_notes_of_what_has_ended_are_not_kept(
    workshop: Workshop, watching: witness.Witness
) -> None:
    past, coming = str(uuid.uuid4()), str(uuid.uuid4())
    for _ in range(2):  # the same attempt may come twice
        watching.accepted(os.getpid(), past, pool_tells=True)
        workshop.station.notes.write(pid=os.getpid(), attempt=past, limit_s=7.0)
        wait_until(lambda: watching.executions()[0].limit_s == 7.0)
        watching.returned(os.getpid(), past, Outcome(what="refused"))
    for attempt in (past, coming):
        workshop.station.notes.write(pid=os.getpid(), attempt=attempt, limit_s=7.0)
    wait_until(lambda: [note["attempt"] for _, note in watching._notes] == [coming])
