"""The history of variables: who changed what, when and why; of secrets without their values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Q

from scheduler_app.models import VariableChange
from scheduler_app.queries import lens

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import VariableChangeFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableChangeRow:
    """One change of a variable. Values are masked where it was or became a secret."""

    id: int
    key: str
    version: int
    at: datetime
    actor: str
    action: str  # created, changed, deleted
    reason: str
    before: Any
    after: Any
    was_secret: bool | None
    is_secret: bool | None
    flow_id: str | None  # of the task or callback that wrote; null: a person did
    attempt_id: UUID | None


def _rows(scope: Scope) -> QuerySet[VariableChange]:
    return scope.shared(VariableChange.objects.annotate(filter_code=lens.NEVER_FILTERED))


NOUN: Final = lens.Noun(
    name="variable-changes", model=VariableChange, row=VariableChangeRow, rows=_rows
)


def page(asked: VariableChangeFilter, scope: Scope) -> lens.Page[VariableChangeRow]:
    """One page of changes."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, change: int) -> VariableChangeRow:
    """The change with this number. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(id=change), f"change {change} of a variable")
