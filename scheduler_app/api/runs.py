"""Runs: lists, one, and triggering by hand."""

from __future__ import annotations

from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import APIException
from rest_framework.response import Response

from scheduler_app.api import bodies
from scheduler_app.api.acts import ActRequestSerializer, TerminationPlanSerializer
from scheduler_app.api.lines import line
from scheduler_app.api.reading import ApiView, NounList, StandingSerializer
from scheduler_app.operations.terminate import terminate_run
from scheduler_app.operations.trigger_run import trigger_run, trigger_runs
from scheduler_app.queries import flows, groups, runs
from scheduler_app.queries.filters import RunFilter
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules.errors import SchedulerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rest_framework.request import Request

    from scheduler_app.queries.scope import Scope


class RunSerializer(StandingSerializer):
    """One run."""

    id = serializers.IntegerField()
    flow_id = serializers.CharField()
    run_id = serializers.CharField()
    shard = serializers.IntegerField()
    state = serializers.CharField()
    state_beneath = serializers.CharField()
    state_reason = serializers.CharField()
    run_type = serializers.CharField()
    logical_date = serializers.DateTimeField(allow_null=True)
    data_interval_start = serializers.DateTimeField(allow_null=True)
    data_interval_end = serializers.DateTimeField(allow_null=True)
    run_attempt = serializers.IntegerField()
    version = serializers.IntegerField()
    version_id = serializers.IntegerField()
    conf = serializers.JSONField()
    note = serializers.CharField()
    actor = serializers.CharField()
    created_at = serializers.DateTimeField()
    queued_at = serializers.DateTimeField(allow_null=True)
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    deadline_at = serializers.DateTimeField(allow_null=True)
    frozen_at = serializers.DateTimeField(allow_null=True)
    mark = serializers.JSONField(allow_null=True)
    retry_at = serializers.DateTimeField(allow_null=True)
    retry_count = serializers.IntegerField()
    retry_reason = serializers.CharField()
    backfill_id = serializers.IntegerField(allow_null=True)
    triggered_by = serializers.JSONField(allow_null=True)


class RunRequestSerializer(serializers.Serializer[dict[str, Any]]):
    """What a run may be triggered with; keys of ``conf`` that the flow does not declare are kept."""

    conf = serializers.JSONField(
        required=False, allow_null=True, validators=[bodies.check_storable]
    )
    logical_date = serializers.DateTimeField(required=False, allow_null=True)
    run_id = serializers.CharField(required=False, allow_null=True, trim_whitespace=False)
    note = serializers.CharField(
        required=False, allow_blank=True, default="", trim_whitespace=False
    )


class RunList(NounList):
    """Runs, page by page."""

    noun = runs.NOUN
    asked = RunFilter
    serializer = RunSerializer


class RunDetail(ApiView):
    """One run, current or filtered."""

    @extend_schema(responses=RunSerializer)
    def get(self, request: Request, run: int) -> Response:
        """All its fields."""
        del request
        row = runs.one(self.scope, run)
        return Response(line(RunSerializer, row))


class GroupAttemptSerializer(serializers.Serializer[Any]):
    """One go at a group that is retried as a whole."""

    number = serializers.IntegerField()
    cause = serializers.CharField()
    state = serializers.CharField()
    reason = serializers.CharField()
    is_current = serializers.BooleanField()
    started_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)
    retry_at = serializers.DateTimeField(allow_null=True)


class GroupSerializer(serializers.Serializer[Any]):
    """One group of a run; state, reason and attempts are of groups that are retried as a whole."""

    group_id = serializers.CharField()
    parent = serializers.CharField(allow_null=True)  # type: ignore[assignment]  # also of a Field
    doc = serializers.CharField()
    task_ids = serializers.ListField(child=serializers.CharField())
    states = serializers.DictField(child=serializers.IntegerField())
    state = serializers.CharField(allow_null=True)
    reason = serializers.CharField(allow_null=True)
    max_attempts = serializers.IntegerField(allow_null=True)
    retry_at = serializers.DateTimeField(allow_null=True)
    attempts = serializers.IntegerField()
    history = GroupAttemptSerializer(many=True)


class GroupListSerializer(serializers.Serializer[Any]):
    """The groups of a run, outer ones before those in them."""

    results = GroupSerializer(many=True)


class RunGroups(ApiView):
    """The groups of tasks of one run."""

    @extend_schema(responses=GroupListSerializer)
    def get(self, request: Request, run: int) -> Response:
        """What is in each, in which states, and the attempts of those that are one unit."""
        del request
        found = groups.of_run(self.scope, runs.one(self.scope, run))
        return Response(line(GroupListSerializer, {"results": found}))


class RunTerminate(ApiView):
    """Ending a run and everything unfinished in it."""

    @extend_schema(request=ActRequestSerializer, responses=TerminationPlanSerializer)
    def post(self, request: Request, run: int) -> Response:
        """What has not started never starts, what runs is stopped; ``dry_run`` only says so."""
        runs.one(self.scope, run)
        body = bodies.checked(ActRequestSerializer, request)
        plan = terminate_run(run_id=run, actor=request.user.get_username(), **body)
        return Response(line(TerminationPlanSerializer, plan))


class RunListOfFlow(RunList):
    """The runs of one flow; a POST triggers one more."""

    def get(self, request: Request, **path: str) -> Response:
        """Runs of the flow, page by page."""
        flows.one(self.scope, path["flow_id"])
        return super().get(request, **path)

    @extend_schema(request=RunRequestSerializer, responses={HTTPStatus.CREATED: RunSerializer})
    def post(self, request: Request, flow_id: str) -> Response:
        """The run exists, queued, with all its fields."""
        with _of_flow(self.scope, flow_id):
            body = bodies.checked(RunRequestSerializer, request)
            run = trigger_run(flow_id=flow_id, actor=request.user.get_username(), **body)
        row = runs.just_triggered(run.new, run.created, version=run.version)
        return Response(line(RunSerializer, row), status=HTTPStatus.CREATED)


@contextmanager
def _of_flow(scope: Scope, flow_id: str) -> Iterator[None]:
    """Within, runs of the flow are asked for. One that the scope does not see is ``NotFound``, first of all.

    Where every flow may be seen, that is looked at once something is wrong: asking for a run finds the flow.
    """
    if scope != EVERYTHING or "\x00" in flow_id:
        flows.check(scope, flow_id)
    try:
        yield
    except (SchedulerError, APIException):
        flows.check(scope, flow_id)
        raise


class RunsRequestSerializer(serializers.Serializer[dict[str, Any]]):
    """The runs that are wanted, each as one is triggered."""

    runs = RunRequestSerializer(many=True, allow_empty=False)
    note = serializers.CharField(
        required=False, allow_blank=True, default="", trim_whitespace=False
    )


class TriggeredRunSerializer(serializers.Serializer[dict[str, Any]]):
    """One of the runs that were triggered together."""

    id = serializers.IntegerField()
    run_id = serializers.CharField()


class TriggeredRunsSerializer(serializers.Serializer[dict[str, Any]]):
    """The runs that were made, in the order in which they were asked for."""

    count = serializers.IntegerField()
    runs = TriggeredRunSerializer(many=True)


class RunsOfFlowTrigger(ApiView):
    """Many runs of one flow at once."""

    @extend_schema(
        request=RunsRequestSerializer, responses={HTTPStatus.CREATED: TriggeredRunsSerializer}
    )
    def post(self, request: Request, flow_id: str) -> Response:
        """All of them exist, queued; where one cannot be made, none is."""
        with _of_flow(self.scope, flow_id):
            body = bodies.checked(RunsRequestSerializer, request)
            made = trigger_runs(flow_id=flow_id, actor=request.user.get_username(), **body)
        answer = {
            "count": len(made),
            "runs": [{"id": one.id, "run_id": one.run_key} for one in made],
        }
        return Response(line(TriggeredRunsSerializer, answer), status=HTTPStatus.CREATED)


class RunDetailByKey(ApiView):
    """One run by the text of its id within its flow."""

    @extend_schema(responses=RunSerializer)
    def get(self, request: Request, flow_id: str, run_id: str) -> Response:
        """All its fields."""
        del request
        return Response(line(RunSerializer, runs.by_key(self.scope, flow_id, run_id)))
