from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules import retry
from scheduler_app.rules.retry import RetryPolicy

NOW = datetime(2025, 6, 1, tzinfo=UTC)


def policy(**overrides: Any) -> RetryPolicy:
    values: dict[str, Any] = {
        "retries": 3,
        "retry_delay_s": 30.0,
        "backoff": 2.0,
        "max_retry_delay_s": None,
    }
    return RetryPolicy(**values | overrides)


def test_two_retries_make_three_tries() -> None:
    allowed = [retry.may_retry(try_number=number, max_tries=2) for number in (1, 2, 3)]
    assert allowed == [True, True, False]


def test_a_definition_without_retries_ends_them_whatever_budget_is_left() -> None:
    assert not retry.may_retry(try_number=1, max_tries=2, retries=0)
    assert retry.may_retry(try_number=1, max_tries=2, retries=1)


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
    retries=st.integers(0, 10),
    retry_delay_s=st.floats(0, 1e9),
    backoff=st.floats(0, 1000),
    max_retry_delay_s=st.none() | st.floats(0, 1e9),
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
