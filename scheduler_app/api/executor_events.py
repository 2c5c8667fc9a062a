"""Executor events and their verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api.reading import ApiView, NounList, StandingSerializer
from scheduler_app.queries import executor_events
from scheduler_app.queries.filters import EventFilter

if TYPE_CHECKING:
    from rest_framework.request import Request


class EventSerializer(StandingSerializer):
    """One executor event."""

    id = serializers.IntegerField()
    attempt_id = serializers.UUIDField(allow_null=True)
    flow_id = serializers.CharField(allow_null=True)
    run_id = serializers.CharField(allow_null=True)
    run = serializers.IntegerField(allow_null=True)
    ti = serializers.IntegerField(allow_null=True)
    task_id = serializers.CharField(allow_null=True)
    map_index = serializers.IntegerField(allow_null=True)
    try_number = serializers.IntegerField(allow_null=True)
    shard = serializers.IntegerField(allow_null=True)
    kind = serializers.CharField()
    source = serializers.CharField()  # type: ignore[assignment] # a field of this name is meant
    source_job_id = serializers.UUIDField(allow_null=True)
    payload = serializers.JSONField()
    received_at = serializers.DateTimeField()
    verdict = serializers.CharField()
    verdict_code = serializers.CharField(allow_null=True)
    verdict_reason = serializers.CharField(allow_null=True)
    verdict_detail = serializers.JSONField(allow_null=True)
    judged_at = serializers.DateTimeField(allow_null=True)


class EventList(NounList):
    """Executor events, page by page."""

    noun = executor_events.NOUN
    asked = EventFilter
    serializer = EventSerializer


class EventDetail(ApiView):
    """One executor event, current or filtered."""

    @extend_schema(responses=EventSerializer)
    def get(self, request: Request, event: int) -> Response:
        """All its fields."""
        del request
        row = executor_events.one(self.scope, event)
        return Response(EventSerializer(row).data)
