"""A carrier that hangs is waited for only so long, and what it takes late counts as taken."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest

from scheduler_app.executors.patient import PatientExecutor
from scheduler_app.transitions.attempt import Message
from tests.workshop import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

PATIENCE_S = 0.2


class Carrier:
    """Takes everything, unless it hangs."""

    carrier = "a test's own"

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.brought: list[UUID] = []
        self.error: Exception | None = None
        self.is_closed = False

    def publish(self, messages: Sequence[Message], *, identity: str) -> frozenset[UUID]:
        del identity
        self.goes_on.wait(20)
        if self.error is not None:
            raise self.error
        self.brought += [message.attempt_id for message in messages]
        return frozenset(message.attempt_id for message in messages)

    def queue_depth(self, queue: str) -> int | None:
        self.goes_on.wait(20)
        return len(queue)

    def waiting(self, queue: str, *, limit: int) -> list[Any] | None:
        del queue, limit
        self.goes_on.wait(20)
        return []

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def carrier() -> Iterator[Carrier]:
    made = Carrier()
    yield made
    made.goes_on.set()


@pytest.fixture
def patient(carrier: Carrier) -> PatientExecutor:
    """It soon loses its patience."""
    return PatientExecutor(carrier, patience_s=PATIENCE_S)


@pytest.fixture
def unhurried(carrier: Carrier) -> PatientExecutor:
    """It waits as long as a busy machine takes."""
    return PatientExecutor(carrier, patience_s=60)


def _message() -> Message:
    return Message(attempt_id=uuid4(), ti_id=1, run_id=1, fence=1, lease_token=1, queue="default")


def _took_s(since: float) -> float:
    return time.monotonic() - since


def test_answers_pass(unhurried: PatientExecutor, carrier: Carrier) -> None:
    patient = unhurried
    message = _message()
    assert patient.publish([message], identity="x") == {message.attempt_id}
    assert patient.queue_depth("five!") == 5
    assert patient.waiting("default", limit=2) == []
    assert patient.carrier == "a test's own"
    patient.close()
    assert carrier.is_closed


def test_errors_pass(unhurried: PatientExecutor, carrier: Carrier) -> None:
    patient = unhurried
    carrier.error = RuntimeError("broken")
    with pytest.raises(RuntimeError, match="broken"):
        patient.publish([_message()], identity="x")
    carrier.error = None
    assert patient.queue_depth("five!") == 5, "and the next question is asked"


def test_a_carrier_that_hangs_is_waited_for_once(
    patient: PatientExecutor, carrier: Carrier
) -> None:
    carrier.goes_on.clear()
    since = time.monotonic()
    assert patient.publish([_message()], identity="x") == frozenset()
    assert PATIENCE_S <= _took_s(since) < 10
    since = time.monotonic()
    for _ in range(50):
        assert patient.publish([_message()], identity="x") == frozenset()
        assert patient.queue_depth("default") is None
        assert patient.waiting("default", limit=1) is None
    assert _took_s(since) < 50 * PATIENCE_S, "nobody waits a second time"
    carrier.goes_on.set()


def test_what_is_taken_late_is_not_brought_again(
    patient: PatientExecutor, carrier: Carrier
) -> None:
    first, second = _message(), _message()
    carrier.goes_on.clear()
    assert patient.publish([first], identity="x") == frozenset()
    carrier.goes_on.set()
    taken: set[UUID] = set()

    def all_taken() -> bool:
        left = [one for one in (first, second) if one.attempt_id not in taken]
        taken.update(patient.publish(left, identity="x"))
        return len(taken) == 2

    wait_until(all_taken, within_s=60)
    assert carrier.brought == [first.attempt_id, second.attempt_id], "each once"


def test_a_late_error_is_no_answer_to_a_later_question(
    patient: PatientExecutor, carrier: Carrier
) -> None:
    carrier.goes_on.clear()
    carrier.error = RuntimeError("broken")
    assert patient.publish([_message()], identity="x") == frozenset()
    carrier.goes_on.set()
    assert patient._asked is not None
    with pytest.raises(RuntimeError):
        patient._asked.result(20)
    wait_until(lambda: patient.queue_depth("five!") == 5, within_s=60)


def test_closing_waits_for_no_carrier_that_hangs(
    patient: PatientExecutor, carrier: Carrier
) -> None:
    carrier.goes_on.clear()
    patient.publish([_message()], identity="x")
    since = time.monotonic()
    patient.close()
    assert _took_s(since) < 10
    assert not carrier.is_closed
