"""Filters: what an address asks for, given back for every link."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.http import QueryDict
from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.queries import filters
from scheduler_app.queries.list_filter import Lens, ListFilter
from scheduler_app.rules import errors

KINDS = [
    kind
    for kind in vars(filters).values()
    if isinstance(kind, type) and issubclass(kind, ListFilter) and kind is not ListFilter
]
TEXTS = st.text(st.characters(exclude_characters="\x00", codec="utf-8"), min_size=1, max_size=30)
CODES = st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True)
MOMENTS = st.integers(0, 4 * 10**15).map(
    lambda microseconds: datetime(1990, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
)


def _values(name: str, kind: type[ListFilter]) -> st.SearchStrategy[Any]:
    parameter = kind.parameters()[name]
    if parameter.choices:
        return st.lists(st.sampled_from(parameter.choices), max_size=3).map(tuple)
    of: dict[str, st.SearchStrategy[Any]] = {
        "string": TEXTS,
        "integer": st.integers(-(2**63) + 1, 2**63 - 1),
        "uuid": st.uuids(),
        "date-time": MOMENTS,
    }
    if not parameter.is_repeated:
        return st.none() | of[parameter.kind]
    return st.lists(of[parameter.kind], max_size=3).map(tuple)


@st.composite
def any_filter(draw: st.DrawFn) -> ListFilter:
    kind = draw(st.sampled_from(KINDS))
    own = {name: draw(_values(name, kind)) for name in kind.parameters()}
    orders = ["", *kind.ORDERS, *(f"-{order}" for order in kind.ORDERS)]
    return kind(
        filtered=draw(st.sampled_from(Lens)),
        why=draw(st.lists(CODES, max_size=3).map(tuple)),
        limit=draw(st.integers(1, 500)),
        cursor=draw(st.just("") | TEXTS),
        order=draw(st.sampled_from(orders)),
        count=draw(st.sampled_from(["", "exact"])),
        **own,
    )


@given(any_filter())
def test_an_address_makes_the_filter_that_made_it(asked: ListFilter) -> None:
    assert type(asked).from_query(asked.to_query()) == asked


@given(any_filter())
def test_a_query_dict_reads_as_a_mapping_does(asked: ListFilter) -> None:
    query = QueryDict(mutable=True)
    for name, texts in asked.to_query().items():
        query.setlist(name, texts)
    assert type(asked).from_query(query) == asked


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_field_of_a_filter_is_a_parameter(kind: type[ListFilter]) -> None:
    shared = {one.name for one in fields(ListFilter)}
    assert {one.name for one in fields(kind)} == shared | set(kind.parameters())
    assert kind.ORDER_DEFAULT.removeprefix("-") in kind.ORDERS


@pytest.mark.parametrize(
    ("query", "name", "told"),
    [
        ({"state": "bogus"}, "state", "not one of"),
        ({"stat": "failed"}, "stat", "no such parameter"),
        ({"limit": "0"}, "limit", "1 to 500"),
        ({"limit": "501"}, "limit", "1 to 500"),
        ({"limit": "many"}, "limit", "1 to 500"),
        ({"order": "conf"}, "order", "not one of"),
        ({"order": "--id"}, "order", "not one of"),
        ({"filtered": "yes"}, "filtered", "'1'"),
        ({"why": "a b"}, "why", "reason code"),
        ({"count": "roughly"}, "count", "'exact'"),
        ({"started_at_gte": "yesterday"}, "started_at_gte", "ISO 8601"),
        ({"started_at_gte": "9999-12-31T23:59:59-14:00"}, "started_at_gte", "ISO 8601"),
        ({"version": "one"}, "version", "whole number"),
        ({"version": "9" * 40}, "version", "whole number"),
        ({"run_id": "a\x00b"}, "run_id", "NUL"),
        ({"run_id": "a" * 251}, "run_id", "250"),
        ({"run_id": ["a"] * 201}, "run_id", "200"),
        ({"started_at_gte": ["2026-01-01", "2026-01-02"]}, "started_at_gte", "once"),
    ],
)
def test_a_bad_value_is_refused_with_its_name_and_the_rule(
    query: dict[str, Any], name: str, told: str
) -> None:
    with pytest.raises(errors.InvalidInput) as refused:
        filters.RunFilter.from_query(query)
    assert str(refused.value).startswith(f"{name}: ")
    assert told in str(refused.value)
    assert refused.value.extra["parameter"] == name


def test_a_reason_alone_asks_for_filtered_rows() -> None:
    assert filters.RunFilter.from_query({"why": "ghost_run"}).filtered is Lens.ONLY
    assert filters.RunFilter.from_query({"why": "ghost_run", "filtered": "1"}).filtered is Lens.ALL


def test_empty_parameters_of_a_form_count_as_absent() -> None:
    empty = {"state": "", "filtered": "", "limit": "", "started_at_gte": "", "why": ""}
    assert filters.RunFilter.from_query(empty) == filters.RunFilter()


def test_a_parameter_that_the_caller_keeps_is_passed_over() -> None:
    asked = filters.RunFilter.from_query({"tab": "runs", "state": "failed"}, ignore={"tab"})
    assert asked == filters.RunFilter(state=("failed",))


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01T02:00:00Z",
        "2026-01-01T02:00:00",
        "2026-01-01T03:00:00+01:00",
        "2026-01-01T03:00:00 01:00",  # an offset whose plus sign was not escaped
    ],
)
def test_times_are_read_as_utc(text: str) -> None:
    asked = filters.RunFilter.from_query({"started_at_gte": text})
    assert asked.started_at_gte == datetime(2026, 1, 1, 2, tzinfo=UTC)


def test_a_change_of_the_filter_begins_at_the_first_page() -> None:
    asked = filters.JobFilter(cursor="abc", id=(UUID(int=1),))
    assert asked.evolve(filtered=Lens.ONLY).cursor == ""
    assert asked.evolve(cursor="def").cursor == "def"
