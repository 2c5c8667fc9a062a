"""Run attempts, and what people do about the ones that are to come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api import bodies
from scheduler_app.api.acts import ActRequestSerializer
from scheduler_app.api.clear import ClearPlanSerializer
from scheduler_app.api.lines import line
from scheduler_app.api.reading import ApiView, NounList, StandingSerializer
from scheduler_app.api.runs import RunSerializer
from scheduler_app.operations.retry_run import cancel_retry, retry_run
from scheduler_app.queries import rights, run_attempts, runs
from scheduler_app.queries.filters import RunAttemptFilter

if TYPE_CHECKING:
    from rest_framework.request import Request


class RunAttemptSerializer(StandingSerializer):
    """One go at a run."""

    id = serializers.IntegerField()
    flow_id = serializers.CharField()
    run_id = serializers.CharField()
    run = serializers.IntegerField()
    number = serializers.IntegerField()
    cause = serializers.CharField()
    actor = serializers.CharField()
    reason = serializers.CharField()
    state = serializers.CharField()
    outcome_reason = serializers.CharField()
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)


class RunRetryRequestSerializer(ActRequestSerializer):
    """Why, which preview is to be carried out, and whether a service asks."""

    plan_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    automated = serializers.BooleanField(required=False, default=False)


class RunAttemptList(NounList):
    """Run attempts, page by page."""

    noun = run_attempts.NOUN
    asked = RunAttemptFilter
    serializer = RunAttemptSerializer


class RunAttemptDetail(ApiView):
    """One run attempt, current or filtered."""

    @extend_schema(responses=RunAttemptSerializer)
    def get(self, request: Request, run_attempt: int) -> Response:
        """All its fields."""
        del request
        return Response(line(RunAttemptSerializer, run_attempts.one(self.scope, run_attempt)))


class RunRetry(ApiView):
    """Beginning the next run attempt of a failed run now."""

    @extend_schema(request=RunRetryRequestSerializer, responses=ClearPlanSerializer)
    def post(self, request: Request, run: int) -> Response:
        """It begins, with what its policy takes up again; ``dry_run`` only says so."""
        runs.one(self.scope, run)
        body = bodies.checked(RunRetryRequestSerializer, request)
        body["automated"] |= rights.is_service(request.user)
        plan = retry_run(run_id=run, actor=request.user.get_username(), **body)
        return Response(line(ClearPlanSerializer, plan))


class RunCancelRetry(ApiView):
    """Cancelling the run attempt that a failed run waits for."""

    @extend_schema(request=ActRequestSerializer, responses=RunSerializer)
    def post(self, request: Request, run: int) -> Response:
        """The run stays failed."""
        runs.one(self.scope, run)
        body = bodies.checked(ActRequestSerializer, request)
        cancel_retry(run_id=run, actor=request.user.get_username(), **body)
        return Response(line(RunSerializer, runs.one(self.scope, run)))
