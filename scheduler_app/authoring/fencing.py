"""Effects on a database of the author's own that a replaced attempt cannot overwrite.

Works on any open DB-API connection whose database knows ``INSERT ... ON CONFLICT`` (PostgreSQL,
SQLite): nothing is imported, the connection's own module says how it writes parameters.
"""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scheduler_app.authoring.context import Context

GUARD_TABLE: Final = "daylight_fence"
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
# As the columns of an upsert: whose row, for which date, and the greatest fence that wrote it.
KEY_COLUMNS: Final = ("flow_id", "logical_date")
FENCE_COLUMN: Final = "fence"


class StaleFence(RuntimeError):
    """An attempt with a greater fence wrote this already; nothing was changed."""

    def __init__(self, target: str, *, fence: int, found: int | None) -> None:
        super().__init__(target, fence, found)
        self.target = target
        self.fence = fence
        self.found = found  # the fence that is there

    def __str__(self) -> str:
        """The compared values."""
        than = "a greater one is there" if self.found is None else f"{self.fence} < {self.found}"
        return (
            f"{self.target} was not written: fence {than}. A newer attempt of this task has written"
            " it; this one was replaced while it ran."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _stale, (self.target, self.fence, self.found)


def _stale(target: str, fence: int, found: int | None) -> StaleFence:
    return StaleFence(target, fence=fence, found=found)


def upsert_statement(
    table: str, *, key: Sequence[str], values: Sequence[str], placeholder: str = "?"
) -> str:
    """The guarded upsert as SQL: one row, written unless a greater fence has written it.

    Parameters in order: the columns of ``key``, those of ``values``, the fence. The table needs a
    unique index over ``key`` and a column ``fence`` (a 64-bit integer). Raises ``ValueError``.
    """
    columns = [*key, *values, FENCE_COLUMN]
    for name in (*table.split("."), *columns):
        if not NAME.fullmatch(name):
            message = f"{name!r} is no plain name of a table or column"
            raise ValueError(message)
    if not key or len({*columns}) != len(columns):
        message = f"the columns must be different ones, and some of them the key: {columns}"
        raise ValueError(message)
    short = table.rpartition(".")[2]
    changed = ", ".join(f"{name} = excluded.{name}" for name in (*values, FENCE_COLUMN))
    return (
        f"INSERT INTO {table} ({', '.join(columns)})"  # noqa: S608 - plain names, checked above
        f" VALUES ({', '.join([placeholder] * len(columns))})"
        f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changed}"
        f" WHERE {short}.{FENCE_COLUMN} <= excluded.{FENCE_COLUMN}"
    )


def fenced_upsert(
    connection: Any,
    table: str,
    *,
    ctx: Context,
    values: Mapping[str, object],
    key: Mapping[str, object] | None = None,
) -> None:
    """The row of this flow, this logical date and ``key`` has these values; once, however often asked.

    The table has the columns ``flow_id``, ``logical_date``, those of ``key`` (together unique), those
    of ``values``, and ``fence``. The logical date is given as text in UTC to SQLite, and as a time to
    the others; a run without one is known by its run id. Part of the caller's transaction.
    Raises ``StaleFence`` if a newer attempt wrote the row; nothing was changed then.
    """
    row: dict[str, object] = {
        "flow_id": ctx.flow_id,
        "logical_date": _date(connection, ctx),
        **(key or {}),
    }
    placeholder = _placeholder(connection)
    statement = upsert_statement(table, key=list(row), values=list(values), placeholder=placeholder)
    cursor = connection.cursor()
    try:
        cursor.execute(statement, [*row.values(), *values.values(), ctx.fence])
        if cursor.rowcount == 0:
            where = " AND ".join(f"{name} = {placeholder}" for name in row)
            cursor.execute(
                f"SELECT {FENCE_COLUMN} FROM {table} WHERE {where}",  # noqa: S608 - checked names
                list(row.values()),
            )
            found = cursor.fetchone()
            raise StaleFence(table, fence=ctx.fence, found=found[0] if found else None)
    finally:
        cursor.close()


@contextmanager
def fenced(connection: Any, target: str, *, ctx: Context) -> Iterator[Any]:
    """A transaction of this attempt alone: any statements, all of them or none.

    Gives a cursor. The guard is a row of the table ``daylight_fence``, which is made if it is not
    there, so the connection must have no transaction open: while this transaction is open no other attempt of the same flow and logical date is past
    its guard for the same ``target``, and afterwards none with a smaller fence ever is. Committed at
    the end of the block, rolled back if it raises. Raises ``StaleFence`` before the block runs.
    """
    _check_idle(connection)
    _make_guard_table(connection)
    _begin(connection)
    cursor = connection.cursor()
    try:
        placeholder = _placeholder(connection)
        key = [ctx.flow_id, _date_text(ctx), target]
        cursor.execute(
            upsert_statement(
                GUARD_TABLE,
                key=(*KEY_COLUMNS, "target"),
                values=("attempt_id",),
                placeholder=placeholder,
            ),
            [*key, ctx.attempt_id, ctx.fence],
        )
        if cursor.rowcount == 0:
            cursor.execute(
                f"SELECT fence FROM {GUARD_TABLE} WHERE flow_id = {placeholder}"  # noqa: S608 - constants
                f" AND logical_date = {placeholder} AND target = {placeholder}",
                key,
            )
            found = cursor.fetchone()
            raise StaleFence(target, fence=ctx.fence, found=found[0] if found else None)
        yield cursor
    except BaseException:
        connection.rollback()
        raise
    else:
        connection.commit()
    finally:
        cursor.close()


def _make_guard_table(connection: Any) -> None:
    cursor = connection.cursor()
    try:
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {GUARD_TABLE} (flow_id text NOT NULL,"
            " logical_date text NOT NULL, target text NOT NULL, fence bigint NOT NULL,"
            " attempt_id text NOT NULL, PRIMARY KEY (flow_id, logical_date, target))"
        )
        connection.commit()
    except Exception:  # noqa: BLE001 - of whatever module the connection is
        # Two that make it at once: one of them may be told that it is there.
        connection.rollback()
        cursor.execute(f"SELECT 1 FROM {GUARD_TABLE} LIMIT 1")  # noqa: S608 - a constant
        connection.commit()
    finally:
        cursor.close()


def _begin(connection: Any) -> None:
    """SQLite's module begins late, and never in autocommit: said aloud, before the guard."""
    if _module(connection) == "sqlite3":
        connection.execute("BEGIN IMMEDIATE")


def _check_idle(connection: Any) -> None:
    """Raises ``ValueError`` where a block would commit somebody else's work, or none at all."""
    status = getattr(getattr(connection, "info", None), "transaction_status", 0)
    if getattr(connection, "in_transaction", False) or status != 0:
        message = "this connection has a transaction open; commit it before a fenced block"
        raise ValueError(message)
    if _module(connection) != "sqlite3" and getattr(connection, "autocommit", False):
        message = "this connection commits each statement; open it without autocommit"
        raise ValueError(message)


def _date(connection: Any, ctx: Context) -> object:
    if ctx.logical_date is None or _module(connection) == "sqlite3":
        return _date_text(ctx)
    return ctx.logical_date


def _date_text(ctx: Context) -> str:
    at: datetime | None = ctx.logical_date
    return ctx.run_id if at is None else at.astimezone(UTC).isoformat()


def _module(connection: Any) -> str:
    return type(connection).__module__.partition(".")[0].lstrip("_")


def _placeholder(connection: Any) -> str:
    """How the connection's module writes a parameter."""
    style = getattr(sys.modules.get(_module(connection)), "paramstyle", "")
    marks = {"qmark": "?", "format": "%s", "pyformat": "%s"}
    if style not in marks:
        message = (
            f"{type(connection).__module__} writes parameters as {style or 'unknown'!r}; give a"
            " connection of sqlite3, psycopg or another module with ? or %s"
        )
        raise ValueError(message)
    return marks[style]
