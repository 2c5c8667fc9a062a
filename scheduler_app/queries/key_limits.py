"""Limits of keys that operators set over what the flows say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from django.db.models import Q

from scheduler_app.models import KeyLimit
from scheduler_app.queries import lens

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from scheduler_app.queries.filters import KeyLimitFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLimitRow:
    """One limit; ``key`` ends in ``*`` where it is of all that begin so."""

    key: str
    slots: int
    description: str


def _rows(scope: Scope) -> QuerySet[KeyLimit]:
    return scope.shared(KeyLimit.objects.annotate(filter_code=lens.NEVER_FILTERED))


NOUN: Final = lens.Noun(
    name="limits", model=KeyLimit, row=KeyLimitRow, rows=_rows, columns={}, key="key"
)


def page(asked: KeyLimitFilter, scope: Scope) -> lens.Page[KeyLimitRow]:
    """One page of limits."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, key: str) -> KeyLimitRow:
    """The limit of this key. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(key=key), f"limit {key}")
