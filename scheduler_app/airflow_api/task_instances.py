"""Task instances: lists, one, and their tries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.db.models import Case, DurationField, ExpressionWrapper, F, Q, When
from django.db.models.functions import Coalesce
from rest_framework.response import Response

from scheduler_app.airflow_api import bodies, parameters, shapes
from scheduler_app.airflow_api.bodies import Field
from scheduler_app.airflow_api.dag_runs import run_of
from scheduler_app.airflow_api.views import AirflowView
from scheduler_app.queries import attempts, by_offset, runs, task_instances, why
from scheduler_app.rules.errors import NotFound
from scheduler_app.rules.states import AttemptKind, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rest_framework.request import Request

    from scheduler_app.queries.attempts import AttemptRow
    from scheduler_app.queries.scope import Scope
    from scheduler_app.queries.task_instances import TaskInstanceRow

COLUMNS: Final = {
    "run_after": Case(
        When(run__run_type="manual", then=F("run__created_at")),
        default=Coalesce(F("run__data_interval_end"), F("run__created_at")),
    ),
    "duration": ExpressionWrapper(F("ended_at") - F("started_at"), output_field=DurationField()),
}
ORDERS: Final = {
    "id": "id",
    "state": "state",
    "duration": "duration",
    "start_date": "started_at",
    "end_date": "ended_at",
    "map_index": "map_index",
    "rendered_map_index": "map_index",
    "try_number": "try_number",
    "logical_date": "run__logical_date",
    "run_after": "run_after",
    "data_interval_start": "run__data_interval_start",
    "data_interval_end": "run__data_interval_end",
}
TIMES: Final = {
    "run_after": "run_after",
    "logical_date": "run__logical_date",
    "start_date": "started_at",
    "end_date": "ended_at",
}
UNSUPPORTED: Final = (
    *("cursor", "executor", "version_number", "operator", "task_group_id"),
    *(f"updated_at_{compare}" for compare in parameters.COMPARED),
    *(f"duration_{compare}" for compare in parameters.COMPARED),
    "operator_name_pattern",
)
STATES: Final = tuple(state.value for state in TaskState)
LISTED_MAX: Final = 100
TRIES_MAX: Final = 100
BATCH: Final = {
    "order_by": Field(bodies.optional(bodies.text), None),
    "page_offset": Field(bodies.integer, 0),
    "page_limit": Field(bodies.integer, LISTED_MAX),
    "dag_ids": Field(bodies.optional(bodies.listed(bodies.text)), None),
    "dag_run_ids": Field(bodies.optional(bodies.listed(bodies.text)), None),
    "task_ids": Field(bodies.optional(bodies.listed(bodies.text)), None),
    "state": Field(bodies.optional(bodies.listed(bodies.optional(bodies.text))), None),
    "pool": Field(bodies.optional(bodies.listed(bodies.text)), None),
    "queue": Field(bodies.optional(bodies.listed(bodies.text)), None),
    **{
        f"{name}_{compare}": Field(bodies.optional(bodies.moment), None)
        for name in TIMES
        for compare in parameters.COMPARED
    },
}


class TaskInstanceList(AirflowView):
    """The task instances of a run; ``~`` stands for any flow or run."""

    def get(self, request: Request, dag_id: str, run_id: str, task_id: str = "~") -> Response:
        """Task instances, page by page."""
        parameters.refuse_unsupported(request, UNSUPPORTED)
        if parameters.ANYTHING not in (dag_id, run_id):
            run_of(self.scope, dag_id, run_id)
        # By its map index, an instance has a place within a run only.
        default = "id" if parameters.ANYTHING in (dag_id, run_id) else "map_index"
        window = parameters.window(request, ORDERS, default=default)
        where = parameters.named("run__flow_id", dag_id)
        where &= parameters.named("run__run_key", run_id)
        where &= parameters.named("task_id", task_id)
        where &= _in_states(parameters.states(request, STATES))
        where &= parameters.among(request, "task_id", "task_id")
        where &= parameters.among(request, "pool", "pool")
        where &= parameters.among(request, "queue", "queue")
        where &= parameters.numbers(request, "try_number", "try_number")
        where &= parameters.numbers(request, "map_index", "map_index")
        where &= parameters.ranges(request, TIMES)
        where &= parameters.pattern(request, "rendered_map_index", "map_label")
        where &= parameters.pattern(request, "dag_id", "run__flow__flow_id")
        where &= parameters.pattern(request, "run_id", "run__run_key")
        where &= parameters.pattern(request, "task_id", "task_id")
        where &= parameters.pattern(request, "task_display_name", "task_id")
        where &= parameters.pattern(request, "pool", "pool")
        where &= parameters.pattern(request, "queue", "queue")
        return answer(self.scope, _page(self.scope, where, window))


class TaskInstanceDetail(AirflowView):
    """One task instance."""

    def get(
        self,
        request: Request,
        dag_id: str,
        run_id: str,
        task_id: str,
        map_index: int | None = None,
    ) -> Response:
        """Its fields."""
        row = instance_of(self.scope, request, dag_id, run_id, task_id, map_index)
        return Response(told(self.scope, [row])[0])


class MappedList(TaskInstanceList):
    """The mapped instances of one task."""

    def get(self, request: Request, dag_id: str, run_id: str, task_id: str = "~") -> Response:
        """Those with a map index."""
        run_of(self.scope, dag_id, run_id)
        window = parameters.window(request, ORDERS, default="map_index")
        where = Q(run__flow_id=dag_id, run__run_key=run_id, task_id=task_id, map_index__gte=0)
        where &= _in_states(parameters.states(request, STATES))
        return answer(self.scope, _page(self.scope, where, window))


class TaskInstanceBatch(AirflowView):
    """The list of task instances, asked for by a body."""

    def post(self, request: Request) -> Response:
        """Task instances that the body keeps."""
        body = bodies.read(request, BATCH)
        where = Q()
        for name, column in (
            ("dag_ids", "run__flow_id"),
            ("dag_run_ids", "run__run_key"),
            ("task_ids", "task_id"),
            ("pool", "pool"),
            ("queue", "queue"),
        ):
            if body[name]:
                where &= Q(**{f"{column}__in": body[name]})
        if body["state"]:
            where &= _in_states([state or "none" for state in body["state"]])
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
        return answer(self.scope, _page(self.scope, where, window))


class Tries(AirflowView):
    """What became of each try of a task instance; or of one."""

    def get(
        self,
        request: Request,
        dag_id: str,
        run_id: str,
        task_id: str,
        map_index: int | None = None,
        number: int | None = None,
    ) -> Response:
        """The newest attempt of each try, oldest first."""
        row = instance_of(self.scope, request, dag_id, run_id, task_id, map_index)
        found = tries_of(self.scope, row)
        if number is None:
            told = [shapes.task_instance_try(row, one) for one in found.values()]
            return Response({"task_instances": told, "total_entries": len(told)})
        if number not in found:
            message = f"The Task Instance with dag_id: `{dag_id}`, run_id: `{run_id}`, task_id: `{task_id}`, try_number: `{number}` and map_index: `{row.map_index}` was not found"
            raise NotFound(message)
        return Response(shapes.task_instance_try(row, found[number]))


class Dependencies(AirflowView):
    """Why a task instance does not start."""

    def get(
        self,
        request: Request,
        dag_id: str,
        run_id: str,
        task_id: str,
        map_index: int | None = None,
    ) -> Response:
        """What holds it, while it waits to start."""
        row = instance_of(self.scope, request, dag_id, run_id, task_id, map_index)
        if row.state_beneath not in (TaskState.NONE, TaskState.SCHEDULED):
            return Response({"dependencies": []})
        said = why.explain(self.scope, row)
        return Response({"dependencies": [{"name": said.rule, "reason": said.sentence}]})


def instance_of(
    scope: Scope,
    request: Request,
    dag_id: str,
    run_id: str,
    task_id: str,
    map_index: int | None,
) -> TaskInstanceRow:
    """The current task instance that an address names. Raises ``NotFound`` in Airflow's words."""
    if map_index is None:
        given = request.query_params.get("map_index", "-1")
        map_index = parameters.read(["query", "map_index"], int, given, "int_parsing")
    found = by_offset.page(
        task_instances.NOUN,
        scope,
        where=Q(run__flow_id=dag_id, run__run_key=run_id, task_id=task_id, map_index=map_index),
        order=(),
        limit=1,
        is_filtered_too=True,
        is_counted=False,
    )
    if not found.rows:
        message = f"The Task Instance with dag_id: `{dag_id}`, run_id: `{run_id}` and task_id: `{task_id}` was not found"
        raise NotFound(message)
    return found.rows[0]


def tries_of(scope: Scope, row: TaskInstanceRow) -> dict[int, AttemptRow]:
    """The newest attempt of each try."""
    found: dict[int, AttemptRow] = {}
    for attempt in attempts_of(scope, row):
        if attempt.try_number is not None:
            found[attempt.try_number] = attempt
    return found


def attempts_of(scope: Scope, row: TaskInstanceRow) -> tuple[AttemptRow, ...]:
    """The attempts of a task instance, oldest first."""
    return by_offset.page(
        attempts.NOUN,
        scope,
        where=Q(ti_id=row.id, kind=AttemptKind.TASK),
        order=(("fence", False),),
        limit=TRIES_MAX,
        is_filtered_too=True,
        is_counted=False,
    ).rows


def family(scope: Scope, rows: Iterable[TaskInstanceRow]) -> shapes.Family:
    """The runs and current attempts of these."""
    rows = tuple(rows)
    tried = {row.attempt_id for row in rows if row.attempt_id is not None}
    return shapes.Family(
        runs=runs.dates(scope, {row.run for row in rows}),
        attempts={one.id: one for one in attempts.briefly(scope, ids=tried, at_most=len(tried))}
        if tried
        else {},
    )


def _in_states(states: Sequence[str]) -> Q:
    """Task instances in one of the states; all, where none is named."""
    return task_instances.in_states(states) if states else Q()


def told(scope: Scope, rows: Iterable[TaskInstanceRow]) -> list[dict[str, Any]]:
    """These task instances as Airflow's objects."""
    rows = tuple(rows)
    of = family(scope, rows)
    return [shapes.task_instance(row, of) for row in rows]


def answer(scope: Scope, page: by_offset.OffsetPage[TaskInstanceRow]) -> Response:
    """A list of task instances."""
    return Response({"task_instances": told(scope, page.rows), "total_entries": page.total})


def _page(
    scope: Scope, where: Q, window: parameters.Window
) -> by_offset.OffsetPage[TaskInstanceRow]:
    return by_offset.page(
        task_instances.NOUN,
        scope,
        where=where,
        order=window.order,
        limit=window.limit,
        offset=window.offset,
        columns=COLUMNS,
    )
