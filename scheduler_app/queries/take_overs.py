"""Take-overs: what each new leader of a shard found, asked and decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db.models import (
    Case,
    CharField,
    Count,
    IntegerField,
    OuterRef,
    Q,
    Subquery,
    Value,
    When,
)
from django.db.models.functions import Coalesce

from scheduler_app.models import Inquiry, Job, TakeOver
from scheduler_app.queries import lens
from scheduler_app.rules.leadership import FAIL_OVERS, Cause

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta
    from uuid import UUID

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import TakeOverFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOverRow:
    """One change of a shard's leader; ``holder`` and ``old_holder`` are job ids."""

    id: int
    shard: int
    cause: str  # first, expired or forced (a fail-over), released, taken_back
    state: str  # open, ended
    old_holder: UUID | None
    old_hostname: str | None
    old_pid: int | None
    old_token: int | None
    old_renewed_at: datetime | None
    old_expires_at: datetime | None
    holder: UUID
    holder_hostname: str | None
    holder_pid: int | None
    new_token: int
    acquired_at: datetime | None
    gap_s: float | None  # for how long nobody led the shard, in seconds
    started_at: datetime
    ended_at: datetime | None
    ask_id: UUID | None
    asked: int  # workers
    answered: int  # of them
    counts: Mapping[str, int]  # decision -> attempts

    @property
    def is_fail_over(self) -> bool:
        """Whether the lease was taken from a holder that had not given it up."""
        return self.cause in FAIL_OVERS

    @property
    def attempts(self) -> int:
        """How many attempts it went over, ghosts among them."""
        return sum(self.counts.values())


def _rows(scope: Scope) -> QuerySet[TakeOver]:
    return scope.shared(TakeOver.objects.annotate(filter_code=lens.NEVER_FILTERED))


def _asked(kept: Q) -> Coalesce:
    counted = (
        Inquiry.objects.filter(kept, ask_id=OuterRef("ask_id"))
        .order_by()
        .values("ask_id")
        .annotate(n=Count("*"))
        .values("n")
    )
    return Coalesce(Subquery(counted, output_field=IntegerField()), Value(0))


_OLD: Final = Job.objects.filter(id=OuterRef("old_holder"))
_NEW: Final = Job.objects.filter(id=OuterRef("holder"))


def _gap_s(read: Mapping[str, Any]) -> float | None:
    if read["cause"] not in {*FAIL_OVERS, Cause.RELEASED}:
        return None
    if read["acquired_at"] is None or read["old_expires_at"] is None:
        return None
    gap: timedelta = read["acquired_at"] - read["old_expires_at"]
    return max(0.0, round(gap.total_seconds(), 3))


NOUN: Final = lens.Noun(
    name="take-overs",
    model=TakeOver,
    row=TakeOverRow,
    rows=_rows,
    columns={
        "state": Case(
            When(ended_at__isnull=True, then=Value("open")),
            default=Value("ended"),
            output_field=CharField(),
        ),
        "old_hostname": Subquery(_OLD.values("hostname")),
        "old_pid": Subquery(_OLD.values("pid")),
        "holder_hostname": Subquery(_NEW.values("hostname")),
        "holder_pid": Subquery(_NEW.values("pid")),
        "asked": _asked(Q()),
        "answered": _asked(Q(answered_at__isnull=False)),
    },
    derived={"gap_s": _gap_s},
)


def page(asked: TakeOverFilter, scope: Scope) -> lens.Page[TakeOverRow]:
    """One page of take-overs."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, take_over: int) -> TakeOverRow:
    """The take-over with this number. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(id=take_over), f"take-over {take_over}")
