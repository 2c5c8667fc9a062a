"""Freezes whose time is over, and what a thaw had to leave held for want of room."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scheduler_app.transitions import freeze
from scheduler_app.transitions.audit import record_audit

if TYPE_CHECKING:
    import psycopg

    from scheduler_app.scheduler.leases import Leases

ACTOR = "scheduler"

logger = logging.getLogger(__name__)


def thaw_due(
    connection: psycopg.Connection[Any], *, leases: Leases, terms: dict[int, int]
) -> set[int]:
    """No freeze is live past its end, and what waited for room goes on as far as there is some.

    The runs that moved. Any scheduler may do it, for every shard: the freezes are nobody's shard.
    """
    due = freeze.live_freezes(connection, overdue=True)
    waiting = freeze.ended_that_hold(connection)
    moved: set[int] = set()
    if not due and not waiting:
        return moved
    with connection.transaction():
        leases.prove(connection, terms)
        freeze.take_turn(connection)
        # As they are now: another scheduler may have had its turn in between.
        for row in freeze.live_freezes(connection, overdue=True):
            done = freeze.thaw(connection, freeze_ids=[row["id"]])
            moved.update(done.run_ids)
            record_audit(
                connection,
                actor=ACTOR,
                action="thaw",
                object_kind=row["scope_kind"],
                object_id=row["scope_id"],
                flow_id=row["scope_id"] if row["scope_kind"] == "flow" else None,
                reason=f"Freeze {row['id']} was to last until {row['until_at'].isoformat()}.",
                before={"freezes": [row["id"]], "mode": row["mode"]},
                after={
                    "released": done.released,
                    "held_by_others": done.kept,
                    "waiting_for_room": done.waiting,
                },
            )
            logger.info("a freeze ended by its time", extra={"freeze": row["id"]})
    if waiting:
        with connection.transaction():
            leases.prove(connection, terms)
            freeze.take_turn(connection)
            held = freeze.ended_that_hold(connection)
            run_ids = freeze.lock_for_let_go(connection, freeze_ids=held)
            if freeze.let_go(connection, freeze_ids=held):
                moved.update(run_ids)
    return moved
