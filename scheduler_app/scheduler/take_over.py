"""What a new leader finds in a shard: every live attempt is gone over before it dispatches there.

Workers are asked which attempts they run (a row each; they answer at their next heartbeat), and the
items of the take-over are decided as answers, heartbeats, reports and losses come in.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings

from scheduler_app.processes import failpoints
from scheduler_app.rules import take_over as rules
from scheduler_app.transitions.executor_event import record_ghost_attempt
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.inquiry import ask_workers
from scheduler_app.transitions.take_over import (
    OpenItem,
    Unacknowledged,
    begin_take_overs,
    decide_items,
    end_take_overs,
    open_items,
    record_found_ghost,
    recount,
    unacknowledged,
)

if TYPE_CHECKING:
    import psycopg

    from scheduler_app.scheduler.leases import Leases

ITEMS_MAX: Final = 500  # looked at in one round
GHOST_CODE: Final = "ghost_after_takeover"

logger = logging.getLogger(__name__)


def take_over(
    connection: psycopg.Connection[Any], *, leases: Leases, new_terms: dict[int, int]
) -> None:
    """Each newly held shard has a take-over with one item per live attempt, and workers are asked.

    Items whose facts suffice are decided at once. Adoption changes nothing on the attempt.
    One transaction. Raises ``Fenced``.
    """
    if not new_terms:
        return
    with connection.transaction():
        leases.prove(connection, new_terms)
        ask_id = uuid7()
        items = begin_take_overs(connection, holder=leases.holder, terms=new_terms, ask_id=ask_id)
        asked = ask_workers(
            connection,
            ask_id=ask_id,
            asked_by=leases.holder,
            why="take_over",
            beat_within_s=settings.HEARTBEAT_DEAD_AFTER_S,
        )
        _decide(connection, shards=sorted(new_terms))
        recount(connection, shards=sorted(new_terms))
        failpoints.reach("take_over.before_commit")
    failpoints.reach("take_over.after_commit")
    logger.info(
        "shards were gone over",
        extra={"shards": sorted(new_terms), "live_attempts": items, "workers_asked": asked},
    )


def follow_up(
    connection: psycopg.Connection[Any], *, leases: Leases, terms: dict[int, int]
) -> list[int]:
    """Open take-overs of these shards are as far as the facts allow; shards whose report is complete.

    Raises ``Fenced``.
    """
    if not _has_open(connection, terms):
        return []
    with connection.transaction():
        leases.prove(connection, terms)
        _decide(connection, shards=sorted(terms))
        for one in unacknowledged(connection, shards=sorted(terms), grace_s=settings.EXIT_GRACE_S):
            _record_ghost(connection, one)
        recount(connection, shards=sorted(terms))
        return end_take_overs(
            connection, shards=sorted(terms), answer_within_s=settings.HEARTBEAT_DEAD_AFTER_S
        )


def _has_open(connection: psycopg.Connection[Any], terms: dict[int, int]) -> bool:
    """Walks ``take_over_open``."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM take_over WHERE shard = ANY(%s) AND ended_at IS NULL LIMIT 1",
            [list(terms)],
        )
        return cursor.fetchone() is not None


def _decide(connection: psycopg.Connection[Any], *, shards: list[int]) -> None:
    items = open_items(
        connection,
        shards=shards,
        dead_after_s=settings.HEARTBEAT_DEAD_AFTER_S,
        limit=ITEMS_MAX,
    )
    decided = [(item, *rules.decide(_facts(item))) for item in items]
    decide_items(
        connection,
        decided=[
            (item.item_id, decision.value, reason)
            for item, decision, reason in decided
            if decision is not rules.Decision.OPEN or reason != item.reason
        ],
    )


def _facts(item: OpenItem) -> rules.Facts:
    return rules.Facts(
        found=rules.Found(item.found),
        state=item.state,
        outcome=item.outcome,
        outcome_reason=item.outcome_reason or "",
        is_accepted=item.is_accepted,
        is_published=item.is_published,
        place=f"{item.hostname}:{item.pid}" if item.hostname else "a process that is not known",
        is_worker_alive=item.is_worker_alive,
        asked_at=item.asked_at,
        answered_at=item.answered_at,
        has_it=item.has_it,
        heartbeat_at=item.heartbeat_at,
    )


def _record_ghost(connection: psycopg.Connection[Any], one: Unacknowledged) -> None:
    place = f"{one.hostname}:{one.pid}"
    if one.is_known:
        said = f"it ended as {one.outcome or one.state} at {one.ended_at:%H:%M:%S} UTC"
        reason = f"{place} still runs it, although {said}."
    else:
        reason = f"{place} runs it, and this database never issued it."
        record_ghost_attempt(
            connection,
            attempt_id=one.attempt_id,
            code=GHOST_CODE,
            detail={
                "rule": "take_over",
                "attempt_id": str(one.attempt_id),
                "hostname": one.hostname,
                "pid": one.pid,
                "shard": one.shard,
                "token": one.new_token,
                "take_over": one.take_over_id,
                "answered_at": one.answered_at.isoformat(),
            },
            hostname=one.hostname,
            pid=one.pid,
        )
    record_found_ghost(
        connection,
        take_over_id=one.take_over_id,
        attempt_id=one.attempt_id,
        is_known=one.is_known,
        worker_job_id=one.worker_job_id,
        hostname=one.hostname,
        pid=one.pid,
        reason=reason,
    )
    logger.warning(
        "a take-over found an execution that no live record acknowledges",
        extra={"attempt_id": str(one.attempt_id), "place": place, "shard": one.shard},
    )
