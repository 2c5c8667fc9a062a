"""How the runs of a flow ended, day by day."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from django.db.models import Count, Q
from django.db.models.functions import TruncDate

from scheduler_app.models import Run
from scheduler_app.queries import shown
from scheduler_app.rules.calendar_days import begin

if TYPE_CHECKING:
    from datetime import date, datetime

    from scheduler_app.queries.scope import Scope

RUNS_MAX: Final = 50_000  # counted; of more, only the days of the newest ones are told


@dataclass(slots=True, kw_only=True)
class DayOfRuns:
    """The runs whose logical dates lie in one local day."""

    states: dict[str, int] = field(default_factory=dict)  # of current runs, as pages show them
    filtered: int = 0

    @property
    def shown(self) -> int:
        """How many are current."""
        return sum(self.states.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCalendar:
    """The days that have runs."""

    days: dict[date, DayOfRuns]
    counted_from: datetime | None  # before it there are too many to count; null: all are


def of_flow(scope: Scope, flow_id: str, zone: str, first: date, until: date) -> RunCalendar:
    """The runs of the flow with logical dates from the one day to before the other."""
    rows = scope.owned(
        Run.objects.filter(
            flow_id=flow_id,
            logical_date__gte=begin(first, zone),
            logical_date__lt=begin(until, zone),
        ),
        "flow_id",
    )
    newest = rows.order_by("-logical_date").values_list("logical_date", flat=True)
    beyond = newest[RUNS_MAX : RUNS_MAX + 1].first()
    if beyond is not None:
        rows = rows.filter(logical_date__gt=beyond)
    counted = (
        rows.annotate(
            day=TruncDate("logical_date", tzinfo=ZoneInfo(zone)), shown_as=shown.RUN_SHOWN
        )
        .order_by()
        .values_list("day", "shown_as")
        .annotate(
            current=Count("pk", filter=Q(filter_code__isnull=True)),
            aside=Count("pk", filter=Q(filter_code__isnull=False)),
        )
    )
    days: dict[date, DayOfRuns] = {}
    for day, state, current, aside in counted:
        one = days.setdefault(day, DayOfRuns())
        one.filtered += aside
        if current:
            one.states[state] = current
    return RunCalendar(days=days, counted_from=beyond)
