"""What a new leader makes of a live attempt, from facts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from scheduler_app.rules import take_over
from scheduler_app.rules.take_over import Decision, Found

ASKED = datetime(2026, 1, 1, 2, 11, tzinfo=UTC)


def facts(**changed: Any) -> take_over.Facts:
    values: dict[str, Any] = {
        "found": Found.RUNNING,
        "state": "running",
        "outcome": None,
        "is_accepted": False,
        "is_published": True,
        "place": "w-9:2201",
        "is_worker_alive": True,
        "asked_at": ASKED,
        "answered_at": None,
        "has_it": None,
        "heartbeat_at": ASKED - timedelta(seconds=3),
        **changed,
    }
    return take_over.Facts(**values)


ANSWERED = {"answered_at": ASKED + timedelta(seconds=2)}


@pytest.mark.parametrize(
    ("found", "decision", "words"),
    [
        (facts(), Decision.OPEN, "was asked at 02:11:00 UTC and has not answered"),
        (
            facts(has_it=True, **ANSWERED),
            Decision.ADOPTED,
            "answered at 02:11:02 UTC that w-9:2201 runs it",
        ),
        (facts(has_it=False, **ANSWERED), Decision.OPEN, "that it does not run it"),
        (facts(is_worker_alive=False), Decision.OPEN, "cannot be asked"),
        (facts(heartbeat_at=ASKED + timedelta(seconds=1)), Decision.ADOPTED, "beat for it"),
        (
            facts(state="ended", outcome="lost", outcome_reason="no heartbeat since 02:10"),
            Decision.LOST,
            "no heartbeat since 02:10",
        ),
        (
            facts(state="ended", outcome="success", is_accepted=True),
            Decision.RECONCILED,
            "own report ended it as success",
        ),
        (
            facts(state="ended", outcome="terminated", outcome_reason="killed"),
            Decision.RECONCILED,
            "without its report: killed",
        ),
        (
            facts(found=Found.UNPUBLISHED, state="issued", is_published=False),
            Decision.OPEN,
            "published next",
        ),
        (facts(found=Found.UNPUBLISHED, state="issued"), Decision.PUBLISHED, "published it"),
        (facts(found=Found.PUBLISHED, state="issued"), Decision.WAITING, "with the broker"),
        (
            facts(found=Found.UNPUBLISHED, has_it=False, **ANSWERED),
            Decision.PUBLISHED,
            "claimed it while",
        ),
    ],
)
def test_each_find_has_its_decision_and_says_why(
    found: take_over.Facts, decision: Decision, words: str
) -> None:
    made, reason = take_over.decide(found)
    assert made is decision
    assert words in reason


def test_an_answer_that_it_does_not_run_it_outweighs_no_heartbeat_of_before() -> None:
    """Only a heartbeat after the question counts; one of before says nothing."""
    made, _ = take_over.decide(facts(has_it=False, heartbeat_at=ASKED, **ANSWERED))
    assert made is Decision.OPEN
