"""Executor events: record what a witness says, and the verdict, once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb

from scheduler_app.transitions.counters import count

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    import psycopg


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict with its reason, as the pure rules gave it. ``code`` null for a confirmed event."""

    verdict: str  # confirmed, ignored, refused, ghost
    code: str | None
    reason: str
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """One statement of a witness. Parents are looked up from the attempt where there is one.

    Without an attempt id it is about ``try_number`` of the task instance ``ti_id``.
    """

    attempt_id: UUID | None
    kind: str
    source: str
    ti_id: int | None = None
    try_number: int | None = None
    source_job_id: UUID | None = None
    payload: dict[str, Any] = field(default_factory=dict)
    dedupe_key: str | None = None
    judgement: Judgement | None = None  # null: pending, the scheduler judges


_RECORD = """
INSERT INTO executor_event (attempt_id, ti_id, run_id, task_id, map_index, try_number, shard, kind,
                            source, source_job_id, payload, dedupe_key, received_at, verdict,
                            verdict_code, verdict_reason, verdict_detail, judged_at, filter_code,
                            filtered_at, filter_detail)
SELECT u.attempt_id, coalesce(a.ti_id, i.id), coalesce(a.run_id, i.run_id),
       coalesce(a.task_id, i.task_id), coalesce(a.map_index, i.map_index),
       coalesce(a.try_number, u.try_number), coalesce(a.shard, i.shard, 0), u.kind, u.source, u.source_job_id, u.payload, u.dedupe_key, clock_timestamp(),
       coalesce(u.verdict, 'pending'), u.code, u.reason, u.detail,
       CASE WHEN u.verdict IS NULL THEN NULL ELSE clock_timestamp() END,
       CASE WHEN u.verdict IN ('ignored', 'refused', 'ghost') THEN u.code END,
       CASE WHEN u.verdict IN ('ignored', 'refused', 'ghost') THEN clock_timestamp() END,
       CASE WHEN u.verdict IN ('ignored', 'refused', 'ghost') THEN u.detail END
  FROM unnest(%(attempt_id)s::uuid[], %(ti_id)s::bigint[], %(try_number)s::int[], %(kind)s::text[],
              %(source)s::text[], %(source_job_id)s::uuid[], %(payload)s::jsonb[],
              %(dedupe_key)s::text[], %(verdict)s::text[], %(code)s::text[], %(reason)s::text[],
              %(detail)s::jsonb[])
         AS u(attempt_id, ti_id, try_number, kind, source, source_job_id, payload, dedupe_key,
              verdict, code, reason, detail)
  LEFT JOIN attempt a ON a.id = u.attempt_id
  LEFT JOIN task_instance i ON i.id = u.ti_id AND a.id IS NULL
ON CONFLICT (dedupe_key) DO NOTHING
RETURNING id
"""


def record_events(connection: psycopg.Connection[Any], *, events: Sequence[NewEvent]) -> int:
    """How many of the events are new; each has a row, judged at once where a judgement came along.

    One multi-row insert; an event whose key was seen before changes nothing.
    """
    return len(_record(connection, events)) if events else 0


def record_event(connection: psycopg.Connection[Any], *, event: NewEvent) -> int | None:
    """The event has a row; its id, or ``None`` if its key was seen before and nothing changed."""
    ids = _record(connection, [event])
    return ids[0] if ids else None


def _record(connection: psycopg.Connection[Any], events: Sequence[NewEvent]) -> list[int]:
    judgements = [event.judgement for event in events]
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            _RECORD,
            {
                "attempt_id": [e.attempt_id for e in events],
                "ti_id": [e.ti_id for e in events],
                "try_number": [e.try_number for e in events],
                "kind": [e.kind for e in events],
                "source": [e.source for e in events],
                "source_job_id": [e.source_job_id for e in events],
                "payload": [Jsonb(e.payload) for e in events],
                "dedupe_key": [e.dedupe_key for e in events],
                "verdict": [j.verdict if j else None for j in judgements],
                "code": [j.code if j else None for j in judgements],
                "reason": [j.reason if j else None for j in judgements],
                "detail": [Jsonb(j.detail) if j else None for j in judgements],
            },
        )
        new = [row[0] for row in cursor.fetchall()]
    judged = sum(1 for judgement in judgements if judgement is not None)
    refused = sum(1 for judgement in judgements if judgement and judgement.verdict == "refused")
    count(connection, "scheduler_deliveries_refused_total", refused)
    count(connection, "scheduler_executor_events_processed_total", min(judged, len(new)))
    return new


def judge_event(
    connection: psycopg.Connection[Any], *, event_id: int, judgement: Judgement
) -> bool:
    """The pending event has its verdict; false if it was judged already."""
    is_filtered = judgement.verdict in ("ignored", "refused", "ghost")
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "UPDATE executor_event SET verdict = %(verdict)s, verdict_code = %(code)s::text,"
            " verdict_reason = %(reason)s, verdict_detail = %(detail)s::jsonb,"
            " judged_at = clock_timestamp(),"
            " filter_code = CASE WHEN %(filtered)s THEN %(code)s::text END,"
            " filtered_at = CASE WHEN %(filtered)s THEN clock_timestamp() END,"
            " filter_detail = CASE WHEN %(filtered)s THEN %(detail)s::jsonb END"
            " WHERE id = %(id)s AND verdict = 'pending' RETURNING id",
            {
                "id": event_id,
                "verdict": judgement.verdict,
                "code": judgement.code,
                "reason": judgement.reason,
                "filtered": is_filtered,
                "detail": Jsonb(judgement.detail),
            },
        )
        moved = cursor.fetchone() is not None
    if moved:
        count(connection, "scheduler_executor_events_processed_total", 1)
    return moved


def record_ghost_attempt(
    connection: psycopg.Connection[Any],
    *,
    attempt_id: UUID,
    code: str,
    detail: dict[str, Any],
    hostname: str | None,
    pid: int | None,
    run_id: int | None = None,
    task_id: str | None = None,
    map_index: int | None = None,
    worker_job_id: UUID | None = None,
    is_executed: bool = False,
) -> bool:
    """An execution that nobody issued has an attempt row of that standing; false if it had one.

    ``is_executed``: user code ran for it, since before now. A row that knew no parents learns them.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "INSERT INTO attempt (id, run_id, task_id, map_index, kind, queue, pool, pool_slots, state,"
            " is_live, is_accepted, outcome, outcome_reason, publish_count, hostname, pid,"
            " worker_job_id, started_at, ended_at, filter_code, filtered_at, filter_detail)"
            " VALUES (%s, %s, %s, %s, 'task', '', '', 0, 'ended', false, false, 'lost',"
            " 'nobody issued it', 0, %s, %s, %s, CASE WHEN %s THEN clock_timestamp() END,"
            " clock_timestamp(), %s, clock_timestamp(), %s) ON CONFLICT (id) DO UPDATE"
            " SET run_id = excluded.run_id, task_id = excluded.task_id"
            " WHERE attempt.ti_id IS NULL AND attempt.run_id IS NULL AND attempt.kind = 'task'"
            "  AND excluded.run_id IS NOT NULL"
            " RETURNING xmax = 0",
            [
                attempt_id,
                run_id,
                task_id,
                map_index,
                hostname,
                pid,
                worker_job_id,
                is_executed,
                code,
                Jsonb(detail),
            ],
        )
        row = cursor.fetchone()
        return row is not None and bool(row[0])
