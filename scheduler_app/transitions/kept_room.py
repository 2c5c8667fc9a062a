"""What is kept for who needs much of a pool or of keys: told to every scheduler by a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import tuple_row

from scheduler_app.rules.capacity import Keep

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    import psycopg

LASTS_S: Final = 20.0  # without being renewed; a scheduler looks at what waits every two seconds
RENEWED_AFTER_S: Final = 5.0

KEPT_COLUMNS: Final = "k.priority, k.since, k.ti_id, k.slots, k.flow_id, k.task_id"
# Of whoever no longer waits nothing is kept, and of a scheduler that is gone not for long.
KEPT_ROWS: Final = (
    "kept_room k JOIN task_instance w ON w.id = k.ti_id AND w.is_open AND w.held_by IS NULL"
    " AND w.state IN ('none', 'scheduled', 'up_for_retry', 'up_for_reschedule')"
    " AND k.until_at > clock_timestamp()"
)


def kept_keys(connection: psycopg.Connection[Any], *, keys: Collection[str]) -> dict[str, Keep]:
    """For whom slots of these keys are kept; call it under the lock of keys. Walks primary keys."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            f"SELECT k.name, {KEPT_COLUMNS} FROM {KEPT_ROWS}"  # noqa: S608 - constants
            " WHERE k.kind = 'key' AND k.name = ANY(%s)",
            [list(keys)],
        )
        return {row[0]: Keep(*row[1:]) for row in cursor.fetchall()}


def keep(connection: psycopg.Connection[Any], *, kind: str, kept: Mapping[str, Keep]) -> None:
    """What these ask for is kept for them, unless it is for one that comes before.

    Part of the transaction that holds the pools, or the lock of keys. What is kept already is written
    again only when it is to be renewed.
    """
    if not kept:
        return
    names = sorted(kept)
    with connection.cursor() as cursor:
        cursor.execute(
            _KEEP,
            {
                "kind": kind,
                "name": names,
                "ti": [kept[name].ti_id for name in names],
                "slots": [kept[name].slots for name in names],
                "priority": [kept[name].priority for name in names],
                "since": [kept[name].since for name in names],
                "flow": [kept[name].flow_id for name in names],
                "task": [kept[name].task_id for name in names],
                "lasts_s": LASTS_S,
                "renewed_s": LASTS_S - RENEWED_AFTER_S,
            },
        )


def let_go(
    connection: psycopg.Connection[Any], *, kind: str, names: Iterable[str], ti_ids: Collection[int]
) -> None:
    """Of these pools or keys nothing is kept for these task instances any more."""
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM kept_room WHERE kind = %s AND name = ANY(%s) AND ti_id = ANY(%s)",
            [kind, sorted(names), list(ti_ids)],
        )


# An own row is renewed; another's is replaced if it no longer holds, or comes behind.
_KEEP: Final = (
    "INSERT INTO kept_room AS o (kind, name, ti_id, slots, priority, since, until_at, flow_id, task_id)"  # noqa: S608 - constants
    " SELECT %(kind)s, u.name, u.ti, u.slots, u.priority, u.since,"
    "  clock_timestamp() + make_interval(secs => %(lasts_s)s), u.flow, u.task"
    "  FROM unnest(%(name)s::text[], %(ti)s::bigint[], %(slots)s::int[], %(priority)s::int[],"
    "   %(since)s::timestamptz[], %(flow)s::text[], %(task)s::text[])"
    "   AS u(name, ti, slots, priority, since, flow, task)"
    " ON CONFLICT (kind, name) DO UPDATE SET ti_id = excluded.ti_id, slots = excluded.slots,"
    "  priority = excluded.priority, since = excluded.since, until_at = excluded.until_at,"
    "  flow_id = excluded.flow_id, task_id = excluded.task_id"
    " WHERE CASE WHEN o.ti_id = excluded.ti_id"
    "   THEN o.until_at < clock_timestamp() + make_interval(secs => %(renewed_s)s)"
    "    OR (o.slots, o.priority) IS DISTINCT FROM (excluded.slots, excluded.priority)"
    "   ELSE (-excluded.priority, excluded.since, excluded.ti_id) < (-o.priority, o.since, o.ti_id)"
    "    OR NOT EXISTS (SELECT 1 FROM " + KEPT_ROWS + ""
    "     WHERE k.kind = o.kind AND k.name = o.name) END"
)
