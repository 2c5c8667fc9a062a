"""Cases: investigations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from django.db.models import Q

from scheduler_app.models import Case
from scheduler_app.queries import lens

if TYPE_CHECKING:
    from datetime import datetime

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import CaseFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRow:
    """One case."""

    id: int
    title: str
    state: str
    opened_by: str
    opened_at: datetime
    closed_at: datetime | None
    notes: str


def _rows(scope: Scope) -> QuerySet[Case]:
    return scope.shared(Case.objects.annotate(filter_code=lens.NEVER_FILTERED))


NOUN: Final = lens.Noun(name="cases", model=Case, row=CaseRow, rows=_rows)


def page(asked: CaseFilter, scope: Scope) -> lens.Page[CaseRow]:
    """One page of cases."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, case: int) -> CaseRow:
    """The case with this number. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(id=case), f"case {case}")
