"""Incidents, their acknowledgement, and the alerts that told of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api import bodies
from scheduler_app.api.lines import line
from scheduler_app.api.reading import ApiView, NounList
from scheduler_app.operations.acknowledge_incident import (
    NOTE_CHARACTERS_MAX,
    acknowledge_incident,
)
from scheduler_app.queries import alerts, incidents
from scheduler_app.queries.filters import AlertFilter, IncidentFilter

if TYPE_CHECKING:
    from rest_framework.request import Request


class IncidentSerializer(serializers.Serializer[incidents.IncidentRow]):
    """One incident."""

    id = serializers.IntegerField()
    kind = serializers.CharField()
    subject = serializers.CharField()
    message = serializers.CharField()
    state = serializers.CharField()
    count = serializers.IntegerField()
    flow_id = serializers.CharField(allow_null=True)
    run = serializers.IntegerField(allow_null=True)
    shard = serializers.IntegerField(allow_null=True)
    lease_token = serializers.IntegerField(allow_null=True)
    raised_at = serializers.DateTimeField()
    resolved_at = serializers.DateTimeField(allow_null=True)
    resolution = serializers.CharField()
    acknowledged_at = serializers.DateTimeField(allow_null=True)
    acknowledged_by = serializers.CharField()
    acknowledge_note = serializers.CharField()
    told_at = serializers.DateTimeField(allow_null=True)


class AlertSerializer(serializers.Serializer[alerts.AlertRow]):
    """One alert."""

    id = serializers.IntegerField()
    incident = serializers.IntegerField()
    kind = serializers.CharField()
    flow_id = serializers.CharField(allow_null=True)
    about = serializers.CharField()
    notifier = serializers.JSONField()
    state = serializers.CharField()
    tries = serializers.IntegerField()
    due_at = serializers.DateTimeField()
    letter = serializers.UUIDField(allow_null=True)
    said = serializers.JSONField()
    created_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)


class AcknowledgeSerializer(serializers.Serializer[dict[str, Any]]):
    """What is done about it."""

    reason = serializers.CharField(max_length=NOTE_CHARACTERS_MAX, trim_whitespace=False)


class IncidentList(NounList):
    """Incidents, page by page."""

    noun = incidents.NOUN
    asked = IncidentFilter
    serializer = IncidentSerializer


class IncidentDetail(ApiView):
    """One incident."""

    @extend_schema(responses=IncidentSerializer)
    def get(self, request: Request, incident: int) -> Response:
        """All its fields."""
        del request
        return Response(line(IncidentSerializer, incidents.one(self.scope, incident)))


class IncidentAcknowledge(ApiView):
    """A person's word that an incident is known."""

    @extend_schema(request=AcknowledgeSerializer, responses=IncidentSerializer)
    def post(self, request: Request, incident: int) -> Response:
        """Its reminders stop; asking again changes nothing."""
        incidents.one(self.scope, incident)
        body = bodies.checked(AcknowledgeSerializer, request)
        acknowledge_incident(
            incident_id=incident, actor=request.user.get_username(), reason=body["reason"]
        )
        return Response(line(IncidentSerializer, incidents.one(self.scope, incident)))


class AlertList(NounList):
    """Alerts, page by page."""

    noun = alerts.NOUN
    asked = AlertFilter
    serializer = AlertSerializer


class AlertDetail(ApiView):
    """One alert."""

    @extend_schema(responses=AlertSerializer)
    def get(self, request: Request, alert: int) -> Response:
        """All its fields."""
        del request
        return Response(line(AlertSerializer, alerts.one(self.scope, alert)))
