"""Pages of a noun by offset, for the compatible API: what keyset paging cannot say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from django.db.models import F, Q
from django.db.models.expressions import OrderBy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django.db.models.expressions import Combinable

    from scheduler_app.queries.lens import Noun
    from scheduler_app.queries.scope import Scope

RowT = TypeVar("RowT")
COUNT_MAX: Final = 100_000  # rows; a list counts no further


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetPage(Generic[RowT]):
    """Some rows of a list, and how many it has."""

    rows: tuple[RowT, ...]
    total: int  # at most ``COUNT_MAX``


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
) -> OffsetPage[RowT]:
    """The rows that the condition keeps, in order, ties broken by the key.

    ``columns`` are further ones, for condition and order. Only current rows, unless asked otherwise.
    """
    every = noun.rows(scope)
    if columns:
        every = every.annotate(**columns)
    if not is_filtered_too:
        every = every.filter(filter_code__isnull=True)
    every = every.filter(where)
    by: list[Any] = [
        OrderBy(F(column), descending=is_descending, nulls_last=True)
        for column, is_descending in order
    ]
    is_last_descending = bool(order) and order[-1][1]
    by.append(OrderBy(F(noun.key), descending=is_last_descending))
    rows = every.order_by(*by).values_list(*noun.sources())[offset : offset + limit]
    return OffsetPage(
        rows=tuple(noun.row_of(values) for values in rows) if limit else (),
        total=every.order_by().values("pk")[:COUNT_MAX].count(),
    )
