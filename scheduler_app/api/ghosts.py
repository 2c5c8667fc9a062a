"""Ghosts and suspects, and the request to end one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api import bodies
from scheduler_app.api.lines import line
from scheduler_app.api.reading import ApiView, NounList, StandingSerializer
from scheduler_app.operations.stop_ghost import stop_ghost
from scheduler_app.queries import ghosts
from scheduler_app.queries.filters import GhostFilter

if TYPE_CHECKING:
    from rest_framework.request import Request


class GhostSerializer(StandingSerializer):
    """One sighting."""

    id = serializers.IntegerField()
    kind = serializers.CharField()
    state = serializers.CharField()
    flow_id = serializers.CharField(allow_null=True)
    run_id = serializers.CharField(allow_null=True)
    run = serializers.IntegerField(allow_null=True)
    ti = serializers.IntegerField(allow_null=True)
    task_id = serializers.CharField(allow_null=True)
    map_index = serializers.IntegerField(allow_null=True)
    try_number = serializers.IntegerField(allow_null=True)
    attempt_id = serializers.UUIDField(allow_null=True)
    current_attempt_id = serializers.UUIDField(allow_null=True)
    hostname = serializers.CharField(allow_null=True)
    pid = serializers.IntegerField(allow_null=True)
    worker_job_id = serializers.UUIDField(allow_null=True)
    shard = serializers.IntegerField(allow_null=True)
    lease_token = serializers.IntegerField(allow_null=True)
    seen_by = serializers.CharField()
    detail = serializers.JSONField()
    first_seen_at = serializers.DateTimeField()
    last_seen_at = serializers.DateTimeField()
    policy = serializers.CharField()
    stop_requested_at = serializers.DateTimeField(allow_null=True)
    stop_requested_by = serializers.CharField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    end_reason = serializers.CharField(allow_null=True)
    reviewed = serializers.JSONField(allow_null=True)


class GhostDetailSerializer(GhostSerializer):
    """One sighting, put into words."""

    title = serializers.CharField()
    sentence = serializers.CharField()
    remedy = serializers.CharField()
    is_suspect = serializers.BooleanField()


class StopSerializer(serializers.Serializer[dict[str, Any]]):
    """Why."""

    reason = serializers.CharField(max_length=1000, trim_whitespace=False)


class GhostList(NounList):
    """Ghosts and suspects, page by page; those that are over are filtered."""

    noun = ghosts.NOUN
    asked = GhostFilter
    serializer = GhostSerializer


class GhostDetail(ApiView):
    """One sighting, current or filtered."""

    @extend_schema(responses=GhostDetailSerializer)
    def get(self, request: Request, ghost: int) -> Response:
        """All its fields, with what was seen and what to do in words."""
        del request
        row = ghosts.one(self.scope, ghost)
        return Response(line(GhostDetailSerializer, row))


class GhostStop(ApiView):
    """The end of an execution that the database knows nothing of."""

    @extend_schema(request=StopSerializer, responses=GhostDetailSerializer)
    def post(self, request: Request, ghost: int) -> Response:
        """Its worker is asked; asking again changes nothing."""
        ghosts.one(self.scope, ghost)
        body = bodies.checked(StopSerializer, request)
        stop_ghost(ghost_id=ghost, actor=request.user.get_username(), reason=body["reason"])
        return Response(line(GhostDetailSerializer, ghosts.one(self.scope, ghost)))
