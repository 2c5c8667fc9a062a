"""Declared parameters: what fits, what does not and how that is told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules import params
from scheduler_app.rules.errors import InvalidInput

VALUES = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.parametrize(
    ("schema", "good", "bad", "told"),
    [
        ({"type": "integer"}, 3, "3", "is not of type 'integer'"),
        ({"type": "integer"}, 3, True, "is not of type 'integer'"),
        ({"type": ["string", "null"]}, None, 1, "is not of type"),
        ({"minimum": 1, "maximum": 9}, 9, 10, "greater than the maximum of 9"),
        ({"enum": ["eu", "us"]}, "eu", "cn", "is not one of"),
        ({"type": "string", "pattern": "^[a-z]+$"}, "ab", "a1", "does not match"),
        ({"minLength": 2}, "ab", "a", "too short"),
        ({"format": "date"}, "2026-02-28", "2026-02-30", "is not a 'date'"),
        ({"format": "date-time"}, "2026-02-28T01:00:00Z", "2026-02-28T01:00:00", "date-time"),
        ({"format": "date-time"}, "2026-02-28T01:00:00+01:00", "yesterday", "date-time"),
        ({"format": "time"}, "01:00", "25:00", "is not a 'time'"),
        ({"format": "timezone"}, "Europe/Paris", "Europe/Nowhere", "is not a 'timezone'"),
        ({"format": "uuid"}, "6f1e0c3a-7c52-4b6f-8a62-0d9f0d6a1b11", "6f1e", "is not a 'uuid'"),
        ({"items": {"type": "integer"}}, [1, 2], [1, "b"], "[1]: 'b' is not of type"),
        (
            {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"a": 1},
            {"b": 1},
            "'a' is a required property",
        ),
    ],
)
def test_what_fits_and_what_does_not(schema: Any, good: Any, bad: Any, told: str) -> None:
    assert params.schema_fault(schema) is None
    assert params.fault_of(schema, good) is None
    assert told in (params.fault_of(schema, bad) or "")


def test_every_fault_is_told_at_once_with_its_parameter() -> None:
    schemas: dict[str, Any] = {"day": {"format": "date"}, "n": {"minimum": 1}, "must": {}}
    params.check(schemas, {"day": "2026-01-01", "n": 1, "must": None, "else": object})
    with pytest.raises(InvalidInput) as caught:
        params.check(schemas, {"day": "soon", "n": 0})
    assert str(caught.value) == (
        "Parameters are not as the flow declares them: day: 'soon' is not a 'date'; n: 0 is less than"
        " the minimum of 1; must: it is required, and not given."
    )
    assert caught.value.extra["field"] == "conf"


def test_a_schema_does_not_reach_outside_itself() -> None:
    fault = params.schema_fault({"$ref": "http://127.0.0.1:1/schema.json"})
    assert "refers to another schema" in (fault or "")


def test_no_value_is_too_deep_to_be_refused() -> None:
    value: Any = []
    for _ in range(10_000):
        value = [value]
    assert params.fault_of({"items": {}}, value) == "it is nested deeper than 50 levels"


@given(VALUES)
def test_without_a_rule_every_value_fits(value: Any) -> None:
    assert params.fault_of({}, value) is None


def test_what_a_parameter_accepts_is_told_in_words() -> None:
    schemas: dict[str, Any] = {
        "n": {"type": "integer", "minimum": 1, "title": "Rows", "description": "of a page"},
        "where": {"enum": ["eu", "us"]},
    }
    n, loose, where = params.told(schemas, {"n": 10, "loose": {"a": 1}})
    assert (n.accepts, n.default, n.description) == ("integer, at least 1", "10", "Rows: of a page")
    assert (loose.accepts, loose.default) == ("any value", '{"a": 1}')
    assert (where.accepts, where.default) == ('one of "eu", "us"', None)
