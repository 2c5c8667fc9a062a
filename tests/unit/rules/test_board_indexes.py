"""The least of many map indexes, named in order whatever came and went."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules.board import _Indexes

ACTS = st.lists(st.tuples(st.booleans(), st.integers(min_value=0, max_value=12)), max_size=60)


@given(acts=ACTS, number=st.integers(min_value=0, max_value=15), asks=st.booleans())
def test_they_are_those_of_a_sorted_set(
    acts: list[tuple[bool, int]], number: int, asks: bool
) -> None:
    model: set[int] = set()
    indexes = _Indexes()
    for adds, index in acts:
        (model.add if adds else model.discard)(index)
        (indexes.add if adds else indexes.discard)(index)
        if asks:
            assert indexes.first(number) == sorted(model)[:number]
    assert indexes.first(number) == sorted(model)[:number]
    assert (len(indexes), set(indexes)) == (len(model), model)


def test_naming_the_first_looks_at_no_more_than_those() -> None:
    indexes = _Indexes()
    for index in range(10_000):
        indexes.add(index)
    for index in range(9_000):
        indexes.discard(index)
        indexes.first(5)
    assert len(indexes._line) <= 2 * len(indexes)
    assert indexes.first(2) == [9_000, 9_001]
