"""Guards of automatic actions: what operators set, what holds for a flow, and what was done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from django.conf import settings
from django.db.models import Q

from scheduler_app.models import Flow, Guard
from scheduler_app.queries import lens
from scheduler_app.rules import guards
from scheduler_app.rules.definition import from_dict
from scheduler_app.rules.errors import DefinitionError

if TYPE_CHECKING:
    from datetime import datetime

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import GuardFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRow:
    """What an operator set for a flow (empty: everywhere) and a kind (empty: each); null: not set."""

    id: int
    flow_id: str
    kind: str
    is_stopped: bool
    cooldown_s: float | None
    actions_max: int | None
    window_s: float | None
    runs_max: int | None
    task_instances_max: int | None
    reason: str
    actor: str
    updated_at: datetime


def _rows(scope: Scope) -> QuerySet[Guard]:
    rows = Guard.objects.annotate(filter_code=lens.NEVER_FILTERED)
    if scope.flow_ids is None and scope.sees_shared:
        return rows
    return rows.filter(Q(flow_id__in=scope.flow_ids or ()))


NOUN: Final = lens.Noun(name="guards", model=Guard, row=GuardRow, rows=_rows)


def page(asked: GuardFilter, scope: Scope) -> lens.Page[GuardRow]:
    """One page of guards."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, guard: int) -> GuardRow:
    """The guard with this number. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(id=guard), f"guard {guard}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What holds for automatic actions of a kind on a flow."""

    kind: str
    limits: guards.GuardLimits  # every one is set
    stopped_by: guards.GuardRow | None


def defaults() -> guards.GuardLimits:
    """What holds where nobody said otherwise."""
    limits: guards.GuardLimits = settings.GUARD_LIMITS
    return limits


def holding(flow_id: str) -> tuple[Holding, ...]:
    """What holds for the flow, kind by kind; for an empty id, where no flow says otherwise."""
    rows = [
        guards.GuardRow(
            flow_id=row.flow_id,
            kind=row.kind,
            limits=guards.GuardLimits(
                cooldown_s=row.cooldown_s,
                actions_max=row.actions_max,
                window_s=row.window_s,
                runs_max=row.runs_max,
                task_instances_max=row.task_instances_max,
            ),
            is_stopped=row.is_stopped,
            actor=row.actor,
            reason=row.reason,
        )
        for row in Guard.objects.filter(flow_id__in={"", flow_id})
    ]
    defined = _defined(flow_id) if flow_id else guards.GuardLimits()
    found = []
    for kind in guards.ActionKind:
        effective = guards.effective(
            rows, flow_id=flow_id, kind=kind, defined=defined, defaults=defaults()
        )
        found.append(
            Holding(kind=kind.value, limits=effective.limits, stopped_by=effective.stopped_by)
        )
    return tuple(found)


def _defined(flow_id: str) -> guards.GuardLimits:
    raw = (
        Flow.objects.filter(pk=flow_id)
        .values_list("current_version__definition", flat=True)
        .first()
    )
    try:
        return (from_dict(raw).guards if raw else None) or guards.GuardLimits()
    except DefinitionError:
        return guards.GuardLimits()
