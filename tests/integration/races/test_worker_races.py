"""Claims, reports, losses and holds of one attempt at the same time: exactly one of them wins."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.rules.definition import TaskDefinition
from scheduler_app.rules.states import TaskState
from scheduler_app.transitions.attempt import Claim, claim, fail_killed, hand_back, lose
from scheduler_app.worker import report
from tests.together import together

if TYPE_CHECKING:
    import psycopg

    from scheduler_app.transitions.attempt import Message
    from tests.workshop import Workshop

SOURCE = """
from scheduler_app.authoring import flow, task

@task
def t():
    return 1

@flow
def f():
    t()
"""
ROUNDS = 12
Act = Callable[["psycopg.Connection[Any]"], Any]


def _claim(workshop: Workshop, message: Message, nonce: uuid.UUID) -> Act:
    def act(connection: psycopg.Connection[Any]) -> Claim | None:
        return claim(
            connection,
            ti_id=message.ti_id,
            attempt_id=message.attempt_id,
            token=message.lease_token,
            fence=message.fence,
            nonce=nonce,
            worker_job_id=workshop.station.job_id,
            hostname="host-1",
            pid=1,
        )

    return act


def _report(workshop: Workshop, claimed: Claim, message: Message, nonce: uuid.UUID) -> Act:
    made = report.success(
        claimed,
        attempt_id=str(message.attempt_id),
        nonce=str(nonce),
        task=TaskDefinition(task_id="t"),
        result=1,
    )
    return lambda connection: report.send(
        connection, made, source="worker: test", job_id=workshop.station.job_id
    )


def _somewhat_later(act: Act) -> Act:
    """Spread over the milliseconds that a statement takes, so that each order comes up."""

    def later(connection: psycopg.Connection[Any]) -> Any:
        time.sleep(random.uniform(0, 0.002))
        return act(connection)

    return later


def test_of_twelve_deliveries_at_once_exactly_one_claims(workshop: Workshop) -> None:
    message = workshop.issue_one(SOURCE)
    nonces = [uuid.uuid4() for _ in range(12)]
    claims = together([_claim(workshop, message, nonce) for nonce in nonces])
    (won,) = [nonce for nonce, found in zip(nonces, claims, strict=True) if found is not None]
    attempt, ti = workshop.attempt(message), workshop.ti(message)
    assert (attempt.nonce, ti.claim_nonce) == (won, won)
    assert (attempt.state, ti.state) == ("running", "running")


def test_twelve_deliveries_to_children_run_the_task_once_and_tell_eleven_refusals(
    workshop: Workshop, tmp_path: Any
) -> None:
    ran = tmp_path / "ran"
    source = SOURCE.replace("return 1", f"open({str(ran)!r}, 'a').write('x')")
    message = workshop.issue_one(source)
    children = [workshop.start(message) for _ in range(12)]
    outcomes = [child.outcome().what for child in children]
    assert sorted(outcomes) == ["refused"] * 11 + ["reported"]
    assert ran.read_text() == "x"
    assert {e.verdict_code for e in workshop.events(message)} == {"duplicate_delivery"}
    assert len(workshop.events(message)) == 11


def test_a_claim_repeated_with_its_nonce_passes_and_changes_nothing(workshop: Workshop) -> None:
    message = workshop.issue_one(SOURCE)
    nonce = uuid.uuid4()
    claims = together([_claim(workshop, message, nonce)] * 3)
    assert all(found is not None for found in claims)
    started_at = workshop.attempt(message).started_at
    assert _claim(workshop, message, nonce)(workshop.connection) is not None
    assert workshop.attempt(message).started_at == started_at


def _lose(message: Message) -> Act:
    return lambda connection: lose(
        connection, attempt_ids=[message.attempt_id], dead_after_s=0.0, budget=3, source="test"
    )


def _hand_back(workshop: Workshop, message: Message) -> Act:
    return lambda connection: hand_back(
        connection,
        attempt_id=message.attempt_id,
        worker_job_id=workshop.station.job_id,
        reason="test",
    )


def _fail_killed(message: Message) -> Act:
    return lambda connection: fail_killed(
        connection,
        attempt_id=message.attempt_id,
        state=TaskState.FAILED,
        is_open=False,
        retry_after_s=None,
        reason="test",
    )


@pytest.mark.parametrize("rival", ["lose", "hand_back", "fail_killed"])
def test_a_report_against_a_decision_that_it_is_gone_exactly_one_wins(
    workshop: Workshop, rival: str
) -> None:
    """Whoever loses changes nothing; the attempt and its task instance agree."""
    wins: set[str] = set()
    for _ in range(ROUNDS):
        message = workshop.issue_one(SOURCE)
        nonce = uuid.uuid4()
        claimed = _claim(workshop, message, nonce)(workshop.connection)
        acts = {
            "lose": _lose(message),
            "hand_back": _hand_back(workshop, message),
            "fail_killed": _fail_killed(message),
        }
        accepted, decided = together(
            [
                _somewhat_later(_report(workshop, claimed, message, nonce)),
                _somewhat_later(acts[rival]),
            ]
        )
        attempt, ti = workshop.attempt(message), workshop.ti(message)
        late = [e for e in workshop.events(message) if e.kind == "late_report"]
        if accepted is not None:
            wins.add("report")
            assert not decided
            assert (attempt.outcome, attempt.is_accepted, ti.state) == ("success", True, "success")
            assert late == []
        else:
            wins.add("rival")
            assert decided or rival == "lose"  # lose skips a locked row and comes again
            assert not attempt.is_accepted
            assert attempt.outcome in ("lost", "terminated")
            assert ti.state == ("failed" if rival == "fail_killed" else "scheduled")
            assert len(late) == 1
    assert wins, "no round was played"


def test_a_claim_against_a_hold_never_runs_a_held_task(workshop: Workshop) -> None:
    """Freeze marks the task instance; a claim that comes after it finds the mark."""
    for round_number in range(ROUNDS):
        message = workshop.issue_one(SOURCE)
        hold_id = round_number + 1

        def hold(
            connection: psycopg.Connection[Any], ti_id: int = message.ti_id, by: int = hold_id
        ) -> bool:
            cursor = connection.execute(
                "UPDATE task_instance SET held_by = %s WHERE id = %s AND state = 'queued'",
                [by, ti_id],
            )
            return cursor.rowcount == 1

        found, held = together(
            [
                _somewhat_later(_claim(workshop, message, uuid.uuid4())),
                _somewhat_later(hold),
            ]
        )
        ti, attempt = workshop.ti(message), workshop.attempt(message)
        assert (found is None) == held
        if held:
            assert (ti.state, ti.held_by, attempt.state) == ("queued", hold_id, "issued")
        else:
            assert (ti.state, ti.held_by, attempt.state) == ("running", None, "running")


def test_reports_of_one_execution_at_once_are_accepted_once(workshop: Workshop) -> None:
    message = workshop.issue_one(SOURCE)
    nonce = uuid.uuid4()
    claimed = _claim(workshop, message, nonce)(workshop.connection)
    answers = together([_report(workshop, claimed, message, nonce)] * 6)
    assert answers == [message.run_id] * 6  # each is told that it was accepted
    assert workshop.events(message) == []
    assert workshop.attempt(message).is_accepted
