"""Executor events and their verdicts: lists and one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Q

from scheduler_app.models import ExecutorEvent
from scheduler_app.queries import lens

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import EventFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow(lens.Standing):
    """One statement of a witness. Parents are null where nobody knows them."""

    id: int
    attempt_id: UUID | None
    flow_id: str | None
    run_id: str | None
    run: int | None
    ti: int | None
    task_id: str | None
    map_index: int | None
    try_number: int | None
    shard: int | None
    kind: str
    source: str
    source_job_id: UUID | None
    payload: Mapping[str, Any]
    received_at: datetime
    verdict: str
    verdict_code: str | None
    verdict_reason: str | None
    verdict_detail: Mapping[str, Any] | None  # the compared values
    judged_at: datetime | None


def _rows(scope: Scope) -> QuerySet[ExecutorEvent]:
    return scope.owned(ExecutorEvent.objects.all(), "run__flow_id")


NOUN: Final = lens.Noun(
    name="executor-events",
    model=ExecutorEvent,
    row=EventRow,
    rows=_rows,
    columns={
        **lens.OF_RUN,
        "run": "run_id",
        "ti": "ti_id",
    },
)


def page(asked: EventFilter, scope: Scope) -> lens.Page[EventRow]:
    """One page of executor events."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, event: int) -> EventRow:
    """The executor event with this number. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(id=event), f"executor event {event}")
