"""The one lens: a page of rows and the counts that belong to it, read in one statement.

Every list of the product, on pages, in the API, in exports and in the admin, is a ``Noun`` read
through these functions. So shown + filtered = total holds everywhere, by construction: rows and
counts come from one snapshot, under the same filter. Counts obey every parameter except
``filtered`` and ``why``, so the three views of a list agree.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from enum import Enum, auto
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.postgresql.psycopg_any import mogrify
from django.db.models import CharField, Model, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Cast

from scheduler_app.models import Run
from scheduler_app.processes import database
from scheduler_app.queries import newest, paging
from scheduler_app.queries.list_filter import LIMIT_MAX, Lens
from scheduler_app.rules import errors, visibility

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from django.db.models.expressions import Combinable

    from scheduler_app.queries.list_filter import ListFilter
    from scheduler_app.queries.scope import Scope

RowT = TypeVar("RowT")
# Of the rows that a list has, those that stand on its pages. One and the same for the same list and scope.
Window: TypeAlias = "Callable[[Any, Scope], Q]"

SENTENCE: Final = "filter_reason"
COUNT_MAX: Final = 10_000  # rows; each half is counted up to here unless count=exact
COUNTED_COLUMNS: Final = 2  # of a counting statement
# Rows that are put in an order which no index has: those of the largest run. More of them keep a page waiting.
SORTED_MAX: Final = 100_000
READINGS_KEPT: Final = 256  # statements of pages, some kilobytes each
PLANS_KEPT: Final = 16  # of a connection, up to two megabytes each
# The flow and the text id of the run of a row. Subqueries, not joins: read for the rows of a page alone,
# and a row whose run is lost is a row nevertheless.
_RUN: Final = Run.objects.filter(id=OuterRef("run_id"))
OF_RUN: Final[Mapping[str, str | Combinable]] = {
    "flow_id": Subquery(_RUN.values("flow_id")),
    "run_id": Subquery(_RUN.values("run_key")),
}
NEVER_FILTERED: Final = Cast(Value(None), CharField())  # standing of nouns without rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many rows a list has: shown (current) and filtered, by reason. Together: total."""

    shown: int
    filtered: int
    by_reason: Mapping[str, int]  # code -> rows; its values add up to ``filtered``
    exact: bool  # false: a half is larger than counted

    @property
    def total(self) -> int:
        """Both halves."""
        return self.shown + self.filtered


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The part of a row that says whether it is current, and if not, why not."""

    filter_code: str | None = None
    filter_reason: str | None = None  # a sentence with the compared values
    filtered_at: datetime | None = None
    filter_detail: Mapping[str, Any] | None = None  # the compared values
    superseded_by: str | None = None  # id of the row that replaced this one

    @property
    def is_filtered(self) -> bool:
        """Whether the row is set aside."""
        return self.filter_code is not None

    @property
    def filter_chip(self) -> str:
        """The word for the reason that pages show beside the row; empty for a current row."""
        return visibility.chip(self.filter_code) if self.filter_code else ""

    @property
    def filter_rule(self) -> str:
        """The rule that set the row aside; empty for a current row."""
        if self.filter_code is None:
            return ""
        reason = visibility.REASONS.get(self.filter_code)
        return str(self._said("rule") or (reason.set_by if reason else ""))

    @property
    def filter_lease(self) -> tuple[int, int] | None:
        """Shard and token of the lease under which it was set aside; null where none was needed."""
        shard = self._said("shard")
        shard = getattr(self, "shard", None) if shard is None else shard
        token = self._said("token", "token_issued")
        return None if shard is None or token is None else (int(shard), int(token))

    @property
    def filter_compared(self) -> list[tuple[str, object, object]]:
        """What was presented and what was in force instead, by name, where the two differ."""
        detail = self.filter_detail or {}
        return [
            (name, detail[got], detail[want])
            for name, got, want in visibility.COMPARED
            if detail.get(got) is not None
            and detail.get(want) is not None
            and detail[got] != detail[want]
        ]

    @property
    def winner(self) -> tuple[str, str] | None:
        """Noun and id of the record that stands in its place, if one does."""
        if self.filter_code is None:
            return None
        kept = self._said("kept_run")
        if kept is not None:
            return visibility.RUN, str(kept)
        attempt = str(self.superseded_by or self._said("current_attempt_id"))
        own = {str(getattr(self, name, "")) for name in ("id", "record_id")}
        if attempt in own or not _is_uuid(attempt):
            return None
        return visibility.ATTEMPT, attempt

    def _said(self, *names: str) -> Any:
        detail = self.filter_detail or {}
        return next((detail[name] for name in names if detail.get(name) is not None), None)


def _is_uuid(text: str) -> bool:
    """Whether the text is an attempt's id: an old row may hold anything."""
    try:
        UUID(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[RowT]):
    """One page of a list, with the counts of the whole list."""

    rows: tuple[RowT, ...]
    counts: Counts
    next_cursor: str  # empty on the last page


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Noun(Generic[RowT]):
    """One kind of row: where it comes from and how each field of it is read.

    ``rows`` gives the queryset of every row that a scope may see, with ``filter_code`` on it.
    ``columns`` maps a field of ``row`` to a lookup or an expression; a field that is left out is
    read from the column of its own name. ``derived`` fields are not read but made of those that are.
    """

    name: str
    model: type[Model]
    row: type[RowT]
    rows: Callable[[Scope], QuerySet[Any]]
    columns: Mapping[str, str | Combinable] = field(default_factory=dict)
    derived: Mapping[str, Callable[[Mapping[str, Any]], object]] = field(default_factory=dict)
    key: str = "id"
    # Which of the rows, by which column of an index, tell how far back the newest few of all reach; where
    # it is not the newest by the key.
    newest_by: Callable[[ListFilter], tuple[Q, str]] | None = None
    # Of what belongs to runs or flows: columns that tell where a row is, and which rows those of a table of the given name with
    # them are. Of many rows that an index tells of, only those of the page are then read.
    by_ids: tuple[tuple[str, ...], Callable[[str], Q]] | None = None
    # A comparison of such a time with a value, in words that an index serves.
    implied: Callable[[ListFilter, str, object], Q] | None = None

    def field_names(self) -> tuple[str, ...]:
        """The fields of the row in the order of exports: its own first, its standing last."""
        return _field_names(self.row)  # type: ignore[arg-type] # a class is hashable

    def read_fields(self) -> tuple[str, ...]:
        """The fields that are read; the sentence is made of code and detail."""
        names = _read_fields(self.row)  # type: ignore[arg-type] # a class is hashable
        if not self.derived:
            return names
        return tuple(name for name in names if name not in self.derived)

    def sources(self) -> list[str | Combinable]:
        """Where each read field comes from."""
        return [self.columns.get(name, name) for name in self.read_fields()]

    def row_of(self, values: Sequence[Any]) -> RowT:
        """The row that these values, read from ``sources``, make."""
        read = dict(zip(self.read_fields(), values, strict=True))
        code = read.get("filter_code")
        if code:
            read[SENTENCE] = visibility.explain(code, read["filter_detail"])
        elif "filter_code" in read:
            read.update(filtered_at=None, filter_detail=None, superseded_by=None)
        made = {name: make(read) for name, make in self.derived.items()}
        return self.row(**read, **made)


@cache  # asked for with every row
def _field_names(row: type[Any]) -> tuple[str, ...]:
    last = [one.name for one in fields(Standing)] if issubclass(row, Standing) else []
    return (*(one.name for one in fields(row) if one.name not in last), *last)


@cache
def _read_fields(row: type[Any]) -> tuple[str, ...]:
    names = _field_names(row)  # type: ignore[arg-type] # a class is hashable
    return tuple(name for name in names if name != SENTENCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A queryset as SQL, and how its result becomes Python values."""

    sql: str
    parameters: tuple[Any, ...]
    # Place in a line, what Django calls for a value there, and the expression that it is of.
    converters: tuple[tuple[int, Sequence[Callable[..., Any]], Any], ...]

    def values(
        self, lines: Iterable[Sequence[Any]], using: str = DEFAULT_DB_ALIAS
    ) -> list[list[Any]]:
        """The rows of a cursor as values, as Django would give them."""
        connection = connections[using]
        found = [list(line) for line in lines]
        for place, converters, expression in self.converters:
            for line in found:
                for convert in converters:
                    line[place] = convert(line[place], expression, connection)
        return found


def fetched(
    sql: str, parameters: Sequence[Any], using: str, *, is_kept: bool
) -> list[tuple[Any, ...]]:
    """What the statement gives. ``is_kept``: its plan is, over a connection where it was asked before.

    With all values written into it, the plan is the one that it would have each time, until the tables have
    new statistics. A plan over the tables of all nouns takes a good part of the time of the reading to make,
    and a megabyte to keep.
    """
    django = connections[using]
    lines: list[tuple[Any, ...]]
    if not is_kept:
        with django.cursor() as cursor:
            cursor.execute(sql, parameters)
            lines = cursor.fetchall()
        return lines
    text = mogrify(sql, parameters, django)
    # Over Django's cursor, as all lists: tests look at what goes over it.
    with database.prepared(django, at_most=PLANS_KEPT), django.cursor() as cursor:
        cursor.execute(text)
        lines = cursor.fetchall()
    return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """The statement of one page with its counts."""

    sql: str
    parameters: tuple[Any, ...]
    shown: Statement  # the part of it that gives the rows
    using: str
    is_kept: bool  # planned once a connection


def is_kept(asked: ListFilter) -> bool:
    """Whether the plan of the list's statement is worth keeping: each part is planned over all tables."""
    return asked.is_lasting and not asked.cursor and len(asked.parts()) > 1


def compiled(rows: QuerySet[Any]) -> Statement:
    """The statement of this queryset; one that can have no rows is a statement too."""
    compiler = rows.query.get_compiler(using=rows.db, elide_empty=False)
    sql, parameters = compiler.as_sql()
    converters = compiler.get_converters([each[0] for each in compiler.select])
    return Statement(
        sql=sql,
        parameters=tuple(parameters),
        converters=tuple((place, *found) for place, found in converters.items()),
    )


def together(parts: Sequence[Statement], at_most: int | None = None) -> Statement:
    """All rows of these statements, which have the same columns; of more, any so many."""
    if len(parts) == 1:
        return parts[0]
    sql = " UNION ALL ".join(f"({part.sql})" for part in parts)
    if at_most is not None:
        sql += f" LIMIT {at_most}"
    parameters = tuple(value for part in parts for value in part.parameters)
    return Statement(sql=sql, parameters=parameters, converters=parts[0].converters)


def in_order(
    parts: Sequence[Statement], places: Sequence[str], at_most: int | None = None
) -> Statement:
    """The rows of these statements in this order, or so many of the first, of which each gives its own.

    ``places``: columns by number, as ``1 DESC``. One statement alone has the order already.
    """
    if len(parts) == 1:
        return parts[0]
    every = together(parts)
    sql = f"{every.sql} ORDER BY {', '.join(places)}"
    if at_most is not None:
        sql += f" LIMIT {at_most}"
    return Statement(sql=sql, parameters=every.parameters, converters=every.converters)


def page(
    noun: Noun[RowT], asked: ListFilter, scope: Scope, *, window: Window | None = None
) -> Page[RowT]:
    """The page that the filter asks for, with the counts of the whole list.

    ``window``: which of the rows stand on pages at all; the counts count the others too.
    """
    by = paging.ordering(noun.model, asked.ordered_by, noun.key)
    wanted = asked.limit + 1
    values: list[list[Any]] = []
    for way in _ways(noun, asked, by):
        if way is _Way.SORTED:
            _check_sortable(noun, asked, scope)
        make = _reading if asked.is_lasting else _reading.__wrapped__
        found, counted = _read(make(noun, asked, scope, window, way), asked)
        # Rows without the time that orders them come after those that have it.
        values = values + found if way is _Way.REST else found
        if len(values) >= wanted or len(values) == rows_in(counted, asked):
            break
    rows = tuple(noun.row_of(each) for each in values[: asked.limit])
    more = len(values) > asked.limit
    return Page(rows=rows, counts=counted, next_cursor=_cursor(asked, by, rows[-1]) if more else "")


def counts(noun: Noun[Any], asked: ListFilter, scope: Scope) -> Counts:
    """The counts of a list, without its rows."""
    return counts_together([(noun, asked)], scope)[0]


def counts_together(
    lists: Sequence[tuple[Noun[Any], ListFilter]], scope: Scope
) -> tuple[Counts, ...]:
    """The counts of several lists, in one statement and so from one snapshot."""
    is_lasting = all(asked.is_lasting for _, asked in lists)
    make = _counting_together if is_lasting else _counting_together.__wrapped__
    sql, parameters, using = make(tuple(lists), scope)
    with connections[using].cursor() as cursor:
        cursor.execute(sql, parameters)
        (line,) = cursor.fetchall()
    return tuple(
        counts_of(
            line[COUNTED_COLUMNS * place : COUNTED_COLUMNS * (place + 1)],
            is_exact=asked.count == "exact",
        )
        for place, (_, asked) in enumerate(lists)
    )


@lru_cache(maxsize=READINGS_KEPT)
def _counting_together(
    lists: tuple[tuple[Noun[Any], ListFilter], ...], scope: Scope
) -> tuple[str, tuple[Any, ...], str]:
    """The statement that counts these lists, its parameters, and where; made once, as a page's."""
    parts: list[str] = []
    parameters: list[Any] = []
    for place, (noun, asked) in enumerate(lists):
        sql, given = counting(asked, noun.rows(scope))
        parts.append(f"({sql}) l{place}")
        parameters += given
    using = lists[0][0].rows(scope).db
    return f"SELECT * FROM {', '.join(parts)}", tuple(parameters), using  # noqa: S608 - Django's own SQL


def rows_in(counts: Counts, asked: ListFilter) -> int:
    """How many rows all pages of the list together show, by these counts of it."""
    told = asked.why or tuple(counts.by_reason)
    aside = sum(counts.by_reason.get(code, 0) for code in told)
    shown_halves = {Lens.CURRENT: counts.shown, Lens.ONLY: aside, Lens.ALL: counts.shown + aside}
    return shown_halves[asked.filtered]


def one(noun: Noun[RowT], scope: Scope, found: Q, what: str) -> RowT:
    """The row that the condition finds, current or filtered. Raises ``NotFound`` naming ``what``."""
    values = None
    if "\x00" not in what:  # no column can hold it, and PostgreSQL refuses the question
        values = noun.rows(scope).filter(found).values_list(*noun.sources()).first()
    if values is None:
        what = what.replace("\x00", "�")
        raise errors.NotFound(f"There is no {what}, or you may not see it.")
    return noun.row_of(values)


class Known(Generic[RowT]):
    """Rows of one noun by their number, over a statement that is made once for each scope.

    To make a statement of a queryset costs several times what it costs to run it. The noun's rows must
    hang on nothing but the scope.
    """

    def __init__(self, noun: Noun[RowT]) -> None:
        self._noun = noun
        self._made: dict[Scope, tuple[str, int, Any]] = {}

    def one(self, scope: Scope, number: int, what: str) -> RowT:
        """The row with this number, current or filtered. Raises ``NotFound`` naming ``what``."""
        if scope not in self._made:
            if len(self._made) >= KNOWN_MAX:
                self._made.clear()
            self._made[scope] = self._make(scope)
        sql, times, convert = self._made[scope]
        django = connections[self._noun.rows(scope).db]
        found = []
        if abs(number) <= NUMBER_MAX:
            with database.prepared(django) as raw:
                found = convert(raw.execute(sql, [number] * times).fetchall())
        if not found:
            raise errors.NotFound(f"There is no {what}, or you may not see it.")
        return self._noun.row_of(found[0])

    def _make(self, scope: Scope) -> tuple[str, int, Any]:
        """The statement with all its values written into it but the number, how often it has that, and what reads it."""
        rows = self._noun.rows(scope).filter(pk=_NUMBER)
        statement = compiled(rows.order_by().values_list(*self._noun.sources()))
        django = connections[rows.db]
        first, *others = statement.sql.replace("%%", _PERCENT).split("%s")
        written = [
            "%s::bigint" if each == _NUMBER else mogrify("%s", [each], django).replace("%", "%%")
            for each in statement.parameters
        ]
        sql = "".join([first, *(a + b for a, b in zip(written, others, strict=True))])
        return sql.replace(_PERCENT, "%%"), statement.parameters.count(_NUMBER), statement.values


KNOWN_MAX: Final = 64  # scopes
NUMBER_MAX: Final = 2**63 - 1  # no row has a higher number
_NUMBER: Final = 2**62 + 1  # stands for the number in a statement that is made beforehand
_PERCENT: Final = "\x00"  # and this for a percent sign, since no statement has it


def ids(noun: Noun[Any], asked: ListFilter, scope: Scope, *, at_most: int) -> list[int]:
    """The keys of all rows that the list shows, in the order of the keys, and one more than allowed."""
    rows = asked.apply(noun.rows(scope)).order_by(noun.key).values_list(noun.key, flat=True)
    return list(rows[: at_most + 1])


def whole(noun: Noun[Any], asked: ListFilter, scope: Scope) -> Statement:
    """Every row that the list shows, all pages, in its order, as values of ``noun.sources``."""
    every = noun.rows(scope)
    by = paging.ordering(noun.model, asked.ordered_by, noun.key)
    parts = [part.apply(every).order_by() for part in asked.shown_parts()]
    if len(parts) == 1:
        parts = [parts[0].order_by(*by.expressions())]
    listed = [compiled(rows.values_list(*noun.sources())) for rows in parts]
    return in_order(listed, _places(noun, by))


class _Way(Enum):
    """How the rows of a page are found."""

    PLAIN = auto()
    SORTED = auto()  # all that match are put in order: no index has it
    NARROWED = auto()  # by newest.narrowed
    REST = auto()  # what follows on all of the narrowed ones: the rows without a time
    BY_IDS = auto()  # by what an index alone tells of them
    NEAR = auto()  # by newest.near
    FOUND = auto()  # by newest.found_first
    APART = auto()  # each half by itself, what was set aside by newest.found_first


def _ways(noun: Noun[Any], asked: ListFilter, by: paging.Ordering) -> tuple[_Way, ...]:
    """What is tried in turn until the page is full."""
    # Current rows have no time at which they were set aside.
    if by.column == "filtered_at" and asked.filtered is not Lens.ONLY:
        return (_Way.SORTED,)
    if by.column == "filtered_at" and by.is_descending:
        if noun.by_ids is not None and (asked.is_told_by_index or len(asked.parts()) > 1):
            return (_Way.BY_IDS,)
        if len(asked.parts()) == 1:
            return (_Way.PLAIN,)  # as the indexes over it have it
    if newest.is_timed(noun.model, by.column):
        return (_Way.NARROWED, _Way.REST) if by.is_nullable else (_Way.NARROWED,)
    if by.column == noun.key and newest.bounds_an_interval(noun.model, asked.narrowing()):
        return _Way.NEAR, _Way.FOUND
    if by.column == noun.key and asked.is_found_aside:
        return _Way.NEAR, _Way.APART
    is_short = by.column == noun.key and noun.newest_by is None  # or its table has the key in order
    return (_Way.PLAIN if is_short or newest.is_in_order(noun.model, by.column) else _Way.SORTED,)


def _check_sortable(noun: Noun[Any], asked: ListFilter, scope: Scope) -> None:
    """Raises ``InvalidInput`` where too many rows match to be put in order for one page."""
    make = _sorting if asked.is_lasting else _sorting.__wrapped__
    sql, parameters, using = make(noun, asked.evolve(limit=LIMIT_MAX), scope, SORTED_MAX)
    with connections[using].cursor() as cursor:
        cursor.execute(sql, parameters)
        ((number,),) = cursor.fetchall()
    if number > SORTED_MAX:
        raise errors.InvalidInput(
            f"order: more than {SORTED_MAX:,} rows match, too many to be put in the order of"
            f" {asked.ordered_by.removeprefix('-')}. Narrow the list, by a run, a flow or a time.",
            parameter="order",
        )


@lru_cache(maxsize=READINGS_KEPT)
def _sorting(
    noun: Noun[Any], asked: ListFilter, scope: Scope, at_most: int
) -> tuple[str, tuple[Any, ...], str]:
    """The statement that counts what would be sorted, up to just above so many, and where."""
    every = noun.rows(scope)
    parts = [part.apply(every).order_by().values_list(Value(1)) for part in asked.parts()]
    plain = together([compiled(rows[: at_most + 1]) for rows in parts], at_most + 1)
    sql = f"SELECT count(*) FROM ({plain.sql}) a"  # noqa: S608 - Django's own SQL
    return sql, plain.parameters, every.db


@lru_cache(maxsize=READINGS_KEPT)
def _reading(
    noun: Noun[Any], asked: ListFilter, scope: Scope, window: Window | None, way: _Way
) -> _Reading:
    """The statement of a page, made once: what it says follows from what it is made of.

    Django takes longer to write it than PostgreSQL to answer, and pages that are looked at ask again
    and again.
    """
    every = noun.rows(scope)
    by = paging.ordering(noun.model, asked.ordered_by, noun.key)
    wanted = asked.limit + 1
    parts, of_ids = [], []
    for part in asked.apart() if way is _Way.APART else asked.shown_parts():
        listed = part.apply(every)
        if window is not None:
            listed = listed.filter(window(asked, scope))
        if asked.cursor:
            listed = listed.filter(paging.decode(noun.model, asked.cursor, by, asked.ordered_by))
        if way is _Way.BY_IDS and noun.by_ids is not None:
            first = listed.order_by(*by.expressions())[:wanted]
            of_ids.append(compiled(first.values_list(*noun.by_ids[0], by.column, by.key)))
            continue
        found = _found(noun, part, listed, every, way)
        rows = found.order_by(*by.expressions())[:wanted]
        parts.append(compiled(rows.values_list(*noun.sources(), Value(True))))
    before, given = "", ()
    if of_ids and noun.by_ids is not None:
        columns, rows_of = noun.by_ids
        place = len(columns) + 1
        ids = in_order(of_ids, [f"{place} DESC NULLS LAST", f"{place + 1} DESC"], wanted)
        before, given = (
            f"WITH k ({', '.join(columns)}, at, key) AS MATERIALIZED ({ids.sql}) ",
            ids.parameters,
        )
        found = every.filter(rows_of("k")).order_by(*by.expressions())
        parts = [compiled(found.values_list(*noun.sources(), Value(True)))]
    shown = in_order(parts, _places(noun, by), wanted)
    counted_sql, counted_parameters = counting(asked, every)
    places = ", ".join(_places(noun, by, beside=COUNTED_COLUMNS))
    sql = (
        f"{before}SELECT counted.*, page.* FROM ({counted_sql}) counted"  # noqa: S608 - Django's own SQL
        f" LEFT JOIN ({shown.sql}) page ON TRUE ORDER BY {places}"
    )
    return _Reading(
        sql=sql,
        parameters=(*given, *counted_parameters, *shown.parameters),
        shown=shown,
        using=every.db,
        is_kept=is_kept(asked),
    )


def _found(
    noun: Noun[Any], asked: ListFilter, listed: QuerySet[Any], every: QuerySet[Any], way: _Way
) -> QuerySet[Any]:
    """Those of the listed rows among which the page is, found this way."""
    by = paging.ordering(noun.model, asked.ordered_by, noun.key)
    wanted = asked.limit + 1
    match way:
        case _Way.NARROWED:
            some, key = noun.newest_by(asked) if noun.newest_by else (Q(), by.key)
            return newest.narrowed(
                listed,
                by.column,
                of=listed.filter(some),
                key=key,
                is_descending=by.is_descending,
                number=wanted,
                implied=partial(noun.implied, asked) if noun.implied else None,
            )
        case _Way.REST:
            return listed.filter(**{f"{by.column}__isnull": True})
        case _Way.NEAR:
            return newest.near(listed, key=by.key, is_descending=by.is_descending)
        case _Way.APART if asked.filtered is not Lens.ONLY:
            return listed
        case _Way.FOUND | _Way.APART:
            return newest.found_first(
                listed, every, key=by.key, is_descending=by.is_descending, number=wanted
            )
    return listed


def _read(reading: _Reading, asked: ListFilter) -> tuple[list[list[Any]], Counts]:
    """Rows and counts of one snapshot: one statement, which gives a line even without rows."""
    lines = fetched(reading.sql, reading.parameters, reading.using, is_kept=reading.is_kept)
    counted = counts_of(lines[0], is_exact=asked.count == "exact")
    # The mark comes last; without any row it is null, as all of the page.
    rows = [line[COUNTED_COLUMNS:-1] for line in lines] if lines[0][-1] is not None else []
    return reading.shown.values(rows, reading.using), counted


def counting(asked: ListFilter, rows: QuerySet[Any]) -> tuple[str, tuple[Any, ...]]:
    """The statement that counts both halves of a list; each half stops just above ``COUNT_MAX``."""
    at_most = None if asked.count == "exact" else COUNT_MAX + 1
    current, aside = [], []
    for part in asked.counted_parts():
        plain = part.matching(rows).order_by().filter(part.halves()[0])
        current.append(compiled(plain.values_list(Value(1))[:at_most]))
    for part in asked.parts():
        plain = part.matching(rows).order_by().filter(part.halves()[1])
        aside.append(compiled(plain.values_list("filter_code")[:at_most]))
    one, other = together(current, at_most), together(aside, at_most)
    sql = (
        f"SELECT (SELECT count(*) FROM ({one.sql}) a) AS shown,"  # noqa: S608 - Django's own SQL
        " (SELECT coalesce(jsonb_object_agg(code, n), '{}') FROM"
        f" (SELECT code, count(*) AS n FROM ({other.sql}) b (code) GROUP BY code) c) AS reasons"
    )
    return sql, (*one.parameters, *other.parameters)


def counts_of(line: Sequence[Any], *, is_exact: bool) -> Counts:
    """The counts that a line of ``counting`` says."""
    shown: int = line[0]
    by_reason: dict[str, int] = dict(sorted(json.loads(line[1]).items()))
    exact = is_exact or (shown <= COUNT_MAX and sum(by_reason.values()) <= COUNT_MAX)
    if not exact:
        shown = min(shown, COUNT_MAX)
        surplus = max(0, sum(by_reason.values()) - COUNT_MAX)
        if surplus:
            by_reason[max(by_reason, key=lambda code: by_reason[code])] -= surplus
    return Counts(shown=shown, filtered=sum(by_reason.values()), by_reason=by_reason, exact=exact)


def _places(noun: Noun[Any], by: paging.Ordering, *, beside: int = 0) -> list[str]:
    """The order again, for an outer statement, by place among its columns, which come after so many others."""
    names = noun.read_fields()
    direction = "DESC NULLS LAST" if by.is_descending else "ASC NULLS LAST"
    first = beside + 1  # places count from 1
    return [f"{first + names.index(column)} {direction}" for column in (by.column, by.key)]


def _cursor(asked: ListFilter, by: paging.Ordering, last: object) -> str:
    return paging.encode(asked.ordered_by, getattr(last, by.column), getattr(last, by.key))
