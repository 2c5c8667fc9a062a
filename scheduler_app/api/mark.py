"""Marking over the API: task instances and runs are what a person says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from scheduler_app.api import bodies, matching
from scheduler_app.api.acts import (
    MarkPlanSerializer,
    RunMarkRequestSerializer,
    RunsMarkRequestSerializer,
    TaskInstanceMarkRequestSerializer,
    TaskInstancesMarkRequestSerializer,
)
from scheduler_app.api.lines import line
from scheduler_app.api.reading import ApiView
from scheduler_app.operations.mark import Reach, mark_run, mark_runs, mark_task_instances
from scheduler_app.operations.reaching import of_run
from scheduler_app.queries import runs, task_instances
from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from rest_framework.request import Request

REACH: Final = tuple(Reach.__dataclass_fields__)


class RunMark(ApiView):
    """Marking a run, or task instances of it."""

    @extend_schema(request=RunMarkRequestSerializer, responses=MarkPlanSerializer)
    def post(self, request: Request, run: int) -> Response:
        """It ends so when what runs of it was stopped; ``dry_run`` only says so."""
        row = runs.one(self.scope, run)
        body = bodies.checked(RunMarkRequestSerializer, request)
        actor = request.user.get_username()
        named, reach = body.pop("task_instances"), _reach(body)
        tasks, group = body.pop("tasks"), body.pop("group")
        if tasks or group is not None:
            named = [*(named or ()), *of_run(run, tasks=tasks or (), group=group)]
        if named is None:
            for key in REACH:
                if getattr(reach, key):
                    message = (
                        f"{key} needs task instances to start from: the whole run is asked for."
                    )
                    raise InvalidInput(message, field=key)
            return _answer(mark_run(run_id=run, actor=actor, **body))
        task_instances.check_of_run(self.scope, row.id, named)
        return _answer(mark_task_instances(ti_ids=named, actor=actor, reach=reach, **body))


class RunsMark(ApiView):
    """Marking several runs, each as a whole."""

    @extend_schema(
        operation_id="runs_mark_several",
        request=RunsMarkRequestSerializer,
        responses=MarkPlanSerializer,
    )
    def post(self, request: Request) -> Response:
        """One after the other, each in a transaction of its own; ``dry_run`` only says so."""
        body = bodies.checked(RunsMarkRequestSerializer, request)
        ids = matching.runs_of(request, self.scope, body.pop("runs"))
        return _answer(mark_runs(run_ids=ids, actor=request.user.get_username(), **body))


class TaskInstancesMark(ApiView):
    """Marking task instances of any runs."""

    @extend_schema(
        operation_id="task_instances_mark_several",
        request=TaskInstancesMarkRequestSerializer,
        responses=MarkPlanSerializer,
    )
    def post(self, request: Request) -> Response:
        """Run by run, each in a transaction of its own; ``dry_run`` only says so."""
        body = bodies.checked(TaskInstancesMarkRequestSerializer, request)
        ids = matching.task_instances_of(request, self.scope, body.pop("task_instances"))
        actor = request.user.get_username()
        return _answer(mark_task_instances(ti_ids=ids, actor=actor, reach=_reach(body), **body))


class TaskInstanceMark(ApiView):
    """Marking one task instance, with its relatives where they are asked for."""

    @extend_schema(request=TaskInstanceMarkRequestSerializer, responses=MarkPlanSerializer)
    def post(self, request: Request, ti: int) -> Response:
        """It is so at once, or when it was stopped; ``dry_run`` only says so."""
        task_instances.one(self.scope, ti)
        body = bodies.checked(TaskInstanceMarkRequestSerializer, request)
        actor = request.user.get_username()
        return _answer(mark_task_instances(ti_ids=[ti], actor=actor, reach=_reach(body), **body))


def _reach(body: dict[str, Any]) -> Reach:
    """How far it goes, taken out of the body."""
    return Reach(**{key: body.pop(key) for key in REACH})


def _answer(plan: object) -> Response:
    return Response(line(MarkPlanSerializer, plan))
