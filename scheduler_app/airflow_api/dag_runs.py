"""Runs, as DAG runs: lists, one, and triggering."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.db.models import Case, DurationField, ExpressionWrapper, F, Q, When
from django.db.models.functions import Coalesce
from rest_framework.response import Response

from scheduler_app.airflow_api import bodies, parameters, shapes
from scheduler_app.airflow_api.bodies import Field
from scheduler_app.airflow_api.dags import dag_of
from scheduler_app.airflow_api.views import PAGE, AirflowView, duplicate, refusal
from scheduler_app.operations.trigger_run import trigger_run
from scheduler_app.queries import by_offset, runs
from scheduler_app.rules.errors import Conflict, InvalidInput, NotFound
from scheduler_app.rules.states import RunState, RunType

if TYPE_CHECKING:
    from rest_framework.request import Request

    from scheduler_app.queries.runs import RunRow
    from scheduler_app.queries.scope import Scope

RUN_AFTER: Final = Case(
    When(run_type="manual", then=F("created_at")),
    default=Coalesce(F("data_interval_end"), F("created_at")),
)
COLUMNS: Final = {
    "run_after": RUN_AFTER,
    "duration": ExpressionWrapper(F("ended_at") - F("started_at"), output_field=DurationField()),
}
ORDERS: Final = {
    "id": "id",
    "state": "state",
    "dag_id": "flow_id",
    "run_id": "run_key",
    "dag_run_id": "run_key",
    "logical_date": "logical_date",
    "run_after": "run_after",
    "start_date": "started_at",
    "end_date": "ended_at",
    "duration": "duration",
    "updated_at": "id",
}
TIMES: Final = {
    "run_after": "run_after",
    "logical_date": "logical_date",
    "start_date": "started_at",
    "end_date": "ended_at",
}
UNSUPPORTED: Final = (
    *("cursor", "conf_contains", "dag_version", "consuming_asset_pattern"),
    *(f"updated_at_{compare}" for compare in parameters.COMPARED),
    *(f"duration_{compare}" for compare in parameters.COMPARED),
    *("partition_key_pattern", "partition_date_gte", "partition_date_lte"),
)
STATES: Final = tuple(state.value for state in RunState)
RUN_TYPES: Final = tuple(kind.value for kind in RunType)
LISTED_MAX: Final = 100

TRIGGER: Final = {
    "logical_date": Field(bodies.optional(bodies.moment)),
    "dag_run_id": Field(bodies.optional(bodies.text), None),
    "data_interval_start": Field(bodies.optional(bodies.moment), None),
    "data_interval_end": Field(bodies.optional(bodies.moment), None),
    "run_after": Field(bodies.optional(bodies.moment), None),
    "conf": Field(bodies.optional(bodies.mapping), None),
    "note": Field(bodies.optional(bodies.text), None),
    "partition_key": Field(bodies.optional(bodies.text), None),
}
BATCH: Final = {
    "order_by": Field(bodies.optional(bodies.text), None),
    "page_offset": Field(bodies.integer, 0),
    "page_limit": Field(bodies.integer, LISTED_MAX),
    "dag_ids": Field(bodies.optional(bodies.listed(bodies.text)), None),
    "states": Field(bodies.optional(bodies.listed(bodies.optional(bodies.text))), None),
    **{
        f"{name}_{compare}": Field(bodies.optional(bodies.moment), None)
        for name in TIMES
        for compare in parameters.COMPARED
    },
}


class DagRunList(AirflowView):
    """The runs of a flow, or of all (``~``); a POST triggers one more."""

    def get(self, request: Request, dag_id: str) -> Response:
        """Runs, page by page."""
        parameters.refuse_unsupported(request, UNSUPPORTED)
        if dag_id != parameters.ANYTHING:
            dag_of(self.scope, dag_id)
        window = parameters.window(request, ORDERS, default="id")
        where = parameters.named("flow_id", dag_id)
        if states := parameters.states(request, STATES):
            where &= Q(state__in=states)
        where &= parameters.among(request, "run_type", "run_type")
        where &= parameters.numbers(request, "bundle_version", "version__number")
        where &= parameters.ranges(request, TIMES)
        where &= parameters.pattern(request, "run_id", "run_key")
        where &= parameters.pattern(request, "dag_id", "flow__flow_id")
        where &= parameters.pattern(request, "triggering_user_name", "actor")
        return answer(_page(self.scope, where, window))

    def post(self, request: Request, dag_id: str) -> Response:
        """The run exists, queued."""
        dag_of(self.scope, dag_id)
        body = bodies.read(request, TRIGGER)
        for name in ("data_interval_start", "data_interval_end", "run_after", "partition_key"):
            if body[name] is not None:
                raise InvalidInput(
                    f"{name}: Daylight derives it from logical_date; leave it out, or null."
                )
        try:
            run = trigger_run(
                flow_id=dag_id,
                actor=self.actor,
                conf=body["conf"],
                logical_date=body["logical_date"],
                run_id=body["dag_run_id"],
                note=body["note"] or "",
            )
        except Conflict as error:
            return duplicate(str(error))
        row = runs.just_triggered(run.new, run.created, version=run.version)
        return Response(shapes.dag_run(row))


class DagRunDetail(AirflowView):
    """One run."""

    def get(self, request: Request, dag_id: str, run_id: str) -> Response:
        """Its fields."""
        del request
        return Response(shapes.dag_run(run_of(self.scope, dag_id, run_id)))

    def delete(self, request: Request, dag_id: str, run_id: str) -> Response:
        """Refused: what ran stays."""
        del request
        row = run_of(self.scope, dag_id, run_id)
        if row.state_beneath == RunState.RUNNING:
            return refusal(
                409,
                f"The DagRun with dag_id: `{dag_id}` and run_id: `{run_id}` cannot be deleted in"
                " running state",
            )
        return refusal(409, f"Daylight deletes no history: what ran stays; see {PAGE}.")


class DagRunBatch(AirflowView):
    """The list of runs, asked for by a body."""

    def post(self, request: Request) -> Response:
        """Runs that the body keeps."""
        body = bodies.read(request, BATCH)
        where = Q()
        if body["dag_ids"]:
            where &= Q(flow_id__in=body["dag_ids"])
        if body["states"]:
            where &= Q(state__in=[state for state in body["states"] if state])
        for name, column in TIMES.items():
            for compare in parameters.COMPARED:
                at = body[f"{name}_{compare}"]
                if at is not None:
                    where &= Q(**{f"{column}__{compare}": at})
        window = parameters.Window(
            limit=min(max(body["page_limit"], 0), LISTED_MAX),
            offset=max(body["page_offset"], 0),
            order=parameters.ordered([body["order_by"] or "id"], ORDERS),
        )
        return answer(_page(self.scope, where, window))


def run_of(scope: Scope, dag_id: str, run_id: str) -> RunRow:
    """The run. Raises ``NotFound`` in Airflow's words."""
    try:
        return runs.by_key(scope, dag_id, run_id)
    except NotFound:
        message = f"The DagRun with dag_id: `{dag_id}` and run_id: `{run_id}` was not found"
        raise NotFound(message) from None


def answer(page: by_offset.OffsetPage[RunRow]) -> Response:
    """A list of runs."""
    return Response(
        {"dag_runs": [shapes.dag_run(row) for row in page.rows], "total_entries": page.total}
    )


def _page(scope: Scope, where: Q, window: parameters.Window) -> by_offset.OffsetPage[Any]:
    return by_offset.page(
        runs.NOUN,
        scope,
        where=where,
        order=window.order,
        limit=window.limit,
        offset=window.offset,
        columns=COLUMNS,
    )
