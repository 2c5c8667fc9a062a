"""Whether a person has looked at a filtered record or a ghost: who, when, and their note."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.db.models import CharField, Exists, F, OuterRef, Q, Subquery, Value
from django.db.models.functions import Cast, Concat, JSONObject

from scheduler_app.models import Reviewed

if TYPE_CHECKING:
    from django.db.models.expressions import Combinable

STATES: Final = ("yes", "no")
OF_RECORD: Final = OuterRef("key")
OF_GHOST: Final = Concat(
    Value("ghost:"), Cast(OuterRef("id"), CharField()), output_field=CharField()
)


def of(key: Combinable) -> Subquery:
    """``{"by", "at", "note"}`` of the record whose key the expression gives."""
    return Subquery(_marks(key).values(told=JSONObject(by=F("actor"), at=F("at"), note=F("note"))))


def keep(key: Combinable, states: tuple[str, ...]) -> Q:
    """Records that are reviewed (``yes``) or not (``no``)."""
    if {*states} >= {*STATES}:
        return Q()
    marked = Q(Exists(_marks(key)))
    return marked if "yes" in states else ~marked


def _marks(key: Combinable) -> Any:
    return Reviewed.objects.filter(key=key)
