"""Backfills and their dates: what was asked for, how far it is, and what became of each date."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db.models import (
    BooleanField,
    Count,
    ExpressionWrapper,
    OuterRef,
    Q,
    Subquery,
    Value,
)
from django.db.models.functions import Coalesce

from scheduler_app.models import Backfill, BackfillDate, Run
from scheduler_app.queries import lens, shown

if TYPE_CHECKING:
    from datetime import datetime

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import BackfillDateFilter, BackfillFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRow:
    """One backfill. ``dates`` counts all of its dates, the others those in that state."""

    id: int
    flow_id: str
    state: str  # running, paused, cancelled, ended
    from_date: datetime
    to_date: datetime
    is_backwards: bool
    reprocess: str
    max_active_runs: int
    conf: Any
    actor: str
    reason: str
    dates: int
    waiting: int
    skipped: int
    active_runs: int
    failed_runs: int
    created_at: datetime
    paused_at: datetime | None
    cancelled_at: datetime | None
    cancelled_by: str
    ended_at: datetime | None
    is_flow_frozen: bool  # no further run is made before its flow is thawed

    @property
    def done(self) -> int:
        """Dates that nothing is to be done for any more."""
        return self.dates - self.waiting - self.active_runs

    @property
    def is_over(self) -> bool:
        """Whether it ended."""
        return self.ended_at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillDateRow:
    """One date. ``run`` was made, run again, or was in the way."""

    id: int
    backfill: int
    position: int
    logical_date: datetime
    data_interval_start: datetime
    data_interval_end: datetime
    state: str
    run: int | None
    run_state: str | None
    reason: str
    decided_at: datetime | None


def _counted(rows: QuerySet[Any], *, key: str) -> Coalesce:
    """How many of these rows belong to each backfill."""
    counted = rows.filter(**{key: OuterRef("id")}).order_by().values(key).annotate(n=Count("id"))
    return Coalesce(Subquery(counted.values("n")), Value(0))


def _rows(scope: Scope) -> QuerySet[Backfill]:
    dates = BackfillDate.objects.all()
    runs = Run.objects.filter(filter_code__isnull=True)
    rows = Backfill.objects.annotate(
        filter_code=lens.NEVER_FILTERED,
        date_count=_counted(dates, key="backfill_id"),
        waiting=_counted(dates.filter(is_waiting=True), key="backfill_id"),
        skipped=_counted(dates.filter(state="skipped"), key="backfill_id"),
        active_runs=_counted(runs.filter(is_active=True), key="backfill_id"),
        failed_runs=_counted(runs.filter(state="failed"), key="backfill_id"),
    )
    return scope.owned(rows, "flow_id")


NOUN: Final = lens.Noun(
    name="backfills",
    model=Backfill,
    row=BackfillRow,
    rows=_rows,
    columns={
        "state": shown.BACKFILL_SHOWN,
        "dates": "date_count",
        "is_flow_frozen": ExpressionWrapper(
            Q(flow__frozen_at__isnull=False), output_field=BooleanField()
        ),
    },
)


def _date_rows(scope: Scope) -> QuerySet[BackfillDate]:
    state = Run.objects.filter(id=OuterRef("run_id")).values("state")
    rows = BackfillDate.objects.annotate(filter_code=lens.NEVER_FILTERED, run_state=Subquery(state))
    return scope.owned(rows, "backfill__flow_id")


DATES: Final = lens.Noun(
    name="backfill-dates",
    model=BackfillDate,
    row=BackfillDateRow,
    rows=_date_rows,
    columns={"backfill": "backfill_id", "run": "run_id"},
)


def page(asked: BackfillFilter, scope: Scope) -> lens.Page[BackfillRow]:
    """One page of backfills."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, backfill: int) -> BackfillRow:
    """The backfill with this number. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(id=backfill), f"backfill {backfill}")


def dates(asked: BackfillDateFilter, scope: Scope) -> lens.Page[BackfillDateRow]:
    """One page of the dates of backfills."""
    return lens.page(DATES, asked, scope)


def one_date(scope: Scope, date: int) -> BackfillDateRow:
    """The date with this number. Raises ``NotFound``."""
    return lens.one(DATES, scope, Q(id=date), f"date {date} of a backfill")
