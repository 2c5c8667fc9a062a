"""Pages of a noun by offset, for the compatible API: what keyset paging cannot say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from django.db import connections
from django.db.models import F, Q, Value
from django.db.models.expressions import OrderBy

from scheduler_app.queries import lens, newest

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
    used = {column for column, _ in order} | _columns_in(where)
    asked = _Asked(
        noun=noun,
        scope=scope,
        where=where,
        order=tuple(order),
        limit=limit,
        offset=offset,
        columns=tuple((name, made) for name, made in (columns or {}).items() if name in used),
        is_filtered_too=is_filtered_too,
    )
    rows = tuple(noun.row_of(values) for values in _read(asked))
    if not is_counted:
        return OffsetPage(rows=rows, total=offset + len(rows))
    ((total,),) = _values(_counting(asked), noun.rows(scope).db)
    if total > COUNT_MAX:
        ends_at = offset + len(rows)
        total = max(COUNT_MAX, ends_at + 1 if limit and len(rows) == limit else ends_at)
    return OffsetPage(rows=rows, total=total)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What a page is asked for: all that its statements follow from."""

    noun: Noun[Any]
    scope: Scope
    where: Q
    order: tuple[tuple[str, bool], ...]
    limit: int
    offset: int
    columns: tuple[tuple[str, Combinable], ...]
    is_filtered_too: bool

    @property
    def last(self) -> int:
        """Of the rows, the place after the last one of the page."""
        return self.offset + self.limit

    @property
    def is_descending(self) -> bool:
        """In which direction the first column goes."""
        return bool(self.order) and self.order[0][1]

    def rows(self) -> QuerySet[Any]:
        """Every row of the list."""
        every = self.noun.rows(self.scope)
        if self.columns:
            every = every.annotate(**dict(self.columns))
        if not self.is_filtered_too:
            every = every.filter(filter_code__isnull=True)
        return every.filter(self.where)


class _Way(Enum):
    """How the rows of a page are found."""

    PLAIN = auto()
    NARROWED = auto()  # by newest.narrowed
    NEAR = auto()  # by newest.near
    FOUND = auto()  # by newest.found_first


def _read(asked: _Asked) -> list[list[Any]]:
    if not asked.limit:
        return []
    found: list[list[Any]] = []
    for way in _ways(asked):
        found = _values(_reading(asked, way), asked.noun.rows(asked.scope).db)
        if len(found) == asked.limit:
            break
    return found


def _ways(asked: _Asked) -> tuple[_Way, ...]:
    """What is tried in turn until the page is full."""
    model, order = asked.noun.model, asked.order
    if order and asked.last <= NARROWED_MAX and newest.is_timed(model, order[0][0]):
        return _Way.NARROWED, _Way.PLAIN
    compared = {lookup.replace("__", "_") for lookup in _lookups_in(asked.where)}
    is_by_key = not order or order[0][0] == asked.noun.key
    if is_by_key and newest.bounds_an_interval(model, compared):
        return _Way.NEAR, _Way.FOUND
    return (_Way.PLAIN,)


@lru_cache(maxsize=lens.READINGS_KEPT)
def _reading(asked: _Asked, way: _Way) -> lens.Statement:
    """The statement of a page's rows, made once: to write it costs more than to run it."""
    noun, every = asked.noun, asked.rows()
    by = [
        OrderBy(F(column), descending=is_descending, nulls_last=True)
        for column, is_descending in asked.order
        if column != noun.key
    ]
    is_last_descending = bool(asked.order) and asked.order[-1][1]
    by.append(OrderBy(F(noun.key), descending=is_last_descending))
    if way is _Way.NARROWED:
        every = newest.narrowed(
            every,
            asked.order[0][0],
            of=every,
            key=noun.key,
            is_descending=asked.is_descending,
            number=asked.last,
        )
    elif way is _Way.NEAR:
        every = newest.near(every, key=noun.key, is_descending=asked.is_descending)
    elif way is _Way.FOUND:
        every = newest.found_first(
            every,
            noun.rows(asked.scope),
            key=noun.key,
            is_descending=asked.is_descending,
            number=asked.last,
        )
        by = [OrderBy(F(noun.key), descending=asked.is_descending)]
    return lens.compiled(
        every.order_by(*by).values_list(*noun.sources())[asked.offset : asked.last]
    )


@lru_cache(maxsize=lens.READINGS_KEPT)
def _counting(asked: _Asked) -> lens.Statement:
    """The statement that counts the list; it stops just above ``COUNT_MAX``."""
    plain = lens.compiled(asked.rows().order_by().values_list(Value(1))[: COUNT_MAX + 1])
    sql = f"SELECT count(*) FROM ({plain.sql}) a"  # noqa: S608 - Django's own SQL
    return lens.Statement(sql=sql, parameters=plain.parameters, converters=())


def _values(statement: lens.Statement, using: str) -> list[list[Any]]:
    with connections[using].cursor() as cursor:
        cursor.execute(statement.sql, statement.parameters)
        return statement.values(cursor.fetchall(), using)


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
