"""Keys of limits: those that operators set over what the flows say, and those that are in use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from django.db.models import Q

from scheduler_app.models import LimitedKey
from scheduler_app.queries import lens
from scheduler_app.rules.limits import ANY

if TYPE_CHECKING:
    from datetime import datetime

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import KeyLimitFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLimitRow:
    """One key; ``key`` ends in ``*`` where it is of all that begin so."""

    key: str
    slots: int | None  # null: each task has its own number
    description: str
    is_set: bool  # by an operator, for itself
    rule: str | None  # that of an operator which holds in its place: customer:*
    held: int  # executions that hold a slot of it
    waiting: int  # task instances that wait for one
    waits_since: datetime | None  # of whoever waits for longest

    @property
    def is_rule(self) -> bool:
        """Whether it stands for all keys that begin so, of which each has so many slots."""
        return self.key.endswith(ANY)

    @property
    def prefix(self) -> str:
        """What the keys begin with for which it stands."""
        return self.key.removesuffix(ANY)

    @property
    def open_slots(self) -> int | None:
        """Slots that are free now, none if it is overfull; null where that cannot be said."""
        return None if self.slots is None or self.is_rule else max(0, self.slots - self.held)

    @property
    def missing_slots(self) -> int:
        """How many slots more are held than there are."""
        return 0 if self.slots is None or self.is_rule else max(0, self.held - self.slots)


def _rows(scope: Scope) -> QuerySet[LimitedKey]:
    return scope.shared(LimitedKey.objects.annotate(filter_code=lens.NEVER_FILTERED))


NOUN: Final = lens.Noun(
    name="limits", model=LimitedKey, row=KeyLimitRow, rows=_rows, columns={}, key="key"
)


def page(asked: KeyLimitFilter, scope: Scope) -> lens.Page[KeyLimitRow]:
    """One page of keys."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, key: str) -> KeyLimitRow:
    """This key. Raises ``NotFound`` where nobody set it, holds it or waits for it."""
    return lens.one(NOUN, scope, Q(key=key), f"limit {key}")
