"""Audit entries: what people and automatic guards did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Q

from scheduler_app.models import Audit
from scheduler_app.queries import lens

if TYPE_CHECKING:
    from datetime import datetime

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import AuditFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """One act."""

    id: int
    at: datetime
    actor: str
    action: str
    object_kind: str
    object_id: str
    flow_id: str | None
    reason: str
    before: Any
    after: Any


def _rows(scope: Scope) -> QuerySet[Audit]:
    return scope.owned(Audit.objects.annotate(filter_code=lens.NEVER_FILTERED), "flow_id")


NOUN: Final = lens.Noun(name="audit", model=Audit, row=AuditRow, rows=_rows)


def page(asked: AuditFilter, scope: Scope) -> lens.Page[AuditRow]:
    """One page of audit entries."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, entry: int) -> AuditRow:
    """The audit entry with this number. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(id=entry), f"audit entry {entry}")
