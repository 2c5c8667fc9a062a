"""Keys and numbers of variables, and the texts that would give a secret away."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from scheduler_app.rules import variables
from scheduler_app.rules.errors import InvalidInput


@pytest.mark.parametrize(
    "key", ["a", "attempts__f__manual__2026-01-31T00:00:00+00:00", "team/db", "é"]
)
def test_these_are_keys(key: str) -> None:
    assert variables.check_key(key) == key


@pytest.mark.parametrize(
    "key", ["", " a", "a ", "a\n", "a\x00", "/a", "a/", "x" * 251, 7, None, "new", "a/increment"]
)
def test_these_are_none(key: Any) -> None:
    with pytest.raises(InvalidInput):
        variables.check_key(key)


@pytest.mark.parametrize(
    ("value", "by", "expected"), [(0, 1, 1), (2, -5, -3), (1.5, 1, 2.5), (10, 0.5, 10.5)]
)
def test_numbers_are_counted(value: Any, by: Any, expected: Any) -> None:
    total = variables.incremented("n", value, by)
    assert (total, type(total)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("value", "by"),
    [("1", 1), (None, 1), (True, 1), (1, "1"), (1, True), (2**63 - 1, 1), (1.0, float("nan"))],
)
def test_what_is_no_number_is_not_counted(value: Any, by: Any) -> None:
    with pytest.raises(InvalidInput):
        variables.incremented("n", value, by)


@pytest.mark.parametrize(("one", "other"), [(1, True), (1, 1.0), ("1", 1), (None, 0), ([], ())])
def test_values_of_two_types_are_not_equal(one: Any, other: Any) -> None:
    assert not variables.are_equal(one, other)


def test_equal_values_are() -> None:
    assert variables.are_equal({"a": [1, None]}, {"a": [1, None]})


def test_a_secret_is_known_by_each_text_in_it() -> None:
    secret = {
        "user": "ana-maria",
        "password": "hunter2222",
        "port": 5432,
        "on": True,
        "pin": 123456,
    }
    assert variables.texts_of(secret) == {"ana-maria", "hunter2222", "123456"}


def test_a_secret_is_known_in_each_form() -> None:
    text = 'p"ä/ss\nword&more'
    forms = variables.forms_of(text)
    for form in (
        text.encode(),
        json.dumps(text).encode()[1:-1],
        repr(text).encode()[1:-1],
        base64.b64encode(text.encode()),
        b"p%22%C3%A4%2Fss%0Aword%26more",
    ):
        assert form in forms


def test_a_key_file_is_known_by_its_lines() -> None:
    forms = variables.forms_of("-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nab\n-----END KEY-----\n")
    assert b"MIIEvQIBADANBgkq" in forms
    assert b"ab" not in forms


def test_a_value_that_is_too_big_is_refused() -> None:
    with pytest.raises(InvalidInput, match="Variable 'big' cannot have this value"):
        variables.encode("big", "x" * variables.VALUE_BYTES_MAX)


def test_json_texts_are_read_on_request() -> None:
    assert variables.from_json_text("k", '{"a": 1}') == {"a": 1}
    assert variables.from_json_text("k", {"a": 1}) == {"a": 1}
    with pytest.raises(InvalidInput, match="no JSON"):
        variables.from_json_text("k", "{")
