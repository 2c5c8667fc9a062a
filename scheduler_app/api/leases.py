"""Leases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api.reading import ApiView, NounList
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
        return Response(LeaseSerializer(row).data)
