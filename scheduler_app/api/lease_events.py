"""Lease events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api.lines import line
from scheduler_app.api.reading import ApiView, NounList
from scheduler_app.queries import lease_events
from scheduler_app.queries.filters import LeaseEventFilter

if TYPE_CHECKING:
    from rest_framework.request import Request


class LeaseEventSerializer(serializers.Serializer[lease_events.LeaseEventRow]):
    """One lease event."""

    id = serializers.IntegerField()
    shard = serializers.IntegerField()
    kind = serializers.CharField()
    holder = serializers.UUIDField(allow_null=True)
    token = serializers.IntegerField()
    at = serializers.DateTimeField()
    detail = serializers.JSONField()
    holder_hostname = serializers.CharField(allow_null=True)
    holder_pid = serializers.IntegerField(allow_null=True)
    why = serializers.CharField()


class LeaseEventList(NounList):
    """Lease events, page by page."""

    noun = lease_events.NOUN
    asked = LeaseEventFilter
    serializer = LeaseEventSerializer


class LeaseEventDetail(ApiView):
    """One lease event, current or filtered."""

    @extend_schema(responses=LeaseEventSerializer)
    def get(self, request: Request, event: int) -> Response:
        """All its fields."""
        del request
        row = lease_events.one(self.scope, event)
        return Response(line(LeaseEventSerializer, row))
