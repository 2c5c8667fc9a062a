"""Alerts: each telling of an incident through a notifier, and what every try came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Q

from scheduler_app.authoring import notifiers
from scheduler_app.models import Alert
from scheduler_app.queries import lens

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import AlertFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRow:
    """One alert."""

    id: int
    incident: int
    kind: str  # of the incident
    flow_id: str | None
    about: str  # opened, reminder, resolved
    notifier: Mapping[str, Any]  # its description, secrets by name
    state: str  # waiting, sent, failed
    tries: int
    due_at: datetime  # of the next try
    letter: UUID | None  # those that went out as one have the same
    said: Sequence[Mapping[str, Any]]  # what each try came to: at, said
    created_at: datetime
    ended_at: datetime | None

    @property
    def notifier_shown(self) -> str:
        """The notifier in a few words."""
        return notifiers.shown(self.notifier)


def _rows(scope: Scope) -> QuerySet[Alert]:
    rows = Alert.objects.annotate(filter_code=lens.NEVER_FILTERED)
    return scope.owned(rows, "incident__flow_id")


NOUN: Final = lens.Noun(
    name="alerts",
    model=Alert,
    row=AlertRow,
    rows=_rows,
    columns={
        "incident": "incident_id",
        "kind": "incident__kind",
        "flow_id": "incident__flow_id",
    },
)


def page(asked: AlertFilter, scope: Scope) -> lens.Page[AlertRow]:
    """One page of alerts."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, alert: int) -> AlertRow:
    """The alert with this number. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(id=alert), f"alert {alert}")
