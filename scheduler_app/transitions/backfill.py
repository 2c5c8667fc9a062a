"""Backfills: asked for, advanced date by date, paused, cancelled, ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.rows import dict_row, tuple_row
from psycopg.types.json import Jsonb

from scheduler_app.rules.backfill import DateState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    import psycopg

    from scheduler_app.rules.backfill import Decision
    from scheduler_app.rules.timetable import DataInterval

REASON_CHARACTERS_MAX = 250  # the column's width


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBackfill:
    """What a backfill is made with. Times aware UTC."""

    flow_id: str
    shard: int
    version_id: int
    from_date: datetime
    to_date: datetime
    is_backwards: bool
    reprocess: str
    max_active_runs: int
    conf: Mapping[str, Any]
    actor: str
    reason: str


def create_backfill(
    connection: psycopg.Connection[Any], *, new: NewBackfill, dates: Sequence[DataInterval]
) -> int | None:
    """The backfill and its dates exist, all waiting; its id. Null: the flow has an active one."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "INSERT INTO backfill (flow_id, shard, version_id, from_date, to_date, is_backwards,"
            " reprocess, max_active_runs, conf, actor, reason, is_active, created_at, cancelled_by)"
            " VALUES (%(flow_id)s, %(shard)s, %(version_id)s, %(from_date)s, %(to_date)s,"
            " %(is_backwards)s, %(reprocess)s, %(max_active_runs)s, %(conf)s, %(actor)s, %(reason)s,"
            " true, clock_timestamp(), '') ON CONFLICT DO NOTHING RETURNING id",
            {
                "flow_id": new.flow_id,
                "shard": new.shard,
                "version_id": new.version_id,
                "from_date": new.from_date,
                "to_date": new.to_date,
                "is_backwards": new.is_backwards,
                "reprocess": new.reprocess,
                "max_active_runs": new.max_active_runs,
                "conf": Jsonb(dict(new.conf)),
                "actor": new.actor,
                "reason": new.reason,
            },
        )
        row = cursor.fetchone()
        if row is None:
            return None
        cursor.execute(
            "INSERT INTO backfill_date (backfill_id, position, logical_date, data_interval_start,"
            " data_interval_end, state, is_waiting, reason)"
            " SELECT %(backfill)s, u.place - 1, u.start, u.start, u.until, 'waiting', true, ''"
            " FROM unnest(%(start)s::timestamptz[], %(end)s::timestamptz[]) WITH ORDINALITY"
            "  AS u(start, until, place)",
            {
                "backfill": row[0],
                "start": [one.start for one in dates],
                "end": [one.end for one in dates],
            },
        )
    return int(row[0])


def active_backfills(
    connection: psycopg.Connection[Any], *, shards: Sequence[int]
) -> list[dict[str, Any]]:
    """``id`` and ``flow_id`` of the active backfills of these shards. Walks ``backfill_active``."""
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT id, flow_id FROM backfill WHERE is_active AND shard = ANY(%s) ORDER BY id",
            [list(shards)],
        )
        return cursor.fetchall()


def lock_backfill(
    connection: psycopg.Connection[Any], *, backfill_id: int
) -> dict[str, Any] | None:
    """The backfill with its flow's ``is_flow_frozen``, both locked, the flow first; null if it is gone."""
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT f.frozen_at IS NOT NULL AS is_flow_frozen FROM flow f"
            " WHERE f.flow_id = (SELECT flow_id FROM backfill WHERE id = %s) FOR NO KEY UPDATE",
            [backfill_id],
        )
        flow = cursor.fetchone()
        cursor.execute("SELECT * FROM backfill WHERE id = %s FOR NO KEY UPDATE", [backfill_id])
        row = cursor.fetchone()
    return None if row is None or flow is None else {**row, **flow}


def count_active_runs(connection: psycopg.Connection[Any], *, backfill_id: int) -> int:
    """Runs of the backfill that are queued or running. Walks ``run_of_backfill``."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT count(*) FROM run WHERE backfill_id = %s AND is_active AND filter_code IS NULL",
            [backfill_id],
        )
        row = cursor.fetchone()
    return int(row[0]) if row else 0


def room_of_backfills(
    connection: psycopg.Connection[Any], *, backfill_ids: Collection[int]
) -> dict[int, int]:
    """How many more runs of each of these may be running; one that is over is left out."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT b.id, b.max_active_runs - (SELECT count(*) FROM run r WHERE r.backfill_id = b.id"
            "  AND r.is_active AND r.state = 'running' AND r.filter_code IS NULL)::int"
            " FROM backfill b WHERE b.id = ANY(%s) AND b.is_active",
            [sorted(backfill_ids)],
        )
        return dict(cursor.fetchall())


def waiting_dates(
    connection: psycopg.Connection[Any], *, backfill_id: int, limit: int
) -> list[dict[str, Any]]:
    """The next dates in their order. Walks ``backfill_date_waiting``."""
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT id, logical_date, data_interval_start, data_interval_end FROM backfill_date"
            " WHERE backfill_id = %s AND is_waiting ORDER BY position LIMIT %s",
            [backfill_id, limit],
        )
        return cursor.fetchall()


def run_of_date(
    connection: psycopg.Connection[Any], *, flow_id: str, logical_date: datetime, run_key: str
) -> int | None:
    """The current run that the date has, or one of that key; a scheduled one before others."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT id FROM run WHERE flow_id = %(flow)s"
            " AND (run_key = %(key)s OR logical_date = %(date)s AND filter_code IS NULL)"
            " ORDER BY run_type = 'scheduled' DESC, id DESC LIMIT 1",
            {"flow": flow_id, "date": logical_date, "key": run_key},
        )
        row = cursor.fetchone()
    return None if row is None else int(row[0])


def decide_date(
    connection: psycopg.Connection[Any], *, date_id: int, decision: Decision, run_id: int | None
) -> None:
    """The date is over for its backfill: what became of it, and by which run."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE backfill_date SET state = %s, is_waiting = false, run_id = %s, reason = %s,"
            " decided_at = clock_timestamp() WHERE id = %s AND is_waiting",
            [decision.state, run_id, decision.reason[:REASON_CHARACTERS_MAX], date_id],
        )


def claim_run(connection: psycopg.Connection[Any], *, run_id: int, backfill_id: int) -> None:
    """The run counts among those of the backfill."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE run SET backfill_id = %s WHERE id = %s", [backfill_id, run_id])


def end_backfill(connection: psycopg.Connection[Any], *, backfill_id: int) -> bool:
    """Whether the backfill ended now: no date waits and no run of it is active, or begins again."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "UPDATE backfill SET is_active = false, ended_at = clock_timestamp()"
            " WHERE id = %(id)s AND is_active"
            " AND NOT EXISTS (SELECT 1 FROM backfill_date d WHERE d.backfill_id = %(id)s AND d.is_waiting)"
            " AND NOT EXISTS (SELECT 1 FROM run r WHERE r.backfill_id = %(id)s"
            "  AND (r.is_active OR r.retry_at IS NOT NULL) AND r.filter_code IS NULL) RETURNING id",
            {"id": backfill_id},
        )
        return cursor.fetchone() is not None


def set_backfill_paused(
    connection: psycopg.Connection[Any], *, backfill_id: int, is_paused: bool
) -> None:
    """No further run is made before it goes on, or it goes on."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE backfill SET paused_at = CASE WHEN %s THEN coalesce(paused_at, clock_timestamp())"
            " END WHERE id = %s",
            [is_paused, backfill_id],
        )


def set_backfill_limit(
    connection: psycopg.Connection[Any], *, backfill_id: int, max_active_runs: int
) -> None:
    """So many of its runs may be active at a time from now on."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE backfill SET max_active_runs = %s WHERE id = %s", [max_active_runs, backfill_id]
        )


def cancel_waiting(
    connection: psycopg.Connection[Any], *, backfill_id: int, actor: str, reason: str
) -> int:
    """The dates that wait get no run any more; how many those were. What runs goes on."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE backfill SET cancelled_at = clock_timestamp(), cancelled_by = %s, paused_at = NULL"
            " WHERE id = %s",
            [actor, backfill_id],
        )
        cursor.execute(
            "UPDATE backfill_date SET state = %s, is_waiting = false, reason = %s,"
            " decided_at = clock_timestamp() WHERE backfill_id = %s AND is_waiting",
            [
                DateState.CANCELLED,
                f"{actor} cancelled it: {reason}"[:REASON_CHARACTERS_MAX],
                backfill_id,
            ],
        )
        return cursor.rowcount
