"""Whether a scheduler gets on: who decides cannot be the one to tell that nobody does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg.rows import tuple_row

from scheduler_app.rules.incidents import NO_SCHEDULER
from scheduler_app.transitions.incident import raise_incident, resolve_incident

if TYPE_CHECKING:
    import psycopg


def watch_for_schedulers(connection: psycopg.Connection[Any], *, dead_after_s: float) -> None:
    """An incident is open exactly while no scheduler's loop gets on."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT 1 FROM job WHERE kind = 'scheduler' AND ended_at IS NULL"
            " AND progress_at > clock_timestamp() - make_interval(secs => %s::float8)),"
            " (SELECT max(progress_at) FROM job WHERE kind = 'scheduler')",
            [dead_after_s],
        )
        row = cursor.fetchone()
    assert row is not None
    gets_on, last_at = row
    if gets_on:
        resolve_incident(
            connection, kind=NO_SCHEDULER, subject="", resolution="A scheduler gets on."
        )
        return
    since = "ever" if last_at is None else f"since {last_at:%Y-%m-%d %H:%M:%S} UTC"
    raise_incident(
        connection,
        kind=NO_SCHEDULER,
        subject="",
        message=(
            f"No scheduler has got on {since}: nothing starts, nothing is retried, and no run ends."
            " Start one with `manage.py scheduler`, or look at its log."
        ),
    )
