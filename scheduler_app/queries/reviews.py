"""Reviews: what a guard left for a person to decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from django.db.models import Q

from scheduler_app.models import Review
from scheduler_app.queries import lens

if TYPE_CHECKING:
    from datetime import datetime

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import ReviewFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewRow:
    """One review."""

    id: int
    guard: str
    object_kind: str
    object_id: str
    flow_id: str | None
    summary: str
    state: str
    created_at: datetime
    ended_at: datetime | None
    decided_by: str
    note: str


def _rows(scope: Scope) -> QuerySet[Review]:
    return scope.owned(Review.objects.annotate(filter_code=lens.NEVER_FILTERED), "flow_id")


NOUN: Final = lens.Noun(name="reviews", model=Review, row=ReviewRow, rows=_rows)


def page(asked: ReviewFilter, scope: Scope) -> lens.Page[ReviewRow]:
    """One page of reviews."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, review: int) -> ReviewRow:
    """The review with this number. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(id=review), f"review {review}")
