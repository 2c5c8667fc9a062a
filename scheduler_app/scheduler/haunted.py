"""Whether ghosts haunt that do not go by themselves: executions that no live record acknowledges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import tuple_row

from scheduler_app.rules import ghosts
from scheduler_app.rules.incidents import LIVE_GHOST
from scheduler_app.transitions.incident import raise_incident, resolve_incident

if TYPE_CHECKING:
    import psycopg

# Nobody knows what they are and what they write: told at once.
UNKNOWN: Final = (ghosts.NO_RECORD, ghosts.OTHER_DATABASE)
# Their workers end them with a heartbeat or two: told if that does not happen.
ENDED_SOON: Final = (ghosts.SUPERSEDED, ghosts.CLOSED, ghosts.TERMINAL_RUN, ghosts.TWO_LIVE)


def watch_for_ghosts(connection: psycopg.Connection[Any], *, dead_after_s: float) -> None:
    """One incident is open exactly while such executions are there, however many.

    ``dead_after_s``: how long those may take that their own workers end.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT count(*), min(first_seen_at) FROM ghost WHERE ended_at IS NULL AND (kind = ANY(%s)"
            " OR kind = ANY(%s)"
            "  AND first_seen_at < clock_timestamp() - make_interval(secs => %s::float8))",
            [list(UNKNOWN), list(ENDED_SOON), dead_after_s],
        )
        row = cursor.fetchone()
    assert row is not None
    number, since = row
    if not number:
        resolve_incident(
            connection, kind=LIVE_GHOST, subject="", resolution="None haunts any more."
        )
        return
    are = "execution goes" if number == 1 else "executions go"
    raise_incident(
        connection,
        kind=LIVE_GHOST,
        subject="",
        message=(
            f"{number} {are} on that no live record acknowledges, the first since"
            f" {since:%Y-%m-%d %H:%M:%S} UTC. What they report is not accepted, and what they write"
            " outside may overlap with others. See the page Ghosts for each, and what to do."
        ),
    )
