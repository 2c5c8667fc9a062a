"""When a failed run is begun again: the cap, the cool-down, the causes and who keeps it out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules import run_retry
from scheduler_app.rules.run_retry import Cause, How, RunRetryPolicy, Verdict, cooldown_s, decide

NUMBERS = st.floats(min_value=0, max_value=1e9)


def cause(task_id: str = "a", *names: str) -> Cause:
    return Cause(task_id=task_id, names=frozenset({*names, How.FAILED.value}))


@given(st.integers(1, 50), st.integers(0, 60))
def test_there_are_never_more_run_attempts_than_the_policy_allows(cap: int, count: int) -> None:
    decision = decide(
        RunRetryPolicy(max_attempts=cap), retry_count=count, barred="", causes=[cause()]
    )
    assert (decision.verdict is Verdict.RETRY) == (count + 1 < cap)
    assert (decision.verdict is Verdict.EXHAUSTED) == (count + 1 >= cap)


@given(
    cooldown=NUMBERS,
    backoff=st.floats(min_value=0, max_value=1000),
    greatest=st.none() | NUMBERS,
    position=st.integers(1, 100_000),
)
def test_the_cooldown_obeys_both_caps_at_every_position(
    cooldown: float, backoff: float, greatest: float | None, position: int
) -> None:
    policy = RunRetryPolicy(
        max_attempts=2, cooldown_s=cooldown, backoff=backoff, max_cooldown_s=greatest
    )
    found = cooldown_s(policy, position)
    assert 0 <= found <= run_retry.COOLDOWN_CAP_S
    assert greatest is None or found <= greatest


def test_the_cooldown_grows_from_go_to_go() -> None:
    policy = RunRetryPolicy(max_attempts=9, cooldown_s=60, backoff=2, max_cooldown_s=300)
    assert [cooldown_s(policy, n) for n in (1, 2, 3, 4, 5)] == [60, 120, 240, 300, 300]


def test_every_task_that_failed_must_match() -> None:
    policy = RunRetryPolicy(max_attempts=2, on=("OSError", "lost"))
    both = [cause("a", "OSError"), Cause(task_id="b", names=frozenset({"lost"}))]
    assert decide(policy, retry_count=0, barred="", causes=both).verdict is Verdict.RETRY
    other = decide(policy, retry_count=0, barred="", causes=[*both, cause("c", "KeyError")])
    assert other.verdict is Verdict.NOT
    assert other.reason == "Not retried: c failed otherwise than its policy retries on."


def test_a_run_that_failed_without_a_failed_task_matches_no_exception() -> None:
    policy = RunRetryPolicy(max_attempts=2, on=("OSError",))
    decision = decide(policy, retry_count=0, barred="", causes=[])
    assert decision.reason == "Not retried: the run failed otherwise than its policy retries on."


def test_a_person_keeps_the_policy_out() -> None:
    policy = RunRetryPolicy(max_attempts=9)
    decision = decide(policy, retry_count=0, barred="ana terminated it", causes=[cause()])
    assert (decision.verdict, decision.reason) == (
        Verdict.NOT,
        "Not retried: ana terminated it",
    )


@pytest.mark.parametrize(
    ("error", "bases", "on"),
    [
        ("requests.exceptions.Timeout", ["OSError"], "OSError"),
        ("requests.exceptions.Timeout", [], "requests.exceptions.Timeout"),
        ("requests.exceptions.Timeout", [], "Timeout"),
        ("", [], "failed"),
    ],
)
def test_an_exception_is_known_by_its_names_and_by_what_it_is_derived_from(
    error: str, bases: list[str], on: str
) -> None:
    assert on in run_retry.names_of(error=error, bases=bases, how=How.FAILED)
    assert "KeyError" not in run_retry.names_of(error=error, bases=bases, how=How.FAILED)


def test_a_stored_policy_comes_back_and_unknown_keys_are_ignored() -> None:
    raw = {"max_attempts": 3, "on": ["OSError"], "colour": "blue"}
    assert run_retry.policy_from(raw) == RunRetryPolicy(max_attempts=3, on=("OSError",))


def test_a_sentence_names_few_tasks() -> None:
    decision = decide(
        RunRetryPolicy(max_attempts=2),
        retry_count=0,
        barred="",
        causes=[cause(f"task_{n}" + "x" * 200) for n in range(9)],
    )
    assert "and 6 more" in decision.reason
    assert len(decision.reason) <= 400
