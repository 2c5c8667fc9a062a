"""Incidents: conditions of the stack that a person must know of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scheduler_app.models import Incident
from scheduler_app.queries import lens, shown

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
    state: str  # open, resolved
    raised_at: datetime
    resolved_at: datetime | None


def _rows(scope: Scope) -> QuerySet[Incident]:
    return scope.shared(Incident.objects.annotate(filter_code=lens.NEVER_FILTERED))


NOUN: Final = lens.Noun(
    name="incidents",
    model=Incident,
    row=IncidentRow,
    rows=_rows,
    columns={"state": shown.INCIDENT_SHOWN},
)


def page(asked: IncidentFilter, scope: Scope) -> lens.Page[IncidentRow]:
    """One page of incidents."""
    return lens.page(NOUN, asked, scope)
