"""Lease events: every change of a lease, and every refusal around one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db.models import OuterRef, Q, Subquery

from scheduler_app.models import Job, LeaseEvent
from scheduler_app.queries import lens
from scheduler_app.rules import leadership

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
    holder_hostname: str | None
    holder_pid: int | None
    why: str  # what happened, in a sentence with the compared values


def _rows(scope: Scope) -> QuerySet[LeaseEvent]:
    return scope.shared(LeaseEvent.objects.annotate(filter_code=lens.NEVER_FILTERED))


_HOLDER: Final = Job.objects.filter(id=OuterRef("holder"))

NOUN: Final = lens.Noun(
    name="lease-events",
    model=LeaseEvent,
    row=LeaseEventRow,
    rows=_rows,
    columns={
        "holder_hostname": Subquery(_HOLDER.values("hostname")),
        "holder_pid": Subquery(_HOLDER.values("pid")),
    },
    derived={
        "why": lambda read: leadership.explain(read["kind"], read["token"], read["detail"]),
    },
)


def page(asked: LeaseEventFilter, scope: Scope) -> lens.Page[LeaseEventRow]:
    """One page of lease events."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, event: int) -> LeaseEventRow:
    """The lease event with this number. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(id=event), f"lease event {event}")
