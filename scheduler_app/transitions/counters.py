"""Counters of the metrics page: rows, so that every process's share is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import psycopg

# A counter has several rows where many transactions count at a time: each waits for the commit of the one
# that counted in its row before. They are told apart by connection, and a metric is their sum.
ROWS_MAX: Final = 16
_ROW: Final = f"(pg_backend_pid() %% {ROWS_MAX})::text"
# As a part of a statement: the counter %(counter)s is higher by one for each row of r.
ONE_MORE_OF_EACH: Final = (
    f"INSERT INTO counter (name, labels, value) SELECT %(counter)s, {_ROW}, count(*) FROM r"  # noqa: S608 - constants
    " HAVING count(*) > 0"
    " ON CONFLICT (name, labels) DO UPDATE SET value = counter.value + excluded.value"
)


def count(connection: psycopg.Connection[Any], name: str, by: int) -> None:
    """The counter is higher by ``by``. Part of the caller's transaction; last, since rows are hot."""
    if by == 0:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO counter (name, labels, value) VALUES (%s, '', %s)"
            " ON CONFLICT (name, labels) DO UPDATE SET value = counter.value + excluded.value",
            [name, by],
        )
