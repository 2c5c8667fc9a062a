"""Sign-ins: a failure is counted before its password is looked at, and taken back if it was right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import tuple_row

from scheduler_app.rules.sign_in import Failures, Limits, wait_s

if TYPE_CHECKING:
    import psycopg

TURN: Final = 0x5163_6E69  # of the advisory lock: sign-ins are counted one after the other
KNOWN_DAYS: Final = 30


def begin(
    connection: psycopg.Connection[Any], *, name_digest: str, address: str, limits: Limits
) -> tuple[int | None, float, bool]:
    """The id of the failure that is counted for now, or ``None`` and how many seconds it has to wait.

    The third value: whether the next failure will have to wait. One transaction, so that no number of
    requests at a time gets more than the limits allow.
    """
    with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [TURN])
        cursor.execute(
            "DELETE FROM sign_in WHERE NOT is_success"
            "  AND at < clock_timestamp() - make_interval(secs => %s)"
            " OR at < clock_timestamp() - make_interval(days => %s)",
            [limits.window_s, KNOWN_DAYS],
        )
        seen = _failures(connection, name_digest=name_digest, address=address)
        wait = wait_s(seen, limits)
        if wait > 0:
            return None, wait, True
        cursor.execute(
            "INSERT INTO sign_in (name_digest, address, is_success, at)"
            " VALUES (%s, %s, false, clock_timestamp()) RETURNING id",
            [name_digest, address],
        )
        row = cursor.fetchone()
        assert row is not None, "an insert returns its row"
        following = Failures(
            own=[0.0, *seen.own],
            of_name=[0.0, *seen.of_name],
            of_address=[0.0, *seen.of_address],
            is_known=seen.is_known,
        )
        return row[0], 0.0, wait_s(following, limits) > 0


def succeed(connection: psycopg.Connection[Any], *, sign_in: int) -> None:
    """It was right: the name's failures from there no longer count, and it is known there."""
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [TURN])
        cursor.execute(
            "DELETE FROM sign_in other USING sign_in own WHERE own.id = %(id)s AND other.id <> own.id"
            " AND other.name_digest = own.name_digest AND other.address = own.address",
            {"id": sign_in},
        )
        cursor.execute("UPDATE sign_in SET is_success = true WHERE id = %s", [sign_in])


def _failures(connection: psycopg.Connection[Any], *, name_digest: str, address: str) -> Failures:
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT extract(epoch FROM clock_timestamp() - at)::float8, name_digest = %(name)s,"
            "  address = %(address)s, is_success FROM sign_in"
            " WHERE name_digest = %(name)s OR address = %(address)s ORDER BY at DESC, id DESC",
            {"name": name_digest, "address": address},
        )
        rows = cursor.fetchall()
    failed = [row for row in rows if not row[3]]
    return Failures(
        own=[age for age, is_name, is_address, _ in failed if is_name and is_address],
        of_name=[age for age, is_name, _, _ in failed if is_name],
        of_address=[age for age, _, is_address, _ in failed if is_address],
        is_known=any(row[1] and row[2] and row[3] for row in rows),
    )
