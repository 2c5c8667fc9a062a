"""Exports: every row of a list, streamed from a cursor, with the counts of the same snapshot.

The cursor is declared WITH HOLD in one short transaction: the database keeps the result, and no
transaction stays open however slowly the reader reads.
"""

from __future__ import annotations

import csv
import io
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import connections, transaction

from scheduler_app.queries import lens
from scheduler_app.rules import errors

if TYPE_CHECKING:
    from types import TracebackType

    from scheduler_app.queries.list_filter import ListFilter
    from scheduler_app.queries.scope import Scope

ROWS_MAX: Final = 1_000_000  # of one export; the database keeps the result meanwhile
FETCH_ROWS: Final = 1_000
PREPARE_TIMEOUT_S: Final = 300
FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")  # CWE-1236


class Export:
    """An open export; close it, or the database keeps its result as long as the connection."""

    def __init__(self, noun: lens.Noun[Any], asked: ListFilter, scope: Scope) -> None:
        rows = noun.rows(scope)
        self.noun = noun
        self._statement = lens.whole(noun, asked, scope)
        self._using = rows.db
        self._name = f"export_{uuid.uuid4().hex}"
        counting, counting_parameters = lens.counting(asked.evolve(count="exact"), rows)
        with transaction.atomic(using=self._using), connections[self._using].cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            cursor.execute(f"SET LOCAL statement_timeout = '{PREPARE_TIMEOUT_S}s'")
            cursor.execute(counting, counting_parameters)
            self.counts = lens.counts_of(cursor.fetchall()[0], is_exact=True)
            self.row_count = lens.rows_in(self.counts, asked)
            _check_size(self.row_count)
            cursor.execute(
                f"DECLARE {self._name} NO SCROLL CURSOR WITH HOLD FOR {self._statement.sql}",
                self._statement.parameters,
            )

    def fetch(self) -> list[dict[str, object]]:
        """The next rows as plain values; an empty list at the end."""
        with connections[self._using].cursor() as cursor:
            cursor.execute(f"FETCH {FETCH_ROWS} FROM {self._name}")
            lines = cursor.fetchall()
        return [
            plain(self.noun, self.noun.row_of(values)) for values in self._statement.values(lines)
        ]

    def close(self) -> None:
        """The database has let go of the result."""
        with connections[self._using].cursor() as cursor:
            cursor.execute(f"CLOSE {self._name}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


async def stream(export: Export, write: Format) -> AsyncIterator[bytes]:
    """The whole export as bytes; it is closed at the end, however it ends."""
    try:
        yield write(export.noun, None)
        while rows := await sync_to_async(export.fetch)():
            yield write(export.noun, rows)
    finally:
        await sync_to_async(export.close)()


def lines(export: Export, write: Format) -> Iterator[bytes]:
    """The whole export as bytes, for a command; it is closed at the end."""
    with export:
        yield write(export.noun, None)
        while rows := export.fetch():
            yield write(export.noun, rows)


def plain(noun: lens.Noun[Any], row: object) -> dict[str, object]:
    """The fields of a row as JSON knows them, as the lists of the API give them."""
    return {name: _json(getattr(row, name)) for name in noun.field_names()}


def text_of(at: datetime) -> str:
    """The time as every answer of the API gives it: ISO 8601, UTC, to the microsecond."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def csv_bytes(noun: lens.Noun[Any], rows: list[dict[str, object]] | None) -> bytes:
    """Rows as CSV, every cell quoted, no cell a formula; the header line for None."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    if rows is None:
        writer.writerow(noun.field_names())
    else:
        writer.writerows([_cell(value) for value in row.values()] for row in rows)
    return text.getvalue().encode()


def ndjson_bytes(noun: lens.Noun[Any], rows: list[dict[str, object]] | None) -> bytes:
    """Rows as JSON, one a line."""
    del noun
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows or ()).encode()


Format = Callable[[lens.Noun[Any], "list[dict[str, object]] | None"], bytes]

FORMATS: Final[Mapping[str, tuple[str, Format]]] = {
    "csv": ("text/csv; charset=utf-8", csv_bytes),
    "ndjson": ("application/x-ndjson", ndjson_bytes),
}


def _check_size(rows: int) -> None:
    if rows > ROWS_MAX:
        raise errors.InvalidInput(
            f"This export would have {rows} rows, at most {ROWS_MAX} are allowed."
            " Narrow it by flow_id, state or times.",
            rows=rows,
        )


def _cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and value.startswith(FORMULA_STARTS):
        return f"'{value}"
    return value


def _json(value: object) -> object:
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, datetime):
        return text_of(value)
    if isinstance(value, UUID):
        return str(value)
    return list(value) if isinstance(value, tuple) else value
