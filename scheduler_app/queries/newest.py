"""The first rows in the order of a time, without sorting the whole history.

Rows come in about the order of their times. So the newest few by key tell a time which enough rows have
reached, and the index over times finds those that have: the first rows are among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from django.contrib.postgres.indexes import BrinIndex
from django.db.models import (
    DateTimeField,
    F,
    Field,
    Func,
    Q,
    Subquery,
    UniqueConstraint,
    UUIDField,
)
from django.db.models.expressions import OrderBy
from django.db.models.functions import Coalesce

from scheduler_app.models import standing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from django.db.models import BaseConstraint, Index, Model, QuerySet

NEAR_ROWS: Final = 5_000


class _Reached(Subquery):
    """The earliest of so many times that the inner statement gives; in the other direction, the latest.

    Where it gives fewer, all there are.
    """

    def __init__(
        self, times: QuerySet[Any], *, number: int, ends: tuple[str, str], is_descending: bool
    ) -> None:
        found, none = ("min", ends[0]) if is_descending else ("max", ends[1])
        super().__init__(
            times[:number],
            template=f"(SELECT CASE WHEN count(x) < {number} THEN {none} ELSE {found}(x) END"  # noqa: S608 - words of our own
            " FROM (%(subquery)s) reached (x))",
        )


# The least and the greatest that a column may be.
_ENDS_OF_TIME: Final = ("'-infinity'::timestamptz", "'infinity'::timestamptz")
_ENDS_OF_NUMBERS: Final = (f"({-(2**63)})::bigint", f"{2**63 - 1}::bigint")


_ENDS_OF_IDS: Final = (f"'{UUID(int=0)}'::uuid", f"'{UUID(int=2**128 - 1)}'::uuid")


def _ends(column: Field[Any, Any]) -> tuple[str, str]:
    if isinstance(column, DateTimeField):
        return _ENDS_OF_TIME
    return _ENDS_OF_IDS if isinstance(column, UUIDField) else _ENDS_OF_NUMBERS


# Lists whose tables have an index over this time each.
_IN_ORDER: Final = frozenset({("record", "filtered_at"), ("record", "at")})

# How an index knows columns that grow from row to row: ``models.standing.times_index``.
_GROWING: Final = frozenset({standing.TIMES, standing.LONG_NUMBERS})


def is_timed(model: type[Model], column: str) -> bool:
    """Whether the model has an index over this time, or over this number, which grows as time does."""
    meta = model._meta  # noqa: SLF001 - documented by Django as public
    return (meta.db_table, column) in _IN_ORDER or any(
        _is_over(index, column) for index in meta.indexes
    )


def is_in_order(model: type[Model], column: str) -> bool:
    """Whether the first rows by this column are found without putting all in order."""
    meta = model._meta  # noqa: SLF001 - likewise
    field = meta.get_field(column)
    return (
        is_timed(model, column)
        or (meta.managed and bool(getattr(field, "unique", False)))  # a view has no index
        or any(_begins_with(index, column) for index in meta.indexes)
        or any(_is_unique_by(constraint, column) for constraint in meta.constraints)
    )


def _begins_with(index: Index, column: str) -> bool:
    is_tree = not isinstance(index, BrinIndex) and index.condition is None
    return is_tree and bool(index.fields) and index.fields[0].removeprefix("-") == column


def _is_unique_by(constraint: BaseConstraint, column: str) -> bool:
    if not isinstance(constraint, UniqueConstraint) or constraint.condition is not None:
        return False
    return bool(constraint.fields) and constraint.fields[0] == column


def _is_over(index: Index, column: str) -> bool:
    if not isinstance(index, BrinIndex) or column not in index.fields:
        return False
    return not index.opclasses or index.opclasses[index.fields.index(column)] in _GROWING


def narrowed(
    rows: QuerySet[Any],
    column: str,
    *,
    of: QuerySet[Any],
    key: str,
    is_descending: bool,
    number: int,
    implied: Callable[[str, object], Q] | None = None,
) -> QuerySet[Any]:
    """A part of the rows that has the first ``number`` of them in the order of the column.

    The first of these, ``of`` the rows, in the order of an index (``key``) tell how far back it reaches.
    If fewer rows are left, it has all that have the column. ``implied``: such a comparison of the column
    with a value, in words that an index serves.
    """
    compare, other = ("gte", "lte") if is_descending else ("lte", "gte")
    meta = rows.model._meta  # noqa: SLF001 - likewise
    field = meta.get_field(column)
    assert isinstance(field, Field)
    ends = _ends(field)
    nulls_last = True if (meta.db_table, key) in _IN_ORDER else None  # as its index has them
    by = OrderBy(F(key), descending=is_descending, nulls_last=nulls_last)
    # In the order of the column itself, rows without it come last anyway. Said besides, the planner would
    # think that of rows which are set aside hardly one has the time at which it was.
    is_own = key == column and nulls_last
    timed = of if is_own else of.filter(**{f"{column}__isnull": False})
    times = timed.order_by(by).values(column)
    reached = _Reached(times, number=number, ends=ends, is_descending=is_descending)
    # The other end keeps nothing out. Of an interval that it does not know, the planner thinks that it is
    # short, and reads the index over times; of what is open at one end, that it is a third of the table.
    last = Func(template=ends[1] if is_descending else ends[0], output_field=field)
    if implied is not None:
        return rows.filter(implied(compare, reached), implied(other, last))
    return rows.filter(**{f"{column}__{compare}": reached, f"{column}__{other}": last})


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
    meta = rows.model._meta  # noqa: SLF001 - likewise
    field = meta.get_field(key)
    assert isinstance(field, Field)
    compare, other = ("gte", "lte") if is_descending else ("lte", "gte")
    # The other end keeps nothing out, as above.
    end = Func(template=_ends(field)[1 if is_descending else 0], output_field=field)
    return rows.filter(**{f"{key}__{compare}": last, f"{key}__{other}": end})


def found_first(
    rows: QuerySet[Any], every: QuerySet[Any], *, key: str, is_descending: bool, number: int
) -> QuerySet[Any]:
    """Of every row, the first ``number`` of ``rows`` by the key, found without a walk along its index.

    The index over times finds an interval wherever it is in a long history; by the key, everything
    beside it would be looked at. Only keys are sorted, not whole rows.
    """
    by_key = OrderBy(Coalesce(F(key), F(key)), descending=is_descending)
    keys = rows.order_by(by_key).values(key)[:number]
    return every.filter(**{f"{key}__in": Subquery(keys)})
