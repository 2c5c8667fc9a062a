"""Flows, as DAGs, and their tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django.db.models import Q
from rest_framework.response import Response

from scheduler_app.airflow_api import bodies, parameters, shapes
from scheduler_app.airflow_api.views import PAGE, REASON, AirflowView, refusal
from scheduler_app.operations.pause_flow import set_paused
from scheduler_app.queries import by_offset, flow_files, flow_versions, flows
from scheduler_app.rules.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from rest_framework.request import Request

    from scheduler_app.queries.flow_versions import FlowVersionDetail
    from scheduler_app.queries.flows import FlowRow
    from scheduler_app.queries.scope import Scope

ORDERS: Final = {
    "dag_id": "flow_id",
    "dag_display_name": "flow_id",
    "next_dagrun": "next_interval_end",
    "next_dagrun_run_after": "next_interval_end",
    "is_paused": "is_paused",
}
UNSUPPORTED: Final = (
    *("last_dag_run_state", "bundle_version", "has_asset_schedule", "asset_dependency"),
    *("dag_run_state", "is_favorite", "timetable_type", "has_pending_actions"),
    *("dag_run_start_date_gte", "dag_run_start_date_lte"),
    *("dag_run_end_date_gte", "dag_run_end_date_lte"),
)


class DagList(AirflowView):
    """Flows, page by page; a PATCH pauses those that it keeps."""

    def get(self, request: Request) -> Response:
        """Flows whose file defines them; all, with ``exclude_stale=false``."""
        page = self._page(request)
        faulty = _faulty(self.scope)
        dags = [shapes.dag(row, faulty=faulty) for row in page.rows]
        return Response({"dags": dags, "total_entries": page.total})

    def patch(self, request: Request) -> Response:
        """Those that the filters keep are paused, or go on."""
        wanted = bodies.read(request, {"is_paused": bodies.Field(bodies.boolean)})["is_paused"]
        if not request.query_params.getlist("dag_id_pattern"):
            raise InvalidInput("Give dag_id_pattern; ~ means every flow.")
        page = self._page(request)
        for row in page.rows:
            set_paused(flow_id=row.flow_id, is_paused=wanted, actor=self.actor, reason=REASON)
        faulty = _faulty(self.scope)
        dags = [shapes.dag(flows.one(self.scope, row.flow_id), faulty=faulty) for row in page.rows]
        return Response({"dags": dags, "total_entries": page.total})

    def _page(self, request: Request) -> by_offset.OffsetPage[FlowRow]:
        parameters.refuse_unsupported(request, UNSUPPORTED)
        window = parameters.window(request, ORDERS, default="dag_id")
        where = parameters.pattern(request, "dag_id", "flow_id")
        where &= parameters.pattern(request, "dag_display_name", "flow_id")
        where &= parameters.among(request, "owners", "owner")
        where &= parameters.among(request, "bundle_name", "folder")
        where &= _tagged(request)
        paused = parameters.flag(request, "paused")
        if paused is not None:
            where &= Q(is_paused=paused)
        faulty = parameters.flag(request, "has_import_errors")
        if faulty is not None:
            broken = Q(flow_id__in=_faulty(self.scope))
            where &= broken if faulty else ~broken
        return by_offset.page(
            flows.NOUN,
            self.scope,
            where=where,
            order=window.order,
            limit=window.limit,
            offset=window.offset,
            is_filtered_too=parameters.flag(request, "exclude_stale", True) is False,
        )


class DagDetail(AirflowView):
    """One flow."""

    def get(self, request: Request, dag_id: str) -> Response:
        """Its fields."""
        del request
        return Response(shapes.dag(dag_of(self.scope, dag_id), faulty=_faulty(self.scope)))

    def patch(self, request: Request, dag_id: str) -> Response:
        """It is paused, or goes on."""
        dag_of(self.scope, dag_id)
        _check_mask(request, ("is_paused",))
        body = bodies.read(request, {"is_paused": bodies.Field(bodies.boolean)})
        set_paused(flow_id=dag_id, is_paused=body["is_paused"], actor=self.actor, reason=REASON)
        return self.get(request, dag_id)

    def delete(self, request: Request, dag_id: str) -> Response:
        """Refused: what ran stays."""
        del request
        dag_of(self.scope, dag_id)
        return refusal(
            409,
            f"Daylight deletes no history. Take flow {dag_id} out of its file, and it is set aside"
            f" with its runs; see {PAGE}.",
        )


class DagDetails(AirflowView):
    """One flow with its definition."""

    def get(self, request: Request, dag_id: str) -> Response:
        """Its fields, and those of its definition."""
        del request
        row = dag_of(self.scope, dag_id)
        return Response(shapes.dag_details(row, faulty=_faulty(self.scope)))


class TaskList(AirflowView):
    """The tasks of a flow's current version."""

    def get(self, request: Request, dag_id: str) -> Response:
        """All of them, in the order that is asked for."""
        version = _version(self.scope, dag_id)
        tasks = [shapes.task(one, version) for one in version.graph().tasks]
        asked = request.query_params.get("order_by", "task_id")
        name = asked.removeprefix("-")
        if tasks and name not in tasks[0]:
            raise InvalidInput(
                f"Ordering with '{name[:80]}' is disallowed or the attribute does not exist on the"
                " model"
            )
        tasks.sort(key=lambda one: str(one[name]), reverse=asked.startswith("-"))
        return Response({"tasks": tasks, "total_entries": len(tasks)})


class TaskDetail(AirflowView):
    """One task of a flow's current version."""

    def get(self, request: Request, dag_id: str, task_id: str) -> Response:
        """Its fields."""
        del request
        version = _version(self.scope, dag_id)
        for one in version.graph().tasks:
            if one.task_id == task_id:
                return Response(shapes.task(one, version))
        raise NotFound(f"Task with id {task_id} was not found")


def dag_of(scope: Scope, dag_id: str) -> FlowRow:
    """The flow. Raises ``NotFound`` in Airflow's words."""
    try:
        return flows.one(scope, dag_id)
    except NotFound:
        message = f"Dag with dag_id: '{dag_id}' not found"
        raise NotFound(message) from None


def _version(scope: Scope, dag_id: str) -> FlowVersionDetail:
    row = dag_of(scope, dag_id)
    if row.version_id is None:
        message = f"Dag with dag_id: '{dag_id}' not found"
        raise NotFound(message)
    return flow_versions.one(scope, row.version_id)


def _faulty(scope: Scope) -> frozenset[str]:
    return frozenset(flow_id for file in flow_files.faulty(scope) for flow_id in file.flow_ids)


def _tagged(request: Request) -> Q:
    wanted = parameters.texts(request, "tags")
    is_all = request.query_params.get("tags_match_mode") == "all"
    kept = Q()
    for tag in wanted:
        one = Q(tags__contains=[tag])
        kept = kept & one if is_all else kept | one
    return kept


def _check_mask(request: Request, allowed: tuple[str, ...]) -> None:
    for name in request.query_params.getlist("update_mask"):
        if name not in allowed:
            raise InvalidInput(f"Only `{', '.join(allowed)}` field can be updated through this API")
