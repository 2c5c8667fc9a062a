"""The checker of drills bites: each kind of damage in a history is found, and a clean one passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler_app.drills.checker import Counted, Finding, Shown, check
from scheduler_app.drills.ledger import END, START, Bank, Line, Write

RUN = ("drill_fan", "drill-1")


def _line(what: str, attempt_id: str, fence: int, **other: Any) -> Line:
    values: dict[str, Any] = {
        "what": what,
        "at": float(fence),
        "wall": 0.0,
        "attempt_id": attempt_id,
        "fence": fence,
        "pid": 100 + fence,
        "flow_id": RUN[0],
        "run_id": RUN[1],
        "task_id": "part",
        "map_index": -1,
        "try_number": 1,
        "resume_index": 0,
    }
    return Line(**{**values, **other})


def _attempt(attempt_id: str, fence: int, **other: Any) -> dict[str, Any]:
    values = {
        "id": attempt_id,
        "flow_id": RUN[0],
        "run_id": RUN[1],
        "task_id": "part",
        "map_index": -1,
        "ti": 7,
        "try_number": 1,
        "resume_index": 0,
        "shard": 3,
        "lease_token": 1,
        "fence": fence,
        "issued_at": f"2026-01-01T00:00:{fence:02}Z",
        "state": "ended",
        "outcome": "success",
        "outcome_reason": None,
        "is_accepted": True,
        "filter_code": None,
        "filter_reason": None,
    }
    return {**values, **other}


LOST = {
    "outcome": "lost",
    "outcome_reason": "its worker fell silent",
    "is_accepted": False,
    "filter_code": "lost_worker",
    "filter_reason": "dispatch 2 replaced it",
}
TARGET = "drill_fan/drill-1/part/-1"
# The first execution was lost after it had written, and the second was accepted.
LINES = (
    _line(START, "a", 1),
    _line(START, "b", 2),
    _line(END, "b", 2),
    _line(END, "a", 1),
)
SHOWN = Shown(
    runs=[{"id": 1, "flow_id": RUN[0], "run_id": RUN[1], "state": "success"}],
    task_instances=[
        {
            "id": 7,
            "flow_id": RUN[0],
            "run_id": RUN[1],
            "task_id": "part",
            "state": "success",
            "try_number": 1,
        }
    ],
    attempts=[_attempt("a", 1, **LOST), _attempt("b", 2, dispatch_no=2)],
    events=[
        {
            "id": 1,
            "attempt_id": "a",
            "kind": "late_report",
            "verdict": "ignored",
            "filter_code": "stale_superseded",
            "filter_reason": "another attempt is current",
        }
    ],
    lists={
        "attempts": Counted(shown=1, filtered=1, total=2, rows={"current": 1, "only": 1, "all": 2})
    },
)
BANK = Bank(
    written=(Write(target=TARGET, fence=2, attempt_id="b"),),
    refused=(Write(target=TARGET, fence=1, attempt_id="a"),),
    held=(Write(target=TARGET, fence=2, attempt_id="b"),),
)


def _broken(
    lines: tuple[Line, ...] = LINES, shown: Shown = SHOWN, bank: Bank = BANK, **other: Any
) -> dict[str, Finding]:
    findings = check(lines, shown, bank, **{"started": [RUN], **other})
    return {finding.what: finding for finding in findings if not finding.holds}


def _with(position: int, **values: Any) -> Shown:
    attempts = [*SHOWN.attempts]
    attempts[position] = {**attempts[position], **values}
    return replace(SHOWN, attempts=attempts)


def test_a_clean_history_holds() -> None:
    assert _broken() == {}


def test_a_hidden_execution_is_found_and_named() -> None:
    found = _broken(lines=(*LINES, _line(START, "unseen", 3, task_id="other")))
    assert list(found) == ["every execution that started has a row"]
    finding = found["every execution that started has a row"]
    assert (finding.expected, finding.seen) == ("0 wrong of 3", "1 wrong")
    assert "attempt unseen of drill_fan/drill-1/other try 1" in finding.named[0]


def test_a_double_acceptance_is_found() -> None:
    found = _broken(shown=_with(0, is_accepted=True, outcome="success"))
    assert "nothing is accepted twice" in found
    assert "2 results" in found["nothing is accepted twice"].named[0]


def test_a_lost_result_is_found() -> None:
    silent = replace(_with(0, outcome_reason=None), events=[])
    assert list(_broken(shown=silent)) == ["no result is lost"]
    unended = _with(1, outcome=None, state="running", is_accepted=False)
    assert "no result is lost" in _broken(shown=unended)


def test_a_task_that_succeeds_without_a_result_is_found() -> None:
    shown = replace(SHOWN, task_instances=[{**SHOWN.task_instances[0], "try_number": 2}])
    assert list(_broken(shown=shown)) == ["no result is lost"]


def test_an_accepted_result_without_an_execution_is_found() -> None:
    assert list(_broken(lines=LINES[:2])) == ["what was accepted was executed"]


@pytest.mark.parametrize(
    "now", [_with(1, is_accepted=False), _with(1, outcome="failed"), replace(SHOWN, attempts=[])]
)
def test_an_acceptance_that_was_undone_is_found(now: Shown) -> None:
    assert "no acceptance is undone" in _broken(shown=now, accepted_before={"b": "success"})


def test_a_second_start_of_one_attempt_is_found() -> None:
    found = _broken(lines=(*LINES, _line(START, "b", 2)))
    assert "no attempt starts twice" in found


def test_a_second_start_without_a_recorded_loss_is_found() -> None:
    found = _broken(shown=_with(0, outcome="failed"))
    assert list(found) == ["every second start follows a recorded loss"]


def test_a_decision_of_an_old_leader_is_found() -> None:
    assert list(_broken(shown=_with(0, lease_token=2))) == ["lease tokens never fall"]


def test_a_bank_that_took_an_old_fence_is_found() -> None:
    both = (*BANK.written, Write(target=TARGET, fence=1, attempt_id="a"))
    bank = replace(BANK, written=both, held=(both[1],))
    named = _broken(bank=bank)["the bank holds what was accepted"].named
    assert named == (
        f"{TARGET}: fence 1 wrote over 2",
        f"{TARGET} holds a, accepted is b",
    )


@pytest.mark.parametrize(
    "counted",
    [
        Counted(shown=1, filtered=1, total=3, rows={"current": 1, "only": 1, "all": 3}),
        Counted(shown=1, filtered=1, total=2, rows={"current": 1, "only": 0, "all": 2}),
    ],
)
def test_a_list_that_does_not_add_up_is_found(counted: Counted) -> None:
    assert list(_broken(shown=replace(SHOWN, lists={"attempts": counted}))) == [
        "shown + filtered = total"
    ]


def test_a_filtered_row_without_a_reason_is_found() -> None:
    assert "every filtered row says why" in _broken(shown=_with(0, filter_reason=""))


def test_an_event_without_a_verdict_is_found() -> None:
    shown = replace(SHOWN, events=[{**SHOWN.events[0], "verdict": "pending"}])
    assert list(_broken(shown=shown)) == ["every event is judged"]


@pytest.mark.parametrize("state", ["running", "failed", "queued"])
def test_a_run_that_is_stuck_or_failed_is_found(state: str) -> None:
    shown = replace(SHOWN, runs=[{**SHOWN.runs[0], "state": state}])
    assert _broken(shown=shown)["every run succeeds"].named == (
        f"run drill_fan/drill-1 is {state}",
    )


def test_a_run_that_vanished_is_found() -> None:
    assert list(_broken(started=[RUN, ("drill_fan", "drill-2")])) == ["every run succeeds"]


def test_a_finding_names_few_rows_and_counts_the_rest() -> None:
    many = tuple(_line(START, f"unseen-{n}", 10 + n, task_id=f"t{n}") for n in range(9))
    finding = _broken(lines=(*LINES, *many))["every execution that started has a row"]
    assert len(finding.named) == 6
    assert finding.named[-1] == "... and 4 more"
