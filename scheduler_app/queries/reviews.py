"""Reviews: what a guard left for a person to decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Q

from scheduler_app.models import Review
from scheduler_app.queries import lens

if TYPE_CHECKING:
    from datetime import datetime

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import ReviewFilter
    from scheduler_app.queries.scope import Scope


OF_RUN_MAX: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewRow:
    """One review. ``request`` is what would be done; ``outcome`` what an approval did."""

    id: int
    guard: str
    action: str
    object_kind: str
    object_id: str
    flow_id: str | None
    summary: str
    asked_by: str
    reason: str
    times: int
    state: str
    created_at: datetime
    last_at: datetime | None
    ended_at: datetime | None
    decided_by: str
    note: str
    request: Any
    outcome: Any

    @property
    def is_open(self) -> bool:
        """Whether a person has still to decide."""
        return self.state == "open"

    @property
    def run(self) -> int | None:
        """The number of the run that it is about, if it is about one."""
        return int(self.object_id) if self.object_kind == "run" else None


def _rows(scope: Scope) -> QuerySet[Review]:
    return scope.owned(Review.objects.annotate(filter_code=lens.NEVER_FILTERED), "flow_id")


NOUN: Final = lens.Noun(name="reviews", model=Review, row=ReviewRow, rows=_rows)


def page(asked: ReviewFilter, scope: Scope) -> lens.Page[ReviewRow]:
    """One page of reviews."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, review: int) -> ReviewRow:
    """The review with this number. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(id=review), f"review {review}")


def open_of_run(scope: Scope, run: int) -> tuple[ReviewRow, ...]:
    """What waits for a person about the run, oldest first: one statement."""
    rows = _rows(scope).filter(state="open", object_kind="run", object_id=str(run)).order_by("id")
    return tuple(NOUN.row_of(values) for values in rows.values_list(*NOUN.sources())[:OF_RUN_MAX])
