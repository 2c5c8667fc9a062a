"""Remove what is old and needed by nothing, once somebody asks for it: nothing does so by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db import connection, transaction

from scheduler_app.operations.reasons import check_reason
from scheduler_app.rules.retention import Kind, check_days
from scheduler_app.transitions import retention as moves
from scheduler_app.transitions.audit import record_audit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """How many records of a kind are removed, or would be."""

    kind: str
    count: int
    oldest_at: datetime | None


def remove_old(
    *,
    days: int,
    actor: str,
    kinds: Sequence[Kind] = (),
    reason: str = "",
    dry_run: bool = True,
) -> list[Removed]:
    """What is older than so many days, of these kinds or all, is gone, in batches and one audit entry.

    A dry run only counts, and needs no reason. What is added meanwhile is younger. Raises ``InvalidInput``.
    """
    check_days(days)
    why = "" if dry_run else check_reason(reason)
    found = []
    for kind in dict.fromkeys(kinds or Kind):
        with transaction.atomic():  # a connection is open
            count, oldest_at = moves.count_old(connection.connection, kind=kind, days=days)
        if not dry_run:
            count = 0
            while removed := moves.remove_old(connection.connection, kind=kind, days=days):
                count += removed
        found.append(Removed(kind=kind.value, count=count, oldest_at=oldest_at))
    if not dry_run and any(one.count for one in found):
        record_audit(
            connection.connection,
            actor=actor,
            action="retention",
            object_kind="installation",
            object_id="",
            reason=why,
            after={"days": days, "removed": {one.kind: one.count for one in found}},
        )
    return found
