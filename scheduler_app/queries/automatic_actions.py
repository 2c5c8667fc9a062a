"""Automatic actions that were carried out: run retries, and clears of services."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from django.db.models import Q

from scheduler_app.models import AutomaticAction
from scheduler_app.queries import lens

if TYPE_CHECKING:
    from datetime import datetime

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import AutomaticActionFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class AutomaticActionRow:
    """One automatic action. ``run`` is the number of the first run that it touched."""

    id: int
    at: datetime
    flow_id: str
    kind: str
    run: int
    run_count: int
    task_instance_count: int
    actor: str
    reason: str


def _rows(scope: Scope) -> QuerySet[AutomaticAction]:
    return scope.owned(AutomaticAction.objects.annotate(filter_code=lens.NEVER_FILTERED), "flow_id")


NOUN: Final = lens.Noun(
    name="automatic-actions",
    model=AutomaticAction,
    row=AutomaticActionRow,
    rows=_rows,
    columns={"run": "run_id"},
)


def page(asked: AutomaticActionFilter, scope: Scope) -> lens.Page[AutomaticActionRow]:
    """One page of automatic actions."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, action: int) -> AutomaticActionRow:
    """The automatic action with this number. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(id=action), f"automatic action {action}")
