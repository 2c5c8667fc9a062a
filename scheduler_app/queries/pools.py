"""Pools: slots, and how many are taken, counted from live attempts as the dispatcher counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from django.db.models import Case, IntegerField, OuterRef, Q, Subquery, Sum, Value, When
from django.db.models.functions import Coalesce

from scheduler_app.models import Attempt, Pool, TaskInstance, Trigger
from scheduler_app.queries import lens

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from scheduler_app.queries.filters import PoolFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRow:
    """One pool."""

    name: str
    slots: int
    running_slots: int
    queued_slots: int
    deferred_slots: int  # none where deferred task instances give their slots back
    description: str
    include_deferred: bool

    @property
    def open_slots(self) -> int:
        """Slots that are free now; none if the pool is overfull."""
        return max(0, self.slots - self.taken_slots)

    @property
    def taken_slots(self) -> int:
        """Slots that are held now; more than there are after a shrink."""
        return self.running_slots + self.queued_slots + self.deferred_slots

    @property
    def missing_slots(self) -> int:
        """How many slots more are held than there are."""
        return max(0, self.taken_slots - self.slots)


def _rows(scope: Scope) -> QuerySet[Pool]:
    return scope.shared(Pool.objects.annotate(filter_code=lens.NEVER_FILTERED))


def _taken(state: str) -> Coalesce:
    live = Attempt.objects.filter(
        is_live=True, kind="task", filter_code=None, state=state, pool=OuterRef("name")
    )
    if state == "issued":
        # An issued attempt of a held task instance takes no slot.
        live = live.filter(ti__held_by__isnull=True)
    slots = live.order_by().values("pool").annotate(taken=Sum("pool_slots")).values("taken")
    return Coalesce(Subquery(slots), Value(0), output_field=IntegerField())


def _deferred() -> Coalesce:
    waiting = Trigger.objects.filter(is_waiting=True).values("ti_id")
    held = TaskInstance.objects.filter(
        is_open=True, state="deferred", pool=OuterRef("name"), id__in=waiting
    )
    slots = held.order_by().values("pool").annotate(taken=Sum("pool_slots")).values("taken")
    return Coalesce(
        Case(When(include_deferred=True, then=Subquery(slots))),
        Value(0),
        output_field=IntegerField(),
    )


NOUN: Final = lens.Noun(
    name="pools",
    model=Pool,
    row=PoolRow,
    rows=_rows,
    columns={
        "running_slots": _taken("running"),
        "queued_slots": _taken("issued"),
        "deferred_slots": _deferred(),
    },
    key="name",
)


def page(asked: PoolFilter, scope: Scope) -> lens.Page[PoolRow]:
    """One page of pools."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, name: str) -> PoolRow:
    """The pool with this name. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(name=name), f"pool {name}")
