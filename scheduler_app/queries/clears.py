"""Clears that were carried out, as pages tell of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler_app.models import ClearPlan, Run

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Undoable:
    """The newest clear of a run that may be undone, while nothing of it has started. Aware UTC."""

    plan_id: UUID
    at: datetime
    actor: str
    batch_id: UUID | None  # of a clear of several runs


def undoable_of_run(scope: Scope, run: int) -> Undoable | None:
    """The newest clear of the run whose undo is kept, if it has one: one statement."""
    plans = ClearPlan.objects.filter(
        run_id__in=scope.owned(Run.objects.filter(pk=run), "flow_id").values("id"),
        used_at__isnull=False,
        undone_at__isnull=True,
        undo__isnull=False,
    )
    found = plans.order_by("-used_at").values("id", "used_at", "actor", "batch_id").first()
    if found is None or found["used_at"] is None:
        return None
    return Undoable(
        plan_id=found["id"], at=found["used_at"], actor=found["actor"], batch_id=found["batch_id"]
    )
