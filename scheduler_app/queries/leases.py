"""Leases: who decides for each shard, and until when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from django.db.models import OuterRef, Q, Subquery

from scheduler_app.models import Job, Lease
from scheduler_app.queries import lens, shown

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import LeaseFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRow:
    """The lease of one shard; ``holder`` is a job id."""

    shard: int
    holder: UUID | None
    holder_hostname: str | None
    holder_pid: int | None
    token: int
    state: str  # held, expired, free
    acquired_at: datetime | None
    renewed_at: datetime | None
    expires_at: datetime | None


def _rows(scope: Scope) -> QuerySet[Lease]:
    return scope.shared(Lease.objects.annotate(filter_code=lens.NEVER_FILTERED))


_HOLDER: Final = Job.objects.filter(id=OuterRef("holder"))

NOUN: Final = lens.Noun(
    name="leases",
    model=Lease,
    row=LeaseRow,
    rows=_rows,
    columns={
        "holder_hostname": Subquery(_HOLDER.values("hostname")),
        "holder_pid": Subquery(_HOLDER.values("pid")),
        "state": shown.LEASE_SHOWN,
    },
    key="shard",
)


def page(asked: LeaseFilter, scope: Scope) -> lens.Page[LeaseRow]:
    """One page of leases."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, shard: int) -> LeaseRow:
    """The lease of this shard. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(shard=shard), f"lease of shard {shard}")
