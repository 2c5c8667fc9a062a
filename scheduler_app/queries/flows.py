"""Flows: lists and one. A flow that no file defines any more is filtered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db import connection
from django.db.models import Case, CharField, F, IntegerField, Q, Value, When
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, JSONObject

from scheduler_app.models import Flow
from scheduler_app.processes import database
from scheduler_app.queries import lens, shown
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules import schedule as schedules
from scheduler_app.rules import timetable
from scheduler_app.rules.params import Told, in_order, told
from scheduler_app.rules.schedule_words import describe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import FlowFilter
    from scheduler_app.queries.scope import Scope


BY_HAND: Final = "by hand only"
NEXT_TIMES: Final = 5  # fire times shown ahead: clock changes must be seen before they come


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRow(lens.Standing):
    """One flow as its current version says, or as its last one did."""

    flow_id: str
    state: str  # active, paused, frozen
    is_paused: bool
    description: str
    owner: str
    tags: Sequence[str]
    shard: int
    version: int | None  # number of the current version
    version_id: int | None
    version_created_at: datetime | None
    schedule: str | None
    timetable: (
        Mapping[str, Any] | None
    )  # the long form of the schedule, where one expression is not all
    start_date: str | None
    end_date: str | None
    timezone: str | None
    catchup: bool | None
    max_active_runs: int | None
    max_active_tasks: int | None
    params: Mapping[str, Any] | None  # declared defaults of conf
    param_schemas: Mapping[str, Any] | None  # JSON Schema of the parameters that have one
    param_order: Sequence[str] | None  # as the file declares them; null: as they are stored
    folder: str
    path: str
    next_interval_start: datetime | None
    next_interval_end: datetime | None  # when the next run is due
    last_interval_start: datetime | None
    last_interval_end: datetime | None
    in_line_from: datetime | None  # dates due from here on wait for room under max_active_runs
    frozen_at: datetime | None
    removed_at: datetime | None
    created_at: datetime
    updated_at: datetime

    @property
    def declared_params(self) -> list[Told]:
        """What a run may be given, and what it has to be given."""
        return told(self.param_schemas or {}, self.params or {}, self.param_order or ())

    @property
    def defaults(self) -> dict[str, Any]:
        """What a run by hand has unless it says otherwise, as the file declares it."""
        given = self.params or {}
        return {name: given[name] for name in in_order(given, self.param_order or ())}


def _rows(scope: Scope) -> QuerySet[Flow]:
    removed = Case(
        When(removed_at__isnull=False, then=Value("flow_removed")), output_field=CharField()
    )
    rows = Flow.objects.annotate(
        filter_code=removed,
        filtered_at=F("removed_at"),
        filter_detail=JSONObject(folder=F("folder"), path=F("path"), at=F("removed_at")),
    )
    return scope.owned(rows, "flow_id")


def _said(key: str) -> KeyTextTransform:
    return KeyTextTransform(key, "current_version__definition")


NOUN: Final = lens.Noun(
    name="flows",
    model=Flow,
    row=FlowRow,
    rows=_rows,
    columns={
        "superseded_by": Value(None, output_field=CharField()),
        "state": shown.FLOW_SHOWN,
        "version": "current_version__number",
        "version_created_at": "current_version__created_at",
        "version_id": "current_version_id",
        "schedule": _said("schedule"),
        "timezone": _said("timezone"),
        "timetable": "current_version__definition__timetable",
        "start_date": _said("start_date"),
        "end_date": _said("end_date"),
        "catchup": "current_version__definition__catchup",
        "max_active_runs": Cast(_said("max_active_runs"), IntegerField()),
        "max_active_tasks": Cast(_said("max_active_tasks"), IntegerField()),
        "params": "current_version__definition__params",
        "param_schemas": "current_version__definition__param_schemas",
        "param_order": "current_version__definition__param_order",
    },
    key="flow_id",
)


def next_times(flow: FlowRow, after: datetime, count: int = NEXT_TIMES) -> list[datetime]:
    """When the flow has runs due next, as it is now; a flow that is paused counts as well."""
    if not flow.schedule:
        return []
    spec = schedules.from_dict(flow.timetable) if flow.timetable else flow.schedule
    return timetable.coming_due(
        spec,
        flow.timezone or "UTC",
        after,
        count,
        start_date=timetable.instant(flow.start_date),
        end_date=timetable.instant(flow.end_date),
    )


def schedule_in_words(flow: FlowRow) -> str:
    """When the flow runs by itself."""
    if not flow.schedule:
        return BY_HAND
    spec = schedules.from_dict(flow.timetable) if flow.timetable else flow.schedule
    return describe(spec, flow.timezone or "UTC")


def page(asked: FlowFilter, scope: Scope) -> lens.Page[FlowRow]:
    """One page of flows."""
    return lens.page(NOUN, asked, scope)


def check(scope: Scope, flow_id: str) -> None:
    """Raises ``NotFound`` for a flow that the scope does not see. Reads no more of it than that."""
    if scope != EVERYTHING or "\x00" in flow_id:
        one(scope, flow_id)
        return
    with database.prepared(connection) as raw:
        found = raw.execute("SELECT 1 FROM flow WHERE flow_id = %s::text", [flow_id]).fetchone()
    if found is None:
        one(scope, flow_id)


def one(scope: Scope, flow_id: str) -> FlowRow:
    """The flow with this id. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(flow_id=flow_id), f"flow {flow_id}")
