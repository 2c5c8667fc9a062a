"""Marks of runs and of task instances, and notes."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Q
from rest_framework.response import Response

from scheduler_app.airflow_api import bodies
from scheduler_app.airflow_api.bodies import Field
from scheduler_app.airflow_api.dag_runs import DagRunDetail, run_of
from scheduler_app.airflow_api.task_instances import TaskInstanceDetail, instance_of, told
from scheduler_app.airflow_api.views import REASON, AirflowView, refusal
from scheduler_app.operations.clear import clear_run
from scheduler_app.operations.mark import MarkPlan, Reach, mark_run, mark_task_instances
from scheduler_app.operations.note_run import note_run
from scheduler_app.queries import by_offset, rights, task_instances
from scheduler_app.rules.clear import Options
from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from rest_framework.request import Request

RUN: Final = {
    "state": Field(bodies.optional(bodies.choice("queued", "success", "failed")), None),
    "note": Field(bodies.optional(bodies.text), None),
}
TASK: Final = {
    "new_state": Field(bodies.optional(bodies.choice("success", "failed", "skipped")), None),
    "note": Field(bodies.optional(bodies.text), None),
    "include_upstream": Field(bodies.boolean, False),
    "include_downstream": Field(bodies.boolean, False),
    "include_future": Field(bodies.boolean, False),
    "include_past": Field(bodies.boolean, False),
}


class MarkedDagRun(DagRunDetail):
    """One run; a PATCH marks it, begins it anew, or writes a note."""

    def patch(self, request: Request, dag_id: str, run_id: str) -> Response:
        """``queued`` begins anew what failed; ``success`` and ``failed`` are marks."""
        row = run_of(self.scope, dag_id, run_id)
        body = _masked(request, bodies.read(request, RUN))
        if body["state"] == "queued":
            clear_run(
                run_id=row.id,
                actor=self.actor,
                options=Options(only_failed=True),
                reason=REASON,
                dry_run=False,
                automated=rights.is_service(request.user),
            )
        elif body["state"] is not None:
            mark_run(run_id=row.id, state=body["state"], actor=self.actor, reason=REASON)
        if body["note"] is not None:
            note_run(run_id=row.id, note=body["note"], actor=self.actor, reason=REASON)
        return self.get(request, dag_id, run_id)


class MarkedTaskInstance(TaskInstanceDetail):
    """One task instance; a PATCH marks it, with the relatives that are asked for."""

    is_dry_run = False

    def patch(
        self,
        request: Request,
        dag_id: str,
        run_id: str,
        task_id: str,
        map_index: int | None = None,
    ) -> Response:
        """The task instances that were marked, or would be."""
        row = instance_of(self.scope, request, dag_id, run_id, task_id, map_index)
        body = _masked(request, bodies.read(request, TASK, extra=True))
        if body["new_state"] is None:
            if body["note"] is None:
                raise InvalidInput("Give new_state, or a note.")
            if not self.is_dry_run:
                note_run(run_id=row.run, note=body["note"], actor=self.actor, reason=REASON)
            return _answer(self, [row.id])
        if row.state_beneath == body["new_state"]:
            return refusal(
                HTTPStatus.CONFLICT, f"Task id {task_id} is already in {body['new_state']} state"
            )
        plan = mark_task_instances(
            ti_ids=[row.id],
            state=body["new_state"],
            actor=self.actor,
            reach=Reach(
                **{
                    name: body[name]
                    for name in (
                        "include_upstream",
                        "include_downstream",
                        "include_past",
                        "include_future",
                    )
                }
            ),
            reason=REASON,
            note=body["note"],
            dry_run=self.is_dry_run,
        )
        return _answer(self, _marked(plan))


def _marked(plan: MarkPlan) -> list[int]:
    return [one.id for one in plan.included]


def _answer(view: AirflowView, ids: list[int]) -> Response:
    found = by_offset.page(
        task_instances.NOUN,
        view.scope,
        where=Q(id__in=ids),
        order=(("id", False),),
        limit=len(ids),
        is_filtered_too=True,
    )
    return Response(
        {"task_instances": told(view.scope, found.rows), "total_entries": len(found.rows)}
    )


def _masked(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    """The body without what ``update_mask`` leaves out."""
    mask = request.query_params.getlist("update_mask")
    if not mask:
        return body
    return {
        name: value if name in mask or name.startswith("include_") else None
        for name, value in body.items()
    }
