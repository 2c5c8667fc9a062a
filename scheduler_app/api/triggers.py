"""Triggers of deferred task instances."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api.lines import line
from scheduler_app.api.reading import ApiView, NounList
from scheduler_app.queries import triggers
from scheduler_app.queries.filters import TriggerFilter

if TYPE_CHECKING:
    from rest_framework.request import Request


class TriggerSerializer(serializers.Serializer[triggers.TriggerRow]):
    """One trigger."""

    id = serializers.IntegerField()
    flow_id = serializers.CharField(allow_null=True)
    run_id = serializers.CharField(allow_null=True)
    run = serializers.IntegerField()
    ti = serializers.IntegerField()
    task_id = serializers.CharField(allow_null=True)
    map_index = serializers.IntegerField(allow_null=True)
    shard = serializers.IntegerField()
    try_number = serializers.IntegerField()
    resume_index = serializers.IntegerField()
    kind = serializers.CharField()
    classpath = serializers.CharField()
    kwargs = serializers.JSONField()
    event_key = serializers.CharField(allow_null=True)
    state = serializers.CharField()
    due_at = serializers.DateTimeField(allow_null=True)
    timeout_at = serializers.DateTimeField(allow_null=True)
    triggerer_job_id = serializers.UUIDField(allow_null=True)
    block_count = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)


class TriggerList(NounList):
    """Triggers, page by page."""

    noun = triggers.NOUN
    asked = TriggerFilter
    serializer = TriggerSerializer


class TriggerDetail(ApiView):
    """One trigger, current or filtered."""

    @extend_schema(responses=TriggerSerializer)
    def get(self, request: Request, trigger: int) -> Response:
        """All its fields."""
        del request
        row = triggers.one(self.scope, trigger)
        return Response(line(TriggerSerializer, row))
