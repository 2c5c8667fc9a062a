"""A claim that was refused: why, in the compared values, as one executor event judged at birth."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scheduler_app.rules import ghosts, reconcile
from scheduler_app.transitions.attempt import ask_for_publication
from scheduler_app.transitions.executor_event import (
    Judgement,
    NewEvent,
    record_events,
    record_ghost_attempt,
)
from scheduler_app.transitions.ghost import see
from scheduler_app.worker.facts import Facts, facts_of

if TYPE_CHECKING:
    from uuid import UUID

    import psycopg

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What one message carries, and the nonce that this reception of it gave itself."""

    attempt_id: UUID
    ti_id: int  # NO_TI: it is of a callback
    fence: int
    token: int
    identity: str
    nonce: UUID


def refusal_code(delivery: Delivery, facts: Facts | None) -> str | None:
    """Why the claim of this delivery found nothing; ``None`` where now nothing stands against it."""
    if facts is None:
        return "ghost_no_record"
    if (facts.lease_token, facts.fence) != (delivery.token, delivery.fence):
        return "fenced_stale_leader"
    if not facts.is_current or facts.filter_code is not None:
        return "refused_superseded"
    if facts.nonce is not None and facts.nonce != delivery.nonce:
        return "duplicate_delivery"
    if facts.is_callback:
        return "refused_frozen" if facts.is_held else None
    if facts.state == "ended":
        # Ended before anybody claimed it: handed back, terminated or marked.
        return "refused_run_finished" if facts.is_run_over() else "refused_superseded"
    if facts.is_run_over():
        return "refused_run_finished"
    if facts.held_by is not None:
        return "refused_frozen"
    if facts.ti_state != "queued" and facts.nonce is None:
        return "refused_superseded"
    return None


def compared(delivery: Delivery, facts: Facts | None, identity: str) -> dict[str, Any]:
    """What the delivery says and what the database says, side by side."""
    said: dict[str, Any] = {
        "token_presented": delivery.token,
        "fence_presented": delivery.fence,
        "nonce": str(delivery.nonce),
    }
    if delivery.identity != identity:
        said |= {"identity_presented": delivery.identity, "identity_here": identity}
    if facts is not None:
        said |= {
            "token_issued": facts.lease_token,
            "fence_issued": facts.fence,
            "claimed_nonce": str(facts.nonce) if facts.nonce else None,
            "claimed_by": f"{facts.hostname}:{facts.pid}" if facts.hostname else None,
            "attempt_state": facts.state,
            "outcome": facts.outcome,
            "current_attempt_id": str(facts.current_attempt_id)
            if facts.current_attempt_id
            else None,
            "task_state": facts.ti_state,
            "held_by": facts.held_by,
            "run_state": facts.run_state,
        }
    return said


def record_refusal(
    connection: psycopg.Connection[Any],
    *,
    delivery: Delivery,
    code: str,
    facts: Facts | None,
    identity: str,
    source: str,
    job_id: UUID,
    hostname: str,
    pid: int,
) -> None:
    """The refused delivery is an executor event with its verdict; a ghost has its attempt row too.

    One transaction; recording the same refusal again changes nothing.
    """
    values = {**compared(delivery, facts, identity), "hostname": hostname, "pid": pid}
    verdict = reconcile.reconcile(
        reconcile.Event(
            kind="delivery_refused", attempt_id=str(delivery.attempt_id), claimed=values
        ),
        facts.of_attempt() if facts else None,
        facts.of_task() if facts else None,
        reconcile.Facts(grace_over=False, worker_alive=True, refusal=code),
    )
    detail = {**verdict.detail, **values}
    event = NewEvent(
        attempt_id=delivery.attempt_id,
        kind="delivery_refused",
        source=source,
        source_job_id=job_id,
        payload=values,
        dedupe_key=f"refused:{delivery.attempt_id}:{delivery.nonce}",
        judgement=Judgement(
            verdict=verdict.verdict, code=verdict.code, reason=verdict.reason, detail=detail
        ),
    )
    with connection.transaction():
        if code == "refused_frozen":
            # Its message is used up: published again as soon as the freeze is over.
            ask_for_publication(connection, attempt_ids=[delivery.attempt_id])
        if verdict.verdict == "ghost":
            record_ghost_attempt(
                connection,
                attempt_id=delivery.attempt_id,
                code=verdict.code or code,
                detail=detail,
                hostname=hostname,
                pid=pid,
            )
        record_events(connection, events=[event])
        if code == "fenced_other_database":
            where = f"A delivery to {hostname}:{pid}"
            stranger = ghosts.of_other_database(
                delivery.attempt_id,
                presented=delivery.identity,
                here=identity,
                where=where,
                subject=f"worker {job_id}: {delivery.identity}",
                hostname=hostname,
                pid=pid,
                worker_job_id=job_id,
            )
            see(connection, sightings=[stranger], seen_by="claim", policy=ghosts.Policy.HUMAN)
    logger.info(
        "a delivery was refused",
        extra={"attempt_id": str(delivery.attempt_id), "code": verdict.code},
    )


def read_facts(connection: psycopg.Connection[Any], delivery: Delivery) -> Facts | None:
    """What stands against the claim."""
    return facts_of(connection, [delivery.attempt_id]).get(delivery.attempt_id)
