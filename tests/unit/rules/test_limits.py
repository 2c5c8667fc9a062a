from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules import limits

VALUES: dict[str, Any] = {
    "params": {"customer": "acme", "n": 3, "deep": {"a": [1, {"b": "x"}]}, "off": None, "on": True},
    "flow_id": "f",
    "map_label": "eu",
    "map_index": -1,
}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("plain", "plain"),
        ("customer:{params[customer]}", "customer:acme"),
        ("{flow_id}/{map_label}", "f/eu"),
        ("n:{params[n]}:{params[on]}:{map_index}", "n:3:true:-1"),
        ("x:{params[deep][a][1][b]}", "x:x"),
        ("x:{params[deep]}", 'x:{"a":[1,{"b":"x"}]}'),
        ("x:{params[off]}:{params[gone]}:{conf[no][way]}", "x:::"),
    ],
)
def test_names_are_filled_in(text: str, key: str) -> None:
    assert limits.fault(text) is None
    assert limits.key(text, VALUES) == key


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "is empty"),
        (None, "no text"),
        ("a" * 251, "too long"),
        (" a", "blanks"),
        ("a\n", "blanks"),
        ("a*", "any ending"),
        ("{{ params.customer }}", "double braces"),
        ("{param[customer]}", "no 'param'"),
        ("{flow_id[x]}", "has no keys"),
        ("{params}", "as a whole"),
        ("{params.customer}", "do not close"),
        ("{params[a}", "do not close"),
    ],
)
def test_what_is_no_key_is_told(text: object, wrong: str) -> None:
    found = limits.fault(text)
    assert found is not None
    assert wrong in found[0]
    assert found[1]


@given(st.recursive(st.none() | st.text() | st.integers() | st.booleans(), st.lists))
def test_whatever_the_value_the_key_fits_and_is_the_same_again(value: Any) -> None:
    values = {"params": {"a": value}}
    key = limits.key("k:{params[a]}", values)
    assert key.startswith("k:")
    assert len(key) <= limits.KEY_CHARACTERS_MAX
    assert key.isprintable()
    assert limits.key("k:{params[a]}", values) == key


def test_what_is_cut_off_still_tells_keys_apart() -> None:
    long = ["x" * 300 + end for end in "ab"]
    keys = [limits.key("{params[a]}", {"params": {"a": one}}) for one in long]
    assert keys[0] != keys[1]


def test_the_longest_rule_that_fits_holds_before_the_tasks_own_number() -> None:
    rules = {"customer:*": 5, "customer:a*": 6, "customer:acme": 1, "other": 9}
    assert limits.slots_of("customer:acme", 2, rules) == 1
    assert limits.slots_of("customer:ajax", 2, rules) == 6
    assert limits.slots_of("customer:zeta", 2, rules) == 5
    assert limits.slots_of("region:eu", 2, rules) == 2
