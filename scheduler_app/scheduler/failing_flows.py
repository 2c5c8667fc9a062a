"""Flows whose runs fail one after the other are paused, and somebody hears of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.transitions.audit import record_audit
from scheduler_app.transitions.flow import has_failed_in_a_row, lock_unpaused, set_flow_paused
from scheduler_app.transitions.incident import raise_incident

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg

    from scheduler_app.scheduler.leases import Leases

INCIDENT: Final = "flow_paused_by_failures"

logger = logging.getLogger(__name__)


def pause_failing(
    connection: psycopg.Connection[Any],
    *,
    leases: Leases,
    terms: dict[int, int],
    limits: Mapping[str, int],
) -> list[str]:
    """Of these flows (with how many failures in a row they bear) those that are paused now.

    One transaction for each: proof, flow locked, runs counted, paused, audited, incident. Raises
    ``Fenced``.
    """
    paused = []
    for flow_id, limit in sorted(limits.items()):
        with connection.transaction():
            leases.prove(connection, terms)
            if lock_unpaused(connection, flow_id=flow_id) and pause_if_failing(
                connection, flow_id=flow_id, limit=limit
            ):
                paused.append(flow_id)
    return paused


def pause_if_failing(connection: psycopg.Connection[Any], *, flow_id: str, limit: int) -> bool:
    """Whether the flow, which is not paused, failed too often in a row and is paused now.

    The caller proved its lease and holds the flow.
    """
    if limit < 1 or not has_failed_in_a_row(connection, flow_id=flow_id, number=limit):
        return False
    reason = f"Its last {limit} run{'s' if limit > 1 else ''} failed (max_consecutive_failed_runs)."
    set_flow_paused(connection, flow_id=flow_id, is_paused=True)
    record_audit(
        connection,
        actor="scheduler",
        action="pause",
        object_kind="flow",
        object_id=flow_id,
        flow_id=flow_id,
        reason=reason,
        before={"is_paused": False},
        after={"is_paused": True},
    )
    raise_incident(
        connection,
        kind=INCIDENT,
        subject=flow_id,
        message=f"Flow {flow_id} was paused by itself. {reason} Unpause it once they are put right.",
        flow_id=flow_id,
    )
    logger.warning("a flow was paused", extra={"flow_id": flow_id, "reason": reason})
    return True
