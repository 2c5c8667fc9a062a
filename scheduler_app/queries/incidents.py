"""Incidents: conditions that a person must know of, and how far each has got."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from django.db.models import Q

from scheduler_app.models import Incident
from scheduler_app.queries import lens, shown
from scheduler_app.rules import incidents

if TYPE_CHECKING:
    from datetime import datetime

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import IncidentFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentRow:
    """One incident."""

    id: int
    kind: str
    subject: str
    message: str
    state: str  # open, acknowledged, resolved
    count: int  # how often it has come up
    flow_id: str | None
    run: int | None
    shard: int | None
    lease_token: int | None  # of the lease under which it was decided
    raised_at: datetime
    resolved_at: datetime | None
    resolution: str
    acknowledged_at: datetime | None
    acknowledged_by: str
    acknowledge_note: str
    told_at: datetime | None  # when it was last told to notifiers, if there were any

    @property
    def title(self) -> str:
        """What its kind is called."""
        return incidents.title(self.kind)

    @property
    def is_open(self) -> bool:
        """Whether its condition lasts, acknowledged or not."""
        return self.resolved_at is None

    @property
    def ends_by_hand(self) -> bool:
        """Whether nothing but a person's word ends it."""
        return incidents.ends_by_hand(self.kind)


def _rows(scope: Scope) -> QuerySet[Incident]:
    return scope.owned(Incident.objects.annotate(filter_code=lens.NEVER_FILTERED), "flow_id")


NOUN: Final = lens.Noun(
    name="incidents",
    model=Incident,
    row=IncidentRow,
    rows=_rows,
    columns={"state": shown.INCIDENT_SHOWN, "run": "run_id"},
)


def page(asked: IncidentFilter, scope: Scope) -> lens.Page[IncidentRow]:
    """One page of incidents."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, incident: int) -> IncidentRow:
    """The incident with this number. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(id=incident), f"incident {incident}")


def open_count(scope: Scope) -> int:
    """How many incidents are open that nobody has acknowledged."""
    return _rows(scope).filter(shown.incident_states(("open",))).count()
