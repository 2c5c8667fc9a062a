"""Attempts without a heartbeat whose worker beats: it is asked whether it runs them, before they are lost."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from psycopg.rows import dict_row

from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.inquiry import ask_workers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    import psycopg

WHY: Final = "silent_attempt"

logger = logging.getLogger(__name__)


def absent(
    connection: psycopg.Connection[Any], *, asked_by: UUID, stale: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Of these attempts, each with ``attempt_id worker_job_id seen_at``: those that may be lost.

    Its worker is silent as well, or was asked since and does not have it, or beats and has not
    answered for as long as a silent worker is given. The others' workers are asked, if need be.
    """
    if not stale:
        return []
    found = _answers(connection, stale)
    gone: list[dict[str, Any]] = []
    to_ask: set[UUID] = set()
    for row in stale:
        answer = found.get(row["attempt_id"])
        if answer is None or answer["is_absent"]:
            gone.append(row)
        elif answer["is_to_be_asked"]:
            to_ask.add(row["worker_job_id"])
        elif answer["has_it"]:
            logger.warning(
                "an attempt without a heartbeat is run by its worker, which was asked",
                extra={"attempt_id": str(row["attempt_id"])},
            )
    if to_ask:
        ask_workers(
            connection,
            ask_id=uuid7(),
            asked_by=asked_by,
            why=WHY,
            beat_within_s=settings.HEARTBEAT_DEAD_AFTER_S,
            worker_job_ids=sorted(to_ask),
        )
    return gone


def _answers(
    connection: psycopg.Connection[Any], stale: Sequence[dict[str, Any]]
) -> dict[UUID, dict[str, Any]]:
    """By attempt, for those whose worker beats: what the questions since its silence came to.

    Walks ``inquiry_of_worker``.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            _ANSWERS,
            {
                "attempt": [row["attempt_id"] for row in stale],
                "worker": [row["worker_job_id"] for row in stale],
                "seen": [row["seen_at"] for row in stale],
                "dead_after_s": settings.HEARTBEAT_DEAD_AFTER_S,
            },
        )
        return {row["attempt_id"]: row for row in cursor.fetchall()}


_ANSWERS: Final = """
SELECT u.attempt_id,
       q.answered_at IS NOT NULL AND h.has_it AS has_it,
       q.answered_at IS NOT NULL AND NOT h.has_it
         OR q.answered_at IS NULL AND q.asked_at < d.before AS is_absent,
       q.asked_at IS NULL OR q.answered_at < d.before AND h.has_it AS is_to_be_asked
  FROM unnest(%(attempt)s::uuid[], %(worker)s::uuid[], %(seen)s::timestamptz[])
         AS u(attempt_id, worker_job_id, seen_at)
  CROSS JOIN (SELECT clock_timestamp() - make_interval(secs => %(dead_after_s)s::float8)) AS d(before)
  JOIN job j ON j.id = u.worker_job_id AND j.ended_at IS NULL AND j.heartbeat_at > d.before
  LEFT JOIN LATERAL (
    SELECT i.asked_at, i.answered_at, i.holdings FROM inquiry i
     WHERE i.worker_job_id = u.worker_job_id AND i.asked_at > u.seen_at
     ORDER BY i.answered_at DESC NULLS LAST, i.asked_at LIMIT 1) q ON true
  CROSS JOIN LATERAL (
    SELECT coalesce(q.holdings @> jsonb_build_array(
             jsonb_build_object('attempt_id', u.attempt_id::text)), false)) AS h(has_it)
"""
