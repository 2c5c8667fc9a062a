"""The three-way audits of database, broker and workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api.lines import line
from scheduler_app.api.reading import ApiView, NounList
from scheduler_app.queries import ghost_audits
from scheduler_app.queries.filters import GhostAuditFilter

if TYPE_CHECKING:
    from rest_framework.request import Request


class GhostAuditSerializer(serializers.Serializer[ghost_audits.GhostAuditRow]):
    """The audits of one scheduler within one hour."""

    id = serializers.IntegerField()
    holder = serializers.UUIDField()
    hour = serializers.DateTimeField()
    first_at = serializers.DateTimeField()
    last_at = serializers.DateTimeField()
    audits = serializers.IntegerField()
    compared = serializers.IntegerField()
    last_compared = serializers.IntegerField()
    last = serializers.JSONField()
    open_ghosts = serializers.JSONField()
    duration_ms = serializers.IntegerField()
    is_complete = serializers.BooleanField()


class GhostAuditList(NounList):
    """Audits, hour by hour and scheduler by scheduler."""

    noun = ghost_audits.NOUN
    asked = GhostAuditFilter
    serializer = GhostAuditSerializer


class GhostAuditDetail(ApiView):
    """The audits of one scheduler within one hour."""

    @extend_schema(responses=GhostAuditSerializer)
    def get(self, request: Request, audit: int) -> Response:
        """All their fields."""
        del request
        return Response(line(GhostAuditSerializer, ghost_audits.one(self.scope, audit)))
