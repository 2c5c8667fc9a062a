"""The vectors of retry delays: all are compared, and none differs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app import sql
from scheduler_app.rules import retry, run_outcome
from scheduler_app.rules.definition import TaskDefinition
from scheduler_app.rules.retry import RetryPolicy
from scheduler_app.rules.run_outcome import InstanceState
from scheduler_app.rules.states import RunState, TaskState
from scheduler_app.worker import report
from tests.vectors.cases import cases, parameters

if TYPE_CHECKING:
    from tests.vectors.cases import Case

DIFFERING: dict[str, str] = {}

COMPARED = cases("retry_delay")
NOW = datetime(2025, 6, 1, tzinfo=UTC)


def policy(given: dict[str, Any]) -> RetryPolicy:
    cap = given.get("global_cap_seconds", retry.GLOBAL_CAP_S)
    return RetryPolicy(
        retry_delay_s=given["retry_delay_seconds"],
        backoff=given["backoff_multiplier"],
        max_retry_delay_s=given.get("max_retry_delay_seconds"),
        global_cap_s=cap,
    )


def of_kind(when: str) -> list[Case]:
    return [one for one in COMPARED if one.when == when]


@parameters(of_kind("next_retry_delay"))
def test_the_delay_is_within_the_vectors_bounds(case: Case) -> None:
    given = case.given
    for key in ("run-1:t:-1", "run-2:t:-1", "run-1:t:7", "run-1:u:-1"):
        if (
            "delay_override_seconds" in given
        ):  # what decides the delay of one try is the task itself
            delay_s = asked(given)
        else:
            delay_s = retry.next_delay_s(policy(given), given["try_number"], key)
        assert case.wanted["min_seconds"] <= delay_s <= case.wanted["max_seconds"]


def asked(given: dict[str, Any]) -> float:
    """The delay where the task asked for one."""
    task = TaskDefinition(
        task_id="t",
        retries=9,
        retry_delay_s=given["retry_delay_seconds"],
        backoff=given["backoff_multiplier"],
        max_retry_delay_s=given["max_retry_delay_seconds"],
    )
    decided = after_failure(task, given["try_number"], 9, given["delay_override_seconds"])
    assert decided.delay_s is not None
    return decided.delay_s


def after_failure(
    task: TaskDefinition | None, try_number: int, max_tries: int, asked_s: float | None = None
) -> retry.RetryDecision:
    """What follows, as the worker and the scheduler ask for it."""
    _, decided = report.after_failure(
        task,
        retry.Failure(names=("builtins.OSError",), retry_after_s=asked_s),
        try_number=try_number,
        max_tries=max_tries,
        budget_start=0,
        jitter_key="run-1:t:-1",
    )
    return decided


@parameters(of_kind("is_eligible_to_retry"))
def test_another_try_may_follow_as_the_vector_says(case: Case) -> None:
    given = case.given
    assert given["state"] == "running"
    retries = given["retries_configured"]
    task = None if retries is None else TaskDefinition(task_id="t", retries=retries)
    decided = after_failure(task, given["try_number"], given["max_tries"])
    assert decided.retries is case.wanted["eligible"]


@parameters(of_kind("attempt_starts_running"))
def test_what_decided_the_delay_is_gone_once_the_next_try_is_dispatched(case: Case) -> None:
    """With rows: ``tests/integration/operations/test_set_next_retry.py``."""
    statement = sql.load("dispatch_attempts")
    assert case.wanted == {"delay_override_seconds": None, "retry_reason": None}
    assert "next_retry_at = NULL, next_retry_why = NULL" in statement


@parameters(of_kind("ready_for_retry"))
def test_the_gate_opens_as_the_vector_says(case: Case) -> None:
    delay_s = retry.next_delay_s(policy(case.given), 1, "run:t:-1")
    ended_at = NOW - timedelta(seconds=case.given["seconds_since_end"])
    decision = run_outcome.decide_run(
        upstream={"t": ()},
        trigger_rules={},
        instances=[InstanceState(task_id="t", map_index=-1, state=TaskState(case.given["state"]))],
    )
    waits_for_a_try = decision.state is RunState.RUNNING
    is_due = retry.is_due(ended_at + timedelta(seconds=delay_s), NOW)
    assert (waits_for_a_try and is_due) is case.wanted["ready"]


def delays(case: Case) -> list[float]:
    """One delay for each value that the case varies."""
    given = case.given
    vary, values = given.get("vary"), given.get("values", [None] * given.get("repeat", 1))
    found = []
    for value in values:
        at = {"run_id": "run-1", "map_index": -1, "try_number": given["try_number"], vary: value}
        key = f"{at['run_id']}:t:{at['map_index']}"
        found.append(retry.next_delay_s(policy(given), at["try_number"], key))
    return found


@parameters([one for one in of_kind("next_retry_delay_property") if "end" not in one.given])
def test_the_jitter_is_spread_as_the_vector_says(case: Case) -> None:
    found = delays(case)
    wanted = dict(case.wanted)
    if "distinct_values" in wanted:
        assert len(set(found)) == wanted.pop("distinct_values")
    if "min_distinct_values" in wanted:
        assert len(set(found)) >= wanted.pop("min_distinct_values")
        low, high = wanted.pop("range")
        assert low <= min(found) <= max(found) <= high
    if wanted.pop("relative_jitter_not_all_equal", False):
        bases = [30 * 2 ** (number - 1) for number in case.given["values"]]
        assert len({delay / base for delay, base in zip(found, bases, strict=True)}) > 1
    assert not wanted, "every expectation is looked at"


@parameters([one for one in of_kind("next_retry_delay_property") if one.given.get("end")])
def test_the_delay_counts_in_absolute_time_from_the_end(case: Case) -> None:
    (delay_s,) = delays(case)
    at = datetime.fromisoformat(case.given["end"]) + timedelta(seconds=delay_s)
    earliest, latest = (datetime.fromisoformat(case.wanted[k]) for k in ("earliest", "latest"))
    assert earliest <= at <= latest


@parameters(
    [one for one in of_kind("next_retry_delay_property") if one.given.get("end", ...) is None]
)
def test_without_a_known_end_the_delay_counts_from_now(case: Case) -> None:
    """No end has to be known: whoever records it counts the delay from that moment."""
    assert case.wanted == {"relative_to": "now"}
    for name in ("finish_attempt", "fail_killed_attempt"):
        assert "clock_timestamp() + make_interval(secs => %(retry_after_s)s" in sql.load(name)


def test_every_vector_is_compared() -> None:
    kinds = {
        "attempt_starts_running",
        "next_retry_delay",
        "is_eligible_to_retry",
        "ready_for_retry",
        "next_retry_delay_property",
    }
    assert {one.when for one in COMPARED} == kinds
    assert set(DIFFERING) <= {one.id for one in COMPARED}


def test_with_a_maximum_of_nothing_the_next_try_follows_at_once() -> None:
    at_once = RetryPolicy(retry_delay_s=30, backoff=2.0, max_retry_delay_s=0)
    assert retry.next_delay_s(at_once, 1, "k") == pytest.approx(0)
