from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules import retry
from scheduler_app.rules.definition import RetryRule, TaskDefinition
from scheduler_app.rules.retry import Failure, RetryDecision, RetryPolicy

NOW = datetime(2025, 6, 1, tzinfo=UTC)


def policy(**overrides: Any) -> RetryPolicy:
    values: dict[str, Any] = {
        "retry_delay_s": 30.0,
        "backoff": 2.0,
        "max_retry_delay_s": None,
    }
    return RetryPolicy(**values | overrides)


def decided(task: TaskDefinition, *names: str, try_number: int = 1, **about: Any) -> RetryDecision:
    """What follows the try, which failed with an exception of these classes."""
    budget: dict[str, Any] = {"max_tries": task.retries, "budget_start": 0} | {
        key: about.pop(key) for key in ("max_tries", "budget_start") if key in about
    }
    return retry.decide(
        task,
        Failure(names=names, **about),
        try_number=try_number,
        jitter_key="r:t:-1",
        **budget,
    )


def task(**options: Any) -> TaskDefinition:
    return TaskDefinition(**{"task_id": "t", "retries": 3, "retry_delay_s": 30.0, **options})


KEY_ERROR = ("builtins.KeyError", "builtins.LookupError", "builtins.Exception")
CONNECTION = ("builtins.ConnectionError", "builtins.OSError", "builtins.Exception")


def test_two_retries_make_three_tries() -> None:
    allowed = [decided(task(retries=2), try_number=number).retries for number in (1, 2, 3)]
    assert allowed == [True, True, False]


def test_a_definition_without_retries_ends_them_whatever_budget_is_left() -> None:
    assert not decided(task(retries=0), max_tries=2).retries
    assert decided(task(retries=1), max_tries=2).retries


def test_with_retry_on_other_exceptions_fail_at_once() -> None:
    picky = task(retry_on=("builtins.OSError",))
    assert decided(picky, *CONNECTION).retries, "a subclass, by its bases"
    refused = decided(picky, *KEY_ERROR)
    assert not refused.retries
    assert retry.told(refused.why or {}) == (
        "try 1 of 4 failed with KeyError: its retry_on leaves KeyError out, so no retry follows"
    )


def test_what_was_killed_is_no_exception_and_no_rule_is_about_it() -> None:
    assert decided(task(retry_on=("builtins.OSError",), fail_on=("builtins.Exception",))).retries


def test_the_nearest_class_that_is_named_decides() -> None:
    mixed = task(retry_on=("builtins.Exception",), fail_on=("builtins.OSError",))
    assert not decided(mixed, *CONNECTION).retries
    assert decided(mixed, *KEY_ERROR).retries
    turned = task(retry_on=("builtins.ConnectionError",), fail_on=("builtins.OSError",))
    assert decided(turned, *CONNECTION).retries


@pytest.mark.parametrize(
    ("wanted", "name", "meant"),
    [
        ("requests.exceptions.Timeout", "requests.exceptions.Timeout", True),
        ("Timeout", "requests.exceptions.Timeout", True),
        ("exceptions.Timeout", "requests.exceptions.Timeout", False),
        ("Timeout", "requests.exceptions.ConnectTimeout", False),
        ("builtins.OSError", "flow.OSError", False),
    ],
)
def test_a_class_is_known_by_its_whole_name_or_the_last_of_it(
    wanted: str, name: str, meant: bool
) -> None:
    assert retry.matches(wanted, name) is meant


def test_a_rule_has_a_number_and_delays_of_its_own() -> None:
    ruled = task(retries=1, retry_rules=(RetryRule(on=("OSError",), retries=5, retry_delay_s=2.0),))
    seen = decided(ruled, *CONNECTION, try_number=4)
    assert (seen.retries, seen.delay_s, seen.max_tries) == (True, 2.0, 5)
    assert retry.told(seen.why or {}) == (
        "try 4 of 6 failed with ConnectionError: retry in 2 s, by the rule for OSError"
    )
    assert not decided(ruled, *CONNECTION, try_number=6, max_tries=5).retries
    # The bound that the rule has raised is not for others.
    assert not decided(ruled, *KEY_ERROR, try_number=4, max_tries=5).retries
    assert decided(ruled, *KEY_ERROR, try_number=1, max_tries=5).retries


def test_a_rule_of_no_retries_fails_at_once() -> None:
    ruled = task(retry_rules=(RetryRule(on=("KeyError",), retries=0),))
    refused = decided(ruled, *KEY_ERROR)
    assert not refused.retries
    assert "has KeyError fail at once" in retry.told(refused.why or {})


def test_after_a_clear_tries_count_afresh_and_never_past_their_number() -> None:
    seen = decided(task(retries=2), *KEY_ERROR, try_number=5, max_tries=5, budget_start=3)
    assert seen.retries
    assert retry.told(seen.why or {}).startswith("try 2 of 3 failed with KeyError: retry in 30 s")
    last = decided(task(retries=2), *KEY_ERROR, try_number=6, max_tries=5, budget_start=3)
    assert retry.told(last.why or {}) == "try 3 of 3 failed with KeyError: no retry is left"


def test_a_task_says_when_and_its_own_maximum_holds() -> None:
    asked = decided(task(), retry_after_s=12.0, reason="rate limit")
    assert (asked.delay_s, retry.told(asked.why or {})) == (
        12.0,
        "try 1 of 4 failed: the task asked for a retry in 12 s (rate limit)",
    )
    cut = decided(task(max_retry_delay_s=10.0), retry_after_s=12.0)
    assert cut.delay_s == 10.0
    assert retry.told(cut.why or {}).endswith("cut to 10 s")
    assert not decided(task(retries=0), retry_after_s=12.0).retries, "there is no budget"
    # It has been asked for: what retry_on leaves out is no reason against it.
    assert decided(task(retry_on=("OSError",)), *KEY_ERROR, retry_after_s=1.0).retries


def test_a_task_that_wants_no_other_try_has_none() -> None:
    ended = decided(task(), is_final=True, reason="gone for good")
    assert not ended.retries
    assert retry.told(ended.why or {}) == (
        "try 1 of 4 failed: the task asked for no retry (gone for good)"
    )


def test_the_sentence_names_what_the_delay_is_made_of() -> None:
    growing = task(backoff=2.0)
    why = decided(growing, *CONNECTION, try_number=2).why or {}
    assert (why["delay_s"] - why["jitter_s"], why["backoff"]) == (60.0, 2.0)
    assert retry.told({**why, "jitter_s": 3.0, "delay_s": 63.0}) == (
        "try 2 of 4 failed with ConnectionError: retry in 60 s, backoff 2.0, jitter +3 s"
    )


def test_a_fixed_delay_takes_the_jitter_that_is_asked_for() -> None:
    loose = policy(backoff=0.0, jitter=0.5)
    found = {retry.next_delay_s(loose, 1, f"r:t:{index}") for index in range(100)}
    assert len(found) > 90
    assert all(30.0 <= delay < 45.0 for delay in found)
    assert retry.next_delay_s(policy(jitter=0.0), 3, "k") == 120.0, "none, where it grows"


@pytest.mark.parametrize("position", [10**6, 10**30])
def test_no_try_overflows(position: int) -> None:
    growing = task(retries=10**6, backoff=1.5)
    found = decided(growing, *KEY_ERROR, try_number=position, max_tries=10**31)
    assert found.delay_s == retry.GLOBAL_CAP_S


def test_every_answer_can_be_told() -> None:
    """Also one that a newer rule may store."""
    assert retry.told({}) == "it waits"
    edited = {"actor": "ana", "at": "12:00", "reason": "hurry"}
    assert retry.told({"position": 1, "of": 2, "delay_s": 7200.0, "edited": edited}) == (
        "try 1 of 2 failed: retry in 2 h; ana moved it at 12:00: hurry"
    )


def test_a_delay_is_over_at_its_instant_and_not_before() -> None:
    assert retry.is_due(NOW, NOW)
    assert not retry.is_due(NOW + timedelta(microseconds=1), NOW)
    assert retry.is_due(None, NOW), "nothing to wait for"


def test_mapped_siblings_that_failed_together_come_back_spread() -> None:
    found = {retry.next_delay_s(policy(), 5, f"run:t:{index}") for index in range(100)}
    assert len(found) > 50


def test_a_fixed_delay_is_taken_as_it_is_in_every_position() -> None:
    found = {retry.next_delay_s(policy(backoff=0.0), n, f"k{n}") for n in range(1, 50)}
    assert found == {30.0}


def test_a_position_before_the_first_counts_as_the_first() -> None:
    assert retry.next_delay_s(policy(retry_delay_s=1), -5, "k") == pytest.approx(1)


policies = st.builds(
    RetryPolicy,
    retry_delay_s=st.floats(0, 1e9),
    backoff=st.floats(0, 1000),
    max_retry_delay_s=st.none() | st.floats(0, 1e9),
    jitter=st.none() | st.floats(0, 1),
    global_cap_s=st.floats(0, 1e6),
)


@given(policies, st.integers(1, 10**30), st.text(max_size=20))
def test_no_position_passes_a_cap_or_overflows(
    given_policy: RetryPolicy, position: int, key: str
) -> None:
    delay_s = retry.next_delay_s(given_policy, position, key)
    assert 0 <= delay_s <= given_policy.global_cap_s
    if given_policy.max_retry_delay_s is not None:
        assert delay_s <= given_policy.max_retry_delay_s


@given(policies, st.integers(1, 1000), st.text(max_size=20))
def test_every_process_computes_the_same_delay(
    given_policy: RetryPolicy, position: int, key: str
) -> None:
    first = retry.next_delay_s(given_policy, position, key)
    assert retry.next_delay_s(given_policy, position, key) == first


@given(st.floats(0.001, 3600), st.floats(1.01, 10), st.integers(1, 30), st.text(max_size=20))
def test_a_growing_delay_is_never_less_than_its_base_nor_twice_as_long(
    delay_s: float, backoff: float, position: int, key: str
) -> None:
    without_end = policy(retry_delay_s=delay_s, backoff=backoff, global_cap_s=1e300)
    base_s = delay_s * backoff ** (position - 1)
    found = retry.next_delay_s(without_end, position, key)
    assert base_s <= found * (1 + 1e-9)
    assert found <= max(1, 2 * (base_s + 1))
