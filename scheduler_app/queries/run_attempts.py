"""Run attempts: the first go of a run, and one more for each clear or retry of the whole run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from django.db.models import Q

from scheduler_app.models import RunAttempt
from scheduler_app.queries import lens

if TYPE_CHECKING:
    from datetime import datetime

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import RunAttemptFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAttemptRow(lens.Standing):
    """One go at a run. ``run`` is the number of the run."""

    id: int
    flow_id: str
    run_id: str
    run: int
    number: int
    cause: str
    actor: str
    reason: str  # why it began
    state: str
    outcome_reason: str  # how it ended
    started_at: datetime | None
    ended_at: datetime | None


def _rows(scope: Scope) -> QuerySet[RunAttempt]:
    return scope.owned(RunAttempt.objects.all(), "run__flow_id")


NOUN: Final = lens.Noun(
    name="run-attempts",
    model=RunAttempt,
    row=RunAttemptRow,
    rows=_rows,
    columns={"flow_id": "run__flow_id", "run_id": "run__run_key", "run": "run_id"},
)


def page(asked: RunAttemptFilter, scope: Scope) -> lens.Page[RunAttemptRow]:
    """One page of run attempts."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, run_attempt: int) -> RunAttemptRow:
    """The run attempt with this number. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(id=run_attempt), f"run attempt {run_attempt}")
