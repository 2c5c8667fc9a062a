"""Retries as authors write them, as definitions, and the words that a task says itself."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from scheduler_app.authoring import FailNow, RetryAfter, flow, retry, task
from scheduler_app.rules.definition import RetryRule, TaskDefinition, from_dict, to_dict
from scheduler_app.rules.errors import InvalidInput


class Gone(Exception):
    pass


def defined(default_args: dict[str, Any] | None = None, **options: Any) -> TaskDefinition:
    """The definition of a task with these options, as its version has it."""

    @task(**options)
    def a() -> None: ...

    @flow(flow_id="f", default_args=default_args or {})
    def f() -> None:
        a()

    definition = f.definition()
    assert from_dict(to_dict(definition)) == definition, "what is stored is what was written"
    return definition.task("a")


def test_exceptions_are_stored_by_their_whole_names() -> None:
    made = defined(retry_on=(OSError, Gone), fail_on="requests.exceptions.Timeout")
    assert made.retry_on == ("builtins.OSError", f"{__name__}.Gone")
    assert made.fail_on == ("requests.exceptions.Timeout",)


def test_a_policy_says_only_what_differs_from_the_task() -> None:
    made = defined(
        retries=1,
        retry_policies={
            (OSError, "Gone"): retry(retries=5, retry_delay=timedelta(minutes=1), backoff=2),
            KeyError: retry(retries=0),
        },
    )
    assert made.retry_rules == (
        RetryRule(on=("builtins.OSError", "Gone"), retries=5, retry_delay_s=60.0, backoff=2.0),
        RetryRule(on=("builtins.KeyError",), retries=0),
    )


def test_default_args_carry_the_rules_and_a_task_takes_them_away() -> None:
    shared = {"retries": 2, "retry_on": (OSError,), "jitter": 0.1}
    assert defined(shared).retry_on == ("builtins.OSError",)
    assert defined(shared, retry_on=None).retry_on == ()
    assert (defined(shared).retries, defined(shared).jitter) == (2, 0.1)


def test_a_definition_without_rules_is_stored_as_it_always_was() -> None:
    @task
    def a() -> None: ...

    @flow(flow_id="f")
    def f() -> None:
        a()

    stored = to_dict(f.definition())["tasks"][0]
    assert not {"retry_on", "fail_on", "retry_rules", "jitter"} & set(stored)


def test_a_task_asks_for_a_retry_in_any_unit() -> None:
    assert RetryAfter(timedelta(minutes=2)).delay_s == 120.0
    assert str(RetryAfter(3, "busy")) == "asked for a retry after 3 s: busy"
    assert str(FailNow()) == "the task asked for no retry"


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), "soon", True, 10**30])
def test_a_delay_that_is_none_is_told_with_the_remedy(delay: Any) -> None:
    with pytest.raises(InvalidInput, match="give retry_after a"):
        RetryAfter(delay)


def test_no_except_exception_takes_the_words_for_its_own() -> None:
    assert not issubclass(RetryAfter, Exception)
    assert not issubclass(FailNow, Exception)
