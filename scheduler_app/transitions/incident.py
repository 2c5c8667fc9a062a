"""Incidents: conditions that a person must know of; one open row per kind and subject."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import dict_row, tuple_row

if TYPE_CHECKING:
    import psycopg

# What is over for less than this and comes back has not been away: it is the same incident, and its
# end is told only after it.
SETTLE_S: Final = 300.0

_RAISE: Final = """
WITH again AS (
  UPDATE incident n
     SET resolved_at = NULL, resolution = '', count = n.count + 1, message = %(message)s::text
   WHERE n.id = (SELECT o.id FROM incident o WHERE o.kind = %(kind)s AND o.subject = %(subject)s
                  ORDER BY o.id DESC LIMIT 1)
     AND n.resolved_at > clock_timestamp() - make_interval(secs => %(settle_s)s::float8)
     AND NOT n.is_end_told
  RETURNING n.id)
INSERT INTO incident (kind, subject, message, raised_at, flow_id, run_id, shard, lease_token)
SELECT %(kind)s::varchar, %(subject)s::varchar, %(message)s::text, clock_timestamp(),
       %(flow_id)s::varchar, %(run_id)s::bigint, %(shard)s::int, %(lease_token)s::bigint
 WHERE NOT EXISTS (SELECT 1 FROM again)
   -- Every sweep says it again: no number is used up, and no row written, by that.
   AND NOT EXISTS (SELECT 1 FROM incident o WHERE o.kind = %(kind)s AND o.subject = %(subject)s
                      AND o.resolved_at IS NULL AND o.message = %(message)s::text)
    ON CONFLICT (kind, subject) WHERE resolved_at IS NULL
    DO UPDATE SET message = excluded.message WHERE incident.message <> excluded.message
"""


def raise_incident(
    connection: psycopg.Connection[Any],
    *,
    kind: str,
    subject: str,
    message: str,
    flow_id: str | None = None,
    run_id: int | None = None,
    shard: int | None = None,
    lease_token: int | None = None,
) -> None:
    """An open incident of this kind and subject exists, with the newest message.

    It is told, once, to the notifiers of its flow; without a flow, or where that has none, to those
    of the installation. ``shard`` and ``lease_token``: under which lease it was decided.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            _RAISE,
            {
                "kind": kind,
                "subject": subject,
                "message": message,
                "flow_id": flow_id,
                "run_id": run_id,
                "shard": shard,
                "lease_token": lease_token,
                "settle_s": SETTLE_S,
            },
        )


def resolve_incident(
    connection: psycopg.Connection[Any], *, kind: str, subject: str, resolution: str = ""
) -> None:
    """No incident of this kind and subject is open; ``resolution`` says how it ended."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE incident SET resolved_at = clock_timestamp(), resolution = %s"
            " WHERE kind = %s AND subject = %s AND resolved_at IS NULL",
            [resolution, kind, subject],
        )


def resolve_old_incidents(
    connection: psycopg.Connection[Any], *, kind: str, older_than_s: float
) -> None:
    """No incident of this kind is open that was raised longer ago: for what has no other end."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE incident SET resolved_at = clock_timestamp()"
            " WHERE kind = %s AND resolved_at IS NULL"
            " AND raised_at < clock_timestamp() - make_interval(secs => %s::float8)",
            [kind, older_than_s],
        )


def open_subjects(connection: psycopg.Connection[Any], *, kind: str) -> frozenset[str]:
    """The subjects of the open incidents of this kind."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT subject FROM incident WHERE kind = %s AND resolved_at IS NULL", [kind]
        )
        return frozenset(row[0] for row in cursor.fetchall())


def acknowledge(
    connection: psycopg.Connection[Any], *, incident_id: int, actor: str, note: str, ends: bool
) -> dict[str, Any] | None:
    """The incident was acknowledged now, and with ``ends`` is resolved too; what it was before.

    ``None`` if it does not exist. One dict: id, kind, subject, flow_id, resolved_at,
    acknowledged_at, acknowledged_by, acknowledge_note.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT id, kind, subject, flow_id, resolved_at, acknowledged_at, acknowledged_by,"
            " acknowledge_note FROM incident WHERE id = %s FOR NO KEY UPDATE",
            [incident_id],
        )
        before = cursor.fetchone()
        cursor.execute(
            "UPDATE incident SET acknowledged_at = clock_timestamp(), acknowledged_by = %(actor)s,"
            "  acknowledge_note = %(note)s,"
            "  resolved_at = CASE WHEN %(ends)s THEN clock_timestamp() END,"
            "  resolution = CASE WHEN %(ends)s THEN %(resolution)s ELSE '' END,"
            # Who has just said so knows.
            "  is_end_told = %(ends)s"
            " WHERE id = %(id)s AND resolved_at IS NULL AND acknowledged_at IS NULL",
            {
                "id": incident_id,
                "actor": actor,
                "note": note,
                "ends": ends,
                "resolution": f"{actor} acknowledged it.",
            },
        )
        return before
