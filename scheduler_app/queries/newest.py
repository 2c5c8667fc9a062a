"""The first rows in the order of a time, without sorting the whole history.

Rows come in about the order of their times. So the newest few by key tell a time which enough rows have
reached, and the index over times finds those that have: the first rows are among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.contrib.postgres.indexes import BrinIndex
from django.db.models import F, Subquery
from django.db.models.expressions import OrderBy
from django.db.models.functions import Coalesce

if TYPE_CHECKING:
    from collections.abc import Collection

    from django.db.models import Model, QuerySet

NEAR_ROWS: Final = 5_000


class _Reached(Subquery):
    """The earliest of the times that the inner statement gives; in the other direction, the latest."""

    def __init__(self, times: QuerySet[Any], *, is_descending: bool) -> None:
        found, none = ("min", "-infinity") if is_descending else ("max", "infinity")
        super().__init__(
            times,
            template=f"(SELECT coalesce({found}(x), '{none}') FROM (%(subquery)s) reached (x))",  # noqa: S608 - words of our own
        )


# Lists whose tables have an index in this very order each.
_IN_ORDER: Final = frozenset({("record", "filtered_at")})


def is_timed(model: type[Model], column: str) -> bool:
    """Whether the model has an index over this time."""
    meta = model._meta  # noqa: SLF001 - documented by Django as public
    return (meta.db_table, column) in _IN_ORDER or any(
        isinstance(index, BrinIndex) and column in index.fields for index in meta.indexes
    )


def narrowed(
    rows: QuerySet[Any], column: str, *, key: str, is_descending: bool, number: int
) -> QuerySet[Any]:
    """A part of the rows that has the first ``number`` of them in the order of the column.

    Only if at least ``number`` rows are left: where there are fewer, the caller asks without.
    """
    compare = "gte" if is_descending else "lte"
    is_in_order = (rows.model._meta.db_table, column) in _IN_ORDER  # noqa: SLF001 - likewise
    by = OrderBy(
        F(column if is_in_order else key),
        descending=is_descending,
        nulls_last=True if is_in_order else None,
    )
    times = rows.filter(**{f"{column}__isnull": False}).order_by(by).values(column)
    reached = _Reached(times[:number], is_descending=is_descending)
    return rows.filter(**{f"{column}__{compare}": reached})


def bounds_an_interval(model: type[Model], compared: Collection[str]) -> bool:
    """Whether these comparisons, as ``started_at_gte``, bound a time of the model on both sides."""
    sides = {name.rpartition("_")[::2] for name in compared}
    return any(
        (column, "lte") in sides or (column, "lt") in sides
        for column, side in sides
        if side in ("gte", "gt") and is_timed(model, column)
    )


def near(rows: QuerySet[Any], *, key: str, is_descending: bool) -> QuerySet[Any]:
    """Those of the rows that are among the first few thousand of the table in the order of the key.

    An interval is looked for here first: where enough of it is, the first rows are found at once.
    """
    order = f"-{key}" if is_descending else key
    every = rows.model._default_manager.order_by(order).values(key)  # noqa: SLF001 - likewise
    last = Subquery(every[NEAR_ROWS - 1 : NEAR_ROWS])
    return rows.filter(**{f"{key}__{'gte' if is_descending else 'lte'}": last})


def by_key_after_all(key: str, *, is_descending: bool) -> OrderBy:
    """The order of the key for rows that are found by something else: not a walk along its index.

    The index over times finds an interval wherever it is in a long history; by the key, everything
    beside it would be looked at.
    """
    return OrderBy(Coalesce(F(key), F(key)), descending=is_descending)
