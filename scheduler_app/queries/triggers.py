"""Triggers: what deferred task instances wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db.models import OuterRef, Q, Subquery

from scheduler_app.models import Run, TaskInstance, Trigger
from scheduler_app.queries import lens

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import TriggerFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerRow:
    """One trigger. ``run`` and ``ti`` are numbers."""

    id: int
    flow_id: str | None
    run_id: str | None
    run: int
    ti: int
    task_id: str | None
    map_index: int | None
    shard: int
    try_number: int
    resume_index: int
    kind: str  # time, event or watched
    classpath: str
    kwargs: Mapping[str, Any]
    event_key: str | None  # of kind event
    state: str
    due_at: datetime | None
    timeout_at: datetime | None
    triggerer_job_id: UUID | None
    block_count: int  # how often its code kept a triggerer's loop
    created_at: datetime
    ended_at: datetime | None


_RUN: Final = Run.objects.filter(id=OuterRef("run_id"))
_TI: Final = TaskInstance.objects.filter(id=OuterRef("ti_id"))


def _rows(scope: Scope) -> QuerySet[Trigger]:
    rows = Trigger.objects.annotate(
        filter_code=lens.NEVER_FILTERED, owner=Subquery(_RUN.values("flow_id"))
    )
    return scope.owned(rows, "owner")


NOUN: Final = lens.Noun(
    name="triggers",
    model=Trigger,
    row=TriggerRow,
    rows=_rows,
    columns={
        "flow_id": "owner",
        "run_id": Subquery(_RUN.values("run_key")),
        "run": "run_id",
        "ti": "ti_id",
        "task_id": Subquery(_TI.values("task_id")),
        "map_index": Subquery(_TI.values("map_index")),
    },
)


def page(asked: TriggerFilter, scope: Scope) -> lens.Page[TriggerRow]:
    """One page of triggers."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, trigger: int) -> TriggerRow:
    """The trigger with this number. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(id=trigger), f"trigger {trigger}")
