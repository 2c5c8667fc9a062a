"""Versions of flows: lists, and one with its graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Q

from scheduler_app.models import FlowVersion
from scheduler_app.queries import lens
from scheduler_app.rules.definition import FlowDefinition, from_dict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import FlowVersionFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowVersionRow:
    """One immutable picture of a flow."""

    id: int
    flow_id: str
    number: int
    digest: str
    bundle: str  # digest of its source
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowVersionDetail(FlowVersionRow):
    """One version with its definition, as stored."""

    definition: Mapping[str, Any]

    def graph(self) -> FlowDefinition:
        """The definition as a value."""
        return from_dict(dict(self.definition))


def _rows(scope: Scope) -> QuerySet[FlowVersion]:
    return scope.owned(FlowVersion.objects.annotate(filter_code=lens.NEVER_FILTERED), "flow_id")


NOUN: Final = lens.Noun(
    name="flow-versions",
    model=FlowVersion,
    row=FlowVersionRow,
    rows=_rows,
    columns={"bundle": "bundle_id"},
)
DETAIL: Final = lens.Noun(
    name="flow-versions",
    model=FlowVersion,
    row=FlowVersionDetail,
    rows=_rows,
    columns={"bundle": "bundle_id"},
)


def page(asked: FlowVersionFilter, scope: Scope) -> lens.Page[FlowVersionRow]:
    """One page of versions."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, version_id: int) -> FlowVersionDetail:
    """The version with this id. Raises ``NotFound``."""
    return lens.one(DETAIL, scope, Q(id=version_id), f"flow version {version_id}")


def by_number(scope: Scope, flow_id: str, number: int) -> FlowVersionDetail:
    """The version of a flow with this number. Raises ``NotFound``."""
    found = Q(flow_id=flow_id, number=number)
    return lens.one(DETAIL, scope, found, f"version {number} of flow {flow_id}")
