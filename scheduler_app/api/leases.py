"""Leases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api import bodies
from scheduler_app.api.acts import ActRequestSerializer
from scheduler_app.api.lines import line
from scheduler_app.api.reading import ApiView, NounList
from scheduler_app.operations.release_lease import release_lease
from scheduler_app.queries import leases
from scheduler_app.queries.filters import LeaseFilter

if TYPE_CHECKING:
    from rest_framework.request import Request


class LeaseSerializer(serializers.Serializer[leases.LeaseRow]):
    """One lease."""

    shard = serializers.IntegerField()
    holder = serializers.UUIDField(allow_null=True)
    holder_hostname = serializers.CharField(allow_null=True)
    holder_pid = serializers.IntegerField(allow_null=True)
    token = serializers.IntegerField()
    state = serializers.CharField()
    acquired_at = serializers.DateTimeField(allow_null=True)
    renewed_at = serializers.DateTimeField(allow_null=True)
    expires_at = serializers.DateTimeField(allow_null=True)


class LeaseList(NounList):
    """Leases, page by page."""

    noun = leases.NOUN
    asked = LeaseFilter
    serializer = LeaseSerializer


class LeaseDetail(ApiView):
    """One lease, current or filtered."""

    @extend_schema(responses=LeaseSerializer)
    def get(self, request: Request, shard: int) -> Response:
        """All its fields."""
        del request
        row = leases.one(self.scope, shard)
        return Response(line(LeaseSerializer, row))


class ReleaseRequestSerializer(ActRequestSerializer):
    """Why, and which term is meant."""

    token = serializers.IntegerField(required=False, allow_null=True, default=None)


class ReleasePlanSerializer(serializers.Serializer[Any]):
    """What the release does."""

    shard = serializers.IntegerField()
    token = serializers.IntegerField()
    holder = serializers.UUIDField()
    process = serializers.CharField()
    expires_at = serializers.DateTimeField(allow_null=True)
    active_runs = serializers.IntegerField()
    live_attempts = serializers.IntegerField()
    effects = serializers.ListField(child=serializers.CharField())
    dry_run = serializers.BooleanField()


class LeaseRelease(ApiView):
    """A shard taken from its holder by hand."""

    @extend_schema(request=ReleaseRequestSerializer, responses=ReleasePlanSerializer)
    def post(self, request: Request, shard: int) -> Response:
        """Nobody holds it afterwards; ``dry_run`` only says what would follow."""
        leases.one(self.scope, shard)
        body = bodies.checked(ReleaseRequestSerializer, request)
        plan = release_lease(shard=shard, actor=request.user.get_username(), **body)
        return Response(line(ReleasePlanSerializer, plan))
