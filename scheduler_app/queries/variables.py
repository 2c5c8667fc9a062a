"""Variables: what flows share. The value of a secret never leaves the database from here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Case, F, JSONField, Q, When

from scheduler_app.models import Variable
from scheduler_app.queries import lens

if TYPE_CHECKING:
    from datetime import datetime

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import VariableFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableRow:
    """One variable; ``value`` is null for a secret."""

    key: str
    value: Any
    description: str
    is_secret: bool
    version: int  # counts the changes
    updated_at: datetime
    updated_by: str


def _rows(scope: Scope) -> QuerySet[Variable]:
    return scope.shared(Variable.objects.annotate(filter_code=lens.NEVER_FILTERED))


NOUN: Final = lens.Noun(
    name="variables",
    model=Variable,
    row=VariableRow,
    rows=_rows,
    columns={
        "value": Case(When(is_secret=False, then=F("value")), output_field=JSONField()),
    },
    key="key",
)


def page(asked: VariableFilter, scope: Scope) -> lens.Page[VariableRow]:
    """One page of variables."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, key: str) -> VariableRow:
    """The variable with this key. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(key=key), f"variable {key}")
