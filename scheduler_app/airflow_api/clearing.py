"""Clears of runs and of task instances, as plans that are carried out at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Q
from rest_framework.response import Response

from scheduler_app.airflow_api import bodies, parameters, shapes
from scheduler_app.airflow_api.bodies import Field, Unprocessable, Wrong, fault
from scheduler_app.airflow_api.dag_runs import run_of
from scheduler_app.airflow_api.dags import dag_of
from scheduler_app.airflow_api.task_instances import told
from scheduler_app.airflow_api.views import REASON, AirflowView, refusal
from scheduler_app.operations.clear import clear_run, clear_task_instances
from scheduler_app.queries import by_offset, rights, runs, task_instances
from scheduler_app.rules.clear import RUNNING_STATES, Options
from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rest_framework.request import Request

    from scheduler_app.operations.clear import ClearPlan
    from scheduler_app.queries.runs import RunRow
    from scheduler_app.queries.task_instances import TaskInstanceRow

RUNS_MAX: Final = 500  # of one request; more is for the bulk clear of /api/v1/
FOUND_MAX: Final = 10_000  # task instances of one request

CLEAR_RUN: Final = {
    "dry_run": Field(bodies.boolean, True),
    "only_failed": Field(bodies.boolean, False),
    "only_new": Field(bodies.boolean, False),
    "run_on_latest_version": Field(bodies.optional(bodies.boolean), None),
    "note": Field(bodies.optional(bodies.text), None),
}


def dag_run(value: Any) -> dict[str, Any]:
    """A run of a list of runs."""
    try:
        return bodies.read_object(bodies.mapping(value), DAG_RUN, where=[])
    except Unprocessable as error:
        first = error.items[0]
        where = ".".join(map(str, first["loc"]))
        raise Wrong(first["type"], f"{where}: {first['msg']}") from None


DAG_RUN: Final = {
    "dag_id": Field(bodies.optional(bodies.text), None),
    "dag_run_id": Field(bodies.text),
    "note": Field(bodies.optional(bodies.text), None),
    "state": Field(bodies.optional(bodies.text), None),
}
PARTITIONED: Final = ("partition_key", "partition_date_start", "partition_date_end")
CLEAR_RUNS: Final = {
    **CLEAR_RUN,
    "dag_runs": Field(bodies.optional(bodies.listed(dag_run)), None),
    **{name: Field(bodies.optional(bodies.text), None) for name in PARTITIONED},
}


def task_id(value: Any) -> tuple[str, int | None]:
    """A task, or a task with its map index."""
    match value:
        case str():
            return value, None
        case [str() as name, int() as index]:
            return name, index
    raise Wrong("string_type", "Input should be a valid string, or a task id and a map index")


CLEAR_TASKS: Final = {
    "dry_run": Field(bodies.boolean, True),
    "task_ids": Field(bodies.optional(bodies.listed(task_id)), None),
    "dag_run_id": Field(bodies.optional(bodies.text), None),
    "start_date": Field(bodies.optional(bodies.moment), None),
    "end_date": Field(bodies.optional(bodies.moment), None),
    "only_failed": Field(bodies.boolean, True),
    "only_running": Field(bodies.boolean, False),
    "reset_dag_runs": Field(bodies.boolean, True),
    "include_upstream": Field(bodies.boolean, False),
    "include_downstream": Field(bodies.boolean, False),
    "include_future": Field(bodies.boolean, False),
    "include_past": Field(bodies.boolean, False),
    "run_on_latest_version": Field(bodies.optional(bodies.boolean), None),
    "prevent_running_task": Field(bodies.boolean, False),
    "note": Field(bodies.optional(bodies.text), None),
}


class DagRunClear(AirflowView):
    """Clearing one run."""

    def post(self, request: Request, dag_id: str, run_id: str) -> Response:
        """What a clear would take; with ``dry_run`` false the run, which begins anew."""
        body = bodies.read(request, CLEAR_RUN)
        _refuse_both(request, body)
        row = run_of(self.scope, dag_id, run_id)
        plan = clear_run(
            run_id=row.id,
            actor=self.actor,
            options=_options_of(body),
            reason=REASON,
            note=body["note"],
            dry_run=body["dry_run"],
            automated=rights.is_service(request.user),
        )
        if body["dry_run"]:
            return Response(_planned(self, [plan]))
        return Response(shapes.dag_run(runs.one(self.scope, row.id)))


class DagRunsClear(AirflowView):
    """Clearing several runs, of one flow or (``~``) of any."""

    def post(self, request: Request, dag_id: str) -> Response:
        """What clears would take; with ``dry_run`` false the runs, which begin anew one by one."""
        body = bodies.read(request, CLEAR_RUNS)
        _refuse_both(request, body)
        for name in PARTITIONED:
            if body[name] is not None:
                message = f"{name}: runs of Daylight have no partitions; name them in dag_runs."
                raise InvalidInput(message, field=name)
        named = [self._run(dag_id, one) for one in body["dag_runs"] or ()]
        if not named:
            raise InvalidInput("Name at least one run in dag_runs.", field="dag_runs")
        if len(named) > RUNS_MAX:
            message = f"{len(named)} runs are named; name at most {RUNS_MAX}."
            raise InvalidInput(message, field="dag_runs")
        plans = [
            clear_run(
                run_id=row.id,
                actor=self.actor,
                options=_options_of(body),
                reason=REASON,
                note=body["note"],
                dry_run=body["dry_run"],
                automated=rights.is_service(request.user),
            )
            for row in named
        ]
        if body["dry_run"]:
            return Response(_planned(self, plans))
        again = [shapes.dag_run(runs.one(self.scope, row.id)) for row in named]
        return Response({"dag_runs": again, "total_entries": len(again)})

    def _run(self, dag_id: str, one: dict[str, Any]) -> RunRow:
        of_flow = one["dag_id"] or dag_id
        if of_flow == parameters.ANYTHING:
            message = f"Run {one['dag_run_id']}: with ~ for the Dag, name the dag_id of each run."
            raise InvalidInput(message, field="dag_runs")
        if dag_id not in (parameters.ANYTHING, of_flow):
            message = f"Run {one['dag_run_id']} is of {of_flow}, and the address names {dag_id}."
            raise InvalidInput(message, field="dag_runs")
        return run_of(self.scope, of_flow, one["dag_run_id"])


class TaskInstancesClear(AirflowView):
    """Clearing task instances of a flow, in one run or in those of a span of dates."""

    def post(self, request: Request, dag_id: str) -> Response:
        """What is cleared, or would be."""
        dag_of(self.scope, dag_id)
        body = bodies.read(request, CLEAR_TASKS)
        options = Options(
            only_failed=body["only_failed"],
            only_running=body["only_running"],
            include_upstream=body["include_upstream"],
            include_downstream=body["include_downstream"],
            run_on_latest_version=body["run_on_latest_version"],
        )
        if options.only_failed and options.only_running:
            # As Airflow has it, the narrower wish wins: only_failed is on unless it is said.
            options = replace(options, only_failed=False)
        named = _named(self, dag_id, body)
        if body["prevent_running_task"]:
            running = [row for row in named if row.state_beneath in RUNNING_STATES]
            if running:
                return refusal(409, f"Task {running[0].task_id} is running, stopping the clear")
        by_run: dict[int, list[int]] = {}
        for row in named:
            by_run.setdefault(row.run, []).append(row.id)
        plans = [
            clear_task_instances(
                ti_ids=ti_ids,
                actor=self.actor,
                options=options,
                reason=REASON,
                note=body["note"],
                dry_run=body["dry_run"],
                automated=rights.is_service(request.user),
            )
            for _, ti_ids in sorted(by_run.items())
        ]
        return Response(_planned(self, plans))


def _refuse_both(request: Request, body: dict[str, Any]) -> None:
    if body["only_new"] and body["only_failed"]:
        message = "Value error, only_new and only_failed cannot both be set to true"
        raise Unprocessable([fault("value_error", ["body"], message, request.data)])


def _options_of(body: dict[str, Any]) -> Options:
    return Options(
        only_failed=body["only_failed"],
        only_new=body["only_new"],
        run_on_latest_version=body["run_on_latest_version"],
    )


def _named(view: AirflowView, dag_id: str, body: dict[str, Any]) -> Sequence[TaskInstanceRow]:
    """The task instances that the body names, with those of other dates if it asks for them."""
    where = Q(run__flow_id=dag_id, run__filter_code__isnull=True)
    if body["dag_run_id"] is not None:
        if body["start_date"] is not None or body["end_date"] is not None:
            raise InvalidInput(
                "Exactly one of dag_run_id or (start_date and end_date) may be given"
            )
        where &= _of_run(run_of(view.scope, dag_id, body["dag_run_id"]), body)
    elif body["include_past"] or body["include_future"]:
        raise InvalidInput(
            "include_past and include_future need a dag_run_id whose run has a logical date"
        )
    else:
        if body["start_date"] is not None:
            where &= Q(run__logical_date__gte=body["start_date"])
        if body["end_date"] is not None:
            where &= Q(run__logical_date__lte=body["end_date"])
    if body["task_ids"] is not None:
        where &= _of_tasks(body["task_ids"])
    found = by_offset.page(task_instances.NOUN, view.scope, where=where, order=(), limit=FOUND_MAX)
    if found.total > FOUND_MAX or len({row.run for row in found.rows}) > RUNS_MAX:
        raise InvalidInput(
            f"That names {found.total} task instances; at most {FOUND_MAX} in {RUNS_MAX} runs are"
            " cleared at once. Give dag_run_id, task_ids or dates."
        )
    return found.rows


def _of_run(run: RunRow, body: dict[str, Any]) -> Q:
    where = Q(run_id=run.id)
    if not (body["include_past"] or body["include_future"]):
        return where
    if run.logical_date is None:
        raise InvalidInput("Cannot clear past or future of a run that has no logical date")
    if body["include_past"]:
        where |= Q(run__logical_date__lte=run.logical_date)
    if body["include_future"]:
        where |= Q(run__logical_date__gte=run.logical_date)
    return where


def _of_tasks(wanted: Sequence[tuple[str, int | None]]) -> Q:
    if not wanted:
        return Q(pk__in=())
    where = Q()
    for name, index in wanted:
        where |= Q(task_id=name) if index is None else Q(task_id=name, map_index=index)
    return where


def _planned(view: AirflowView, plans: Sequence[ClearPlan]) -> dict[str, Any]:
    """What the plans take, as they are now; tasks that do not exist yet by their names."""
    ids = [one.id for plan in plans for one in plan.included if one.id is not None]
    found = by_offset.page(
        task_instances.NOUN,
        view.scope,
        where=Q(id__in=ids),
        order=(("run_id", False), ("id", False)),
        limit=len(ids),
        is_filtered_too=True,
    )
    items = told(view.scope, found.rows)
    items += [
        {"task_id": one.task_id, "task_display_name": one.task_id}
        for plan in plans
        for one in plan.included
        if one.id is None
    ]
    return {
        "task_instances": items,
        "total_entries": len(items),
        "daylight": {
            "plans": [
                {
                    "plan_id": str(plan.plan_id),
                    "run": plan.run_id,
                    "worst_case_executions": plan.worst_case_executions,
                    "new_run_attempt": plan.new_run_attempt,
                }
                for plan in plans
            ]
        },
    }
