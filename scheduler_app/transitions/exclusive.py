"""Keys that one execution at a time may hold: taken, taken over from what has ended, let go.

The key's row is locked by a statement of its own before it is looked at who holds it: so the look sees
every attempt that was issued before the lock was had, and none is taken for ended that is only new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import tuple_row

if TYPE_CHECKING:
    from uuid import UUID

    import psycopg

# Only an attempt that is its task instance's current one, claimed by this delivery, and running.
_MINE: Final = (
    "SELECT i.attempt_id FROM task_instance i WHERE i.id = %(ti)s AND i.attempt_id = %(attempt)s"
    " AND i.claim_nonce = %(nonce)s AND i.state = 'running' FOR SHARE OF i"
)
_TAKE: Final = (
    "INSERT INTO exclusive (key, attempt_id, at) VALUES (%(key)s, %(attempt)s, clock_timestamp())"
    " ON CONFLICT (key) DO NOTHING RETURNING key"
)
_LOCK: Final = "SELECT key FROM exclusive WHERE key = %(key)s FOR UPDATE"
_TAKE_OVER: Final = (
    "UPDATE exclusive e SET attempt_id = %(attempt)s, at = clock_timestamp() WHERE e.key = %(key)s"
    " AND (e.attempt_id = %(attempt)s OR NOT EXISTS"
    "  (SELECT 1 FROM attempt p WHERE p.id = e.attempt_id AND p.is_live)) RETURNING e.key"
)
_HOLDER: Final = (
    "SELECT coalesce(r.flow_id || ', ', '') || coalesce(r.run_key || ', ', '') ||"
    " coalesce('task ' || p.task_id, 'attempt ' || e.attempt_id) ||"
    " to_char(e.at AT TIME ZONE 'UTC', '\", since \"HH24:MI:SS\" UTC\"')"
    " FROM exclusive e LEFT JOIN attempt p ON p.id = e.attempt_id LEFT JOIN run r ON r.id = p.run_id"
    " WHERE e.key = %(key)s"
)


def take_exclusive(
    connection: psycopg.Connection[Any], *, key: str, ti_id: int, attempt_id: UUID, nonce: UUID
) -> tuple[bool, str | None]:
    """Whether the attempt is the current one; and who holds the key, ``None`` where it does now."""
    given = {"key": key, "ti": ti_id, "attempt": attempt_id, "nonce": nonce}
    with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
        if cursor.execute(_MINE, given).fetchone() is None:
            return False, None
        if cursor.execute(_TAKE, given).fetchone() is not None:
            return True, None
        if cursor.execute(_LOCK, given).fetchone() is None:
            return True, "an execution that has just let it go"
        if cursor.execute(_TAKE_OVER, given).fetchone() is not None:
            return True, None
        found = cursor.execute(_HOLDER, given).fetchone()
        return True, found[0] if found else "somebody"


def let_go(connection: psycopg.Connection[Any], *, key: str, attempt_id: UUID) -> None:
    """The attempt does not hold the key any more."""
    connection.execute(
        "DELETE FROM exclusive WHERE key = %s AND attempt_id = %s", [key, attempt_id]
    )
