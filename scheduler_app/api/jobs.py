"""Jobs: the incarnations of processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api import bodies
from scheduler_app.api.acts import ActRequestSerializer
from scheduler_app.api.lines import line
from scheduler_app.api.reading import ApiView, NounList, StandingSerializer
from scheduler_app.operations.drain_job import drain_job, undrain_job
from scheduler_app.operations.stop_job import stop_job
from scheduler_app.queries import jobs
from scheduler_app.queries.filters import JobFilter

if TYPE_CHECKING:
    from uuid import UUID

    from rest_framework.request import Request


class JobSerializer(StandingSerializer):
    """One job."""

    id = serializers.UUIDField()
    kind = serializers.CharField()
    name = serializers.CharField()
    hostname = serializers.CharField()
    pid = serializers.IntegerField()
    state = serializers.CharField()
    alive = serializers.BooleanField()
    started_at = serializers.DateTimeField()
    heartbeat_at = serializers.DateTimeField()
    progress_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)
    stop_requested_at = serializers.DateTimeField(allow_null=True)
    stop_requested_by = serializers.CharField()
    stop_reason = serializers.CharField()
    drain_requested_at = serializers.DateTimeField(allow_null=True)
    drain_requested_by = serializers.CharField()
    drain_reason = serializers.CharField()
    clock_ahead_s = serializers.FloatField(allow_null=True)
    clock_within_s = serializers.FloatField(allow_null=True)
    detail = serializers.JSONField()


class JobList(NounList):
    """Jobs, page by page."""

    noun = jobs.NOUN
    asked = JobFilter
    serializer = JobSerializer


class JobDetail(ApiView):
    """One job, current or filtered."""

    @extend_schema(responses=JobSerializer)
    def get(self, request: Request, job_id: UUID) -> Response:
        """All its fields."""
        del request
        row = jobs.one(self.scope, job_id)
        return Response(line(JobSerializer, row))


class StopPlanSerializer(serializers.Serializer[Any]):
    """What a stop does."""

    job_id = serializers.UUIDField()
    kind = serializers.CharField()
    hostname = serializers.CharField()
    pid = serializers.IntegerField()
    effects = serializers.ListField(child=serializers.CharField())
    is_asked = serializers.BooleanField()
    dry_run = serializers.BooleanField()


class JobStop(ApiView):
    """Asking a process to end in order."""

    @extend_schema(request=ActRequestSerializer, responses=StopPlanSerializer)
    def post(self, request: Request, job_id: UUID) -> Response:
        """The process ends soon; ``dry_run`` only says what would follow."""
        jobs.one(self.scope, job_id)
        body = bodies.checked(ActRequestSerializer, request)
        plan = stop_job(job_id=job_id, actor=request.user.get_username(), **body)
        return Response(line(StopPlanSerializer, plan))


class DrainPlanSerializer(serializers.Serializer[Any]):
    """What draining, or ending it, does."""

    job_id = serializers.UUIDField()
    hostname = serializers.CharField()
    pid = serializers.IntegerField()
    shards = serializers.IntegerField()
    effects = serializers.ListField(child=serializers.CharField())
    is_drained = serializers.BooleanField()
    dry_run = serializers.BooleanField()


class JobDrain(ApiView):
    """A scheduler that leads nothing and stands by; and the way back."""

    is_drained = True

    @extend_schema(request=ActRequestSerializer, responses=DrainPlanSerializer)
    def post(self, request: Request, job_id: UUID) -> Response:
        """It gives up its shards, or takes its share again; ``dry_run`` only says what would follow."""
        jobs.one(self.scope, job_id)
        body = bodies.checked(ActRequestSerializer, request)
        act = drain_job if self.is_drained else undrain_job
        plan = act(job_id=job_id, actor=request.user.get_username(), **body)
        return Response(line(DrainPlanSerializer, plan))
