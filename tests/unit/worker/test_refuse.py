"""Why a claim was refused: one code for each combination of facts."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest

from scheduler_app.worker.facts import Facts
from scheduler_app.worker.refuse import Delivery, refusal_code

ATTEMPT, OTHER = uuid.uuid4(), uuid.uuid4()
MINE, THEIRS = uuid.uuid4(), uuid.uuid4()
DELIVERY = Delivery(attempt_id=ATTEMPT, ti_id=1, fence=8, token=5, identity="db", nonce=MINE)
CLAIMABLE = Facts(
    attempt_id=ATTEMPT,
    state="issued",
    outcome=None,
    nonce=None,
    lease_token=5,
    fence=8,
    is_accepted=False,
    superseded_by=None,
    filter_code=None,
    stop_reason=None,
    worker_job_id=None,
    hostname=None,
    pid=None,
    ti_id=1,
    current_attempt_id=ATTEMPT,
    ti_state="queued",
    ti_try_number=1,
    next_method=None,
    held_by=None,
    infra_losses=0,
    run_id=2,
    run_state="running",
)
ENDED = {"state": "ended", "outcome": "success", "nonce": THEIRS, "ti_state": "success"}


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"lease_token": 6}, "fenced_stale_leader"),
        ({"fence": 9}, "fenced_stale_leader"),
        ({"current_attempt_id": OTHER, "ti_state": "running"}, "refused_superseded"),
        ({"filter_code": "superseded_by_clear"}, "refused_superseded"),
        ({"state": "running", "nonce": THEIRS, "ti_state": "running"}, "duplicate_delivery"),
        (ENDED, "duplicate_delivery"),
        ({**ENDED, "run_state": "success"}, "duplicate_delivery"),
        ({"run_state": "failed"}, "refused_run_finished"),
        ({"state": "ended", "outcome": "terminated"}, "refused_superseded"),
        ({"held_by": 3}, "refused_frozen"),
        ({"ti_state": "restarting"}, "refused_superseded"),
        ({"ti_state": "success"}, "refused_superseded"),
        ({}, None),
        # The answer to the claim itself was lost, and it had succeeded.
        ({"state": "running", "nonce": MINE, "ti_state": "running"}, None),
    ],
)
def test_each_fact_has_its_code(changed: dict[str, Any], code: str | None) -> None:
    assert refusal_code(DELIVERY, replace(CLAIMABLE, **changed)) == code


def test_an_attempt_that_was_never_issued_is_a_ghost() -> None:
    assert refusal_code(DELIVERY, None) == "ghost_no_record"
