"""Values that tasks hand to each other survive the JSON column, and bad ones say why not."""

from __future__ import annotations

import enum
import json
import math
from collections import namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules import values
from scheduler_app.rules.errors import InvalidInput

OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=())),
    st.binary(max_size=40),
    # fold is not kept: an aware time travels with its offset, which says as much
    st.datetimes().map(lambda value: value.replace(fold=0)),
    st.datetimes(timezones=OFFSETS).map(lambda value: value.replace(fold=0)),
    st.dates(),
    st.times().map(lambda value: value.replace(fold=0)),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.uuids(),
)
HASHABLE = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple), st.frozensets(inner, max_size=3)
    ),
    max_leaves=4,
)
VALUES = st.recursive(
    HASHABLE,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(HASHABLE, inner, max_size=4),
        st.sets(HASHABLE, max_size=4),
    ),
    max_leaves=12,
)


def through_a_json_column(encoded: Any) -> Any:
    """What a column gives back that keeps numbers as decimals and refuses NUL and surrogates."""
    text = json.dumps(encoded, allow_nan=False)
    assert "\\u0000" not in text
    assert "\\ud8" not in text.lower() or json.dumps(encoded, ensure_ascii=False).encode()
    json.dumps(encoded, ensure_ascii=False).encode()  # raises for a lone surrogate
    return json.loads(text, parse_float=lambda number: float(format(Decimal(number), "f")))


def shape(value: Any) -> str:
    """The value with all types, in one order, as text."""
    if isinstance(value, (set, frozenset)):
        inner = sorted(map(shape, value))
    elif isinstance(value, (list, tuple)):
        inner = list(map(shape, value))
    elif isinstance(value, dict):
        inner = [f"{shape(key)}={shape(item)}" for key, item in value.items()]
    else:
        inner = [repr(value)]
    return f"{type(value).__name__}<{', '.join(inner)}>"


def same(left: Any, right: Any) -> bool:
    """Equal in value and in type, at every depth."""
    return shape(left) == shape(right)


@given(VALUES)
def test_every_supported_value_comes_back_the_same_through_a_json_column(value: object) -> None:
    assert same(values.decode(through_a_json_column(values.encode(value))), value)


@pytest.mark.parametrize(
    "value",
    [
        float("inf"),
        -0.0,
        1e300,
        1e-9,
        {"__daylight__": "datetime", "value": "no time"},
        {1: "a", "1": "b", (1, 2): {"x"}},
        "\x00",
        "\ud800 alone",
        {"\x00": 1},
        Decimal("1.50"),
        (1, [2, (3,)]),
    ],
)
def test_values_that_a_json_column_would_change_come_back_the_same(value: object) -> None:
    assert same(values.decode(through_a_json_column(values.encode(value))), value)


def test_not_a_number_comes_back_as_not_a_number() -> None:
    assert math.isnan(values.decode(through_a_json_column(values.encode(math.nan))))


def test_plain_json_is_stored_as_it_is() -> None:
    plain = {"rows": 10, "names": ["a", "b"], "share": 0.5, "ok": True, "none": None, "ü": "é"}
    assert values.encode(plain) == plain


def test_a_subclass_comes_back_as_its_base_type() -> None:
    class Colour(enum.StrEnum):
        RED = "red"

    class Number(enum.IntEnum):
        ONE = 1

    point = namedtuple("point", "x y")
    decoded = values.decode(values.encode([Colour.RED, point(1, 2), Number.ONE]))
    assert decoded == ["red", (1, 2), 1]
    assert [type(item) for item in decoded] == [str, tuple, int]


@dataclass
class Row:
    x: int = 1


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (object(), ["result is of type object", "datetime"]),
        ({"rows": [1, object()]}, ["result['rows'][1]", "object"]),
        ([Path("/tmp/x")], ["result[0]", "str(it)"]),
        (Row(), ["Row", "dataclasses.asdict"]),
        ((n for n in range(2)), ["generator", "list(it)"]),
        ({"a": 1j}, ["complex"]),
        pytest.param(1 << 20_000, ["whole number of 20,001 bits", "10,000"], id="long number"),
    ],
)
def test_a_result_that_cannot_be_stored_names_type_place_and_remedy(
    value: object, told: list[str]
) -> None:
    with pytest.raises(InvalidInput) as caught:
        values.encode_result(value, 1000)
    for part in told:
        assert part in str(caught.value)


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidInput, match="contains itself"):
        values.encode(loop)


def test_a_result_over_the_cap_names_size_limit_and_remedy() -> None:
    with pytest.raises(InvalidInput) as caught:
        values.encode_result("é" * 600, 1000)
    assert "1,202 bytes" in str(caught.value)
    assert "1,000 bytes" in str(caught.value)
    assert "return a reference" in str(caught.value)
    assert caught.value.extra == {"size": 1202, "limit": 1000}
    assert values.encode_result("é" * 499, 1000) == "é" * 499


@pytest.mark.parametrize(
    "raw",
    [
        {"__daylight__": "from the future", "value": 1},
        {"__daylight__": "datetime", "value": 7},
        {"__daylight__": "decimal", "value": "x"},
        {"__daylight__": "bytes", "value": "*"},
        {"__daylight__": "tuple"},
        {"__daylight__": []},
    ],
)
def test_a_stored_value_that_is_unknown_or_damaged_is_refused(raw: object) -> None:
    with pytest.raises(InvalidInput, match="stored value"):
        values.decode(raw)


def test_the_written_form_of_each_type_stays_as_it_is() -> None:
    """Results outlive versions of the product: this form can be added to, never changed."""
    value = [
        datetime(2024, 1, 2, 3, tzinfo=UTC),
        date(2024, 1, 2),
        time(3, 4),
        timedelta(days=1, seconds=2, microseconds=3),
        Decimal("1.5"),
        UUID(int=1),
        b"\xff",
        (1,),
        {2},
        frozenset({3}),
        {4: 5},
        math.inf,
        "\x00",
    ]
    assert [(item["__daylight__"], item["value"]) for item in values.encode(value)] == [
        ("datetime", "2024-01-02T03:00:00+00:00"),
        ("date", "2024-01-02"),
        ("time", "03:04:00"),
        ("timedelta", [1, 2, 3]),
        ("decimal", "1.5"),
        ("uuid", "00000000-0000-0000-0000-000000000001"),
        ("bytes", "/w=="),
        ("tuple", [1]),
        ("set", [2]),
        ("frozenset", [3]),
        ("dict", [[4, 5]]),
        ("float", "inf"),
        ("text", "AA=="),
    ]
