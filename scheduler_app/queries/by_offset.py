"""Pages of a noun by offset, for the compatible API: what keyset paging cannot say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from django.db.models import F, Q
from django.db.models.expressions import OrderBy

from scheduler_app.queries import newest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django.db.models import QuerySet
    from django.db.models.expressions import Combinable

    from scheduler_app.queries.lens import Noun
    from scheduler_app.queries.scope import Scope

RowT = TypeVar("RowT")
COUNT_MAX: Final = 10_000  # rows; beyond it, the total says no more than that there are more
NARROWED_MAX: Final = (
    1_000  # rows from the top, within which an order by time is read from its index
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetPage(Generic[RowT]):
    """Some rows of a list, and how many it has."""

    rows: tuple[RowT, ...]
    # Exact up to ``COUNT_MAX``. Of a longer list, at least so many; more than the page ends at, as long as
    # there is more: who pages on until the total is reached gets all.
    total: int


def page(
    noun: Noun[RowT],
    scope: Scope,
    *,
    where: Q,
    order: Sequence[tuple[str, bool]],
    limit: int,
    offset: int = 0,
    columns: Mapping[str, Combinable] | None = None,
    is_filtered_too: bool = False,
    is_counted: bool = True,
) -> OffsetPage[RowT]:
    """The rows that the condition keeps, in order, ties broken by the key.

    ``columns`` are further ones, for condition and order. Only current rows, unless asked otherwise.
    Not counted, the total is where the page ends.
    """
    every = noun.rows(scope)
    used = {column for column, _ in order} | _columns_in(where)
    needed = {name: made for name, made in (columns or {}).items() if name in used}
    if needed:
        every = every.annotate(**needed)
    if not is_filtered_too:
        every = every.filter(filter_code__isnull=True)
    every = every.filter(where)
    by: list[Any] = [
        OrderBy(F(column), descending=is_descending, nulls_last=True)
        for column, is_descending in order
        if column != noun.key
    ]
    is_last_descending = bool(order) and order[-1][1]
    by.append(OrderBy(F(noun.key), descending=is_last_descending))
    rows = tuple(
        noun.row_of(values) for values in _read(noun, every, where, order, by, offset, limit)
    )
    if not is_counted:
        return OffsetPage(rows=rows, total=offset + len(rows))
    total = every.order_by().values("pk")[: COUNT_MAX + 1].count()
    if total > COUNT_MAX:
        ends_at = offset + len(rows)
        total = max(COUNT_MAX, ends_at + 1 if limit and len(rows) == limit else ends_at)
    return OffsetPage(rows=rows, total=total)


def _read(
    noun: Noun[Any],
    every: QuerySet[Any],
    where: Q,
    order: Sequence[tuple[str, bool]],
    by: Sequence[OrderBy],
    offset: int,
    limit: int,
) -> list[tuple[Any, ...]]:
    if not limit:
        return []
    last = offset + limit
    if order and last <= NARROWED_MAX and newest.is_timed(noun.model, order[0][0]):
        column, is_descending = order[0]
        part = newest.narrowed(
            every, column, key=noun.key, is_descending=is_descending, number=last
        )
        rows = list(part.order_by(*by).values_list(*noun.sources())[offset:last])
        if len(rows) == limit:
            return rows
    compared = {lookup.replace("__", "_") for lookup in _lookups_in(where)}
    is_by_key = not order or order[0][0] == noun.key
    if is_by_key and newest.bounds_an_interval(noun.model, compared):
        is_descending = bool(order) and order[0][1]
        part = newest.near(every, key=noun.key, is_descending=is_descending)
        rows = list(part.order_by(*by).values_list(*noun.sources())[offset:last])
        if len(rows) == limit:
            return rows
        by = [newest.by_key_after_all(noun.key, is_descending=is_descending)]
    return list(every.order_by(*by).values_list(*noun.sources())[offset:last])


def _columns_in(where: Q) -> set[str]:
    """The first words of all lookups of the condition."""
    return {lookup.partition("__")[0] for lookup in _lookups_in(where)}


def _lookups_in(where: Q) -> set[str]:
    """All lookups of the condition, as ``started_at__gte``."""
    found: set[str] = set()
    for child in where.children:
        if isinstance(child, Q):
            found |= _lookups_in(child)
        elif isinstance(child, tuple):
            found.add(child[0])
    return found
