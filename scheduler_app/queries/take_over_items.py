"""What a take-over found of each attempt, and what it decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from django.db.models import OuterRef, Q, Subquery

from scheduler_app.models import Attempt, TakeOverItem
from scheduler_app.queries import lens

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import TakeOverItemFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOverItemRow:
    """One attempt in one take-over. Parents are null for an execution that nobody issued."""

    id: int
    take_over: int
    shard: int
    attempt_id: UUID
    flow_id: str | None
    run_id: str | None
    run: int | None
    ti: int | None
    task_id: str | None
    map_index: int | None
    found: str  # unpublished, published, running, ended, unknown
    decision: str  # open, published, waiting, adopted, lost, reconciled, ghost, passed_on
    reason: str
    worker_job_id: UUID | None
    hostname: str | None
    pid: int | None
    decided_at: datetime | None


def _rows(scope: Scope) -> QuerySet[TakeOverItem]:
    return scope.shared(TakeOverItem.objects.annotate(filter_code=lens.NEVER_FILTERED))


_ATTEMPT: Final = Attempt.objects.filter(id=OuterRef("attempt_id"))

NOUN: Final = lens.Noun(
    name="take-over-items",
    model=TakeOverItem,
    row=TakeOverItemRow,
    rows=_rows,
    columns={
        "take_over": "take_over_id",
        "shard": "take_over__shard",
        "flow_id": Subquery(_ATTEMPT.values("run__flow_id")),
        "run_id": Subquery(_ATTEMPT.values("run__run_key")),
        "run": Subquery(_ATTEMPT.values("run_id")),
        "ti": Subquery(_ATTEMPT.values("ti_id")),
        "task_id": Subquery(_ATTEMPT.values("task_id")),
        "map_index": Subquery(_ATTEMPT.values("map_index")),
    },
)


def page(asked: TakeOverItemFilter, scope: Scope) -> lens.Page[TakeOverItemRow]:
    """One page of items."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, item: int) -> TakeOverItemRow:
    """The item with this number. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(id=item), f"take-over item {item}")
