"""``Variable`` in user code: where it works, and in tests without a stack."""

from __future__ import annotations

import pytest

from scheduler_app.authoring import (
    Context,
    NoSuchVariable,
    Variable,
    VariablesOutOfReach,
    flow,
    task,
)
from scheduler_app.rules.errors import InvalidInput


def test_outside_a_task_it_says_what_to_do() -> None:
    with pytest.raises(VariablesOutOfReach, match=r"Variable\.get\('a'\) works inside a running"):
        Variable.get("a")


def test_a_test_brings_its_own() -> None:
    with Variable.given({"a": 1, "text": '{"b": 2}'}) as kept:
        assert Variable.get("a") == 1
        assert Variable.get("text", deserialize_json=True) == {"b": 2}
        assert Variable.increment("a", 2) == 3
        assert Variable.increment("n", start=10) == 11
        Variable.set("list", [1, (2, 3)])
        assert Variable.get("list") == [1, (2, 3)]
        assert Variable.delete("list") is True
        assert Variable.delete("list") is False
    assert kept == {"a": 3, "text": '{"b": 2}', "n": 11}
    with pytest.raises(VariablesOutOfReach):
        Variable.get("a")


def test_what_is_not_there_is_a_key_error_or_the_default() -> None:
    with Variable.given():
        assert Variable.get("a", None) is None
        assert Variable.get("a", default=0) == 0
        assert Variable.get("a", default_var="x") == "x"
        with pytest.raises(KeyError, match="There is no variable 'a'"):
            Variable.get("a")
        with pytest.raises(NoSuchVariable):
            Variable.get("a")


def test_compare_and_set() -> None:
    with Variable.given({"a": 1}) as kept:
        assert not Variable.compare_and_set("a", True, 2)
        assert Variable.compare_and_set("a", 1, 2)
        assert not Variable.compare_and_set("a", Variable.ABSENT, 3)
        assert Variable.compare_and_set("b", Variable.ABSENT, 3)
        assert not Variable.compare_and_set("c", 0, 3)
    assert kept == {"a": 2, "b": 3}


def test_values_and_keys_are_checked_as_on_a_stack() -> None:
    with Variable.given({"word": "x"}):
        with pytest.raises(InvalidInput, match="cannot be stored"):
            Variable.set("a", object())
        with pytest.raises(InvalidInput, match="no key"):
            Variable.get(" a")
        with pytest.raises(InvalidInput, match="only numbers"):
            Variable.increment("word")


def test_a_run_of_a_test_has_the_variables_that_it_is_given() -> None:
    @task
    def count(ctx: Context) -> object:
        del ctx
        return Variable.increment("n", by=Variable.get("step"))

    @flow
    def counted() -> None:
        count()

    with Variable.given({"step": 5}) as kept:
        done = counted.test()
    assert (done.state, done.results["count"], kept["n"]) == ("success", 5, 5)
