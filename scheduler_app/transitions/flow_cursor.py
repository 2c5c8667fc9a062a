"""The cursor of a flow's schedule: which data interval gets its run next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg.rows import tuple_row

if TYPE_CHECKING:
    from datetime import datetime

    import psycopg

    from scheduler_app.rules.timetable import DataInterval


def move_cursor(
    connection: psycopg.Connection[Any],
    *,
    flow_id: str,
    seen: DataInterval,
    following: DataInterval | None,
    is_in_line: bool = False,
    last: DataInterval | None = None,
) -> bool:
    """The interval that was seen is the flow's last, and ``following`` its next; false if it moved.

    Or ``last`` is, where all from ``seen`` up to it were seen to. With ``is_in_line`` the flow
    stands in line for as long as before, if it did. Part of the transaction that created the run
    of ``seen``.
    """
    done = last or seen
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "UPDATE flow SET last_interval_start = %(last_start)s, last_interval_end = %(last_end)s,"
            " next_interval_start = %(next_start)s, next_interval_end = %(next_end)s,"
            " in_line_from = CASE WHEN %(is_in_line)s THEN in_line_from END,"
            " updated_at = clock_timestamp()"
            " WHERE flow_id = %(flow)s AND next_interval_start = %(start)s"
            " AND next_interval_end = %(end)s RETURNING flow_id",
            {
                "flow": flow_id,
                "start": seen.start,
                "end": seen.end,
                "last_start": done.start,
                "last_end": done.end,
                "next_start": following.start if following else None,
                "next_end": following.end if following else None,
                "is_in_line": is_in_line,
            },
        )
        return cursor.fetchone() is not None


def set_cursor(
    connection: psycopg.Connection[Any], *, flow_id: str, following: DataInterval | None
) -> None:
    """The flow's next interval is ``following``, whatever it was; null when none follows."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE flow SET next_interval_start = %s, next_interval_end = %s,"
            " updated_at = clock_timestamp() WHERE flow_id = %s",
            [following.start if following else None, following.end if following else None, flow_id],
        )


def stand_in_line(connection: psycopg.Connection[Any], *, flow_id: str, since: datetime) -> None:
    """Of the intervals that are due from ``since`` on none is left out before the flow caught up."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE flow SET in_line_from = %s, updated_at = clock_timestamp() WHERE flow_id = %s",
            [since, flow_id],
        )
