"""Lease events: every change of a lease, and every refusal around one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Q

from scheduler_app.models import LeaseEvent
from scheduler_app.queries import lens

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import LeaseEventFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseEventRow:
    """One lease event; ``holder`` is a job id."""

    id: int
    shard: int
    kind: str
    holder: UUID | None
    token: int
    at: datetime
    detail: Mapping[str, Any]


def _rows(scope: Scope) -> QuerySet[LeaseEvent]:
    return scope.shared(LeaseEvent.objects.annotate(filter_code=lens.NEVER_FILTERED))


NOUN: Final = lens.Noun(name="lease-events", model=LeaseEvent, row=LeaseEventRow, rows=_rows)


def page(asked: LeaseEventFilter, scope: Scope) -> lens.Page[LeaseEventRow]:
    """One page of lease events."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, event: int) -> LeaseEventRow:
    """The lease event with this number. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(id=event), f"lease event {event}")
