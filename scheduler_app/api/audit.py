"""Audit entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api.lines import line
from scheduler_app.api.reading import ApiView, NounList
from scheduler_app.queries import audit
from scheduler_app.queries.filters import AuditFilter

if TYPE_CHECKING:
    from rest_framework.request import Request


class AuditSerializer(serializers.Serializer[audit.AuditRow]):
    """One audit entry."""

    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    actor = serializers.CharField()
    action = serializers.CharField()
    object_kind = serializers.CharField()
    object_id = serializers.CharField()
    flow_id = serializers.CharField(allow_null=True)
    reason = serializers.CharField()
    before = serializers.JSONField()
    after = serializers.JSONField()


class AuditList(NounList):
    """Audit, page by page."""

    noun = audit.NOUN
    asked = AuditFilter
    serializer = AuditSerializer


class AuditDetail(ApiView):
    """One audit entry, current or filtered."""

    @extend_schema(responses=AuditSerializer)
    def get(self, request: Request, entry: int) -> Response:
        """All its fields."""
        del request
        row = audit.one(self.scope, entry)
        return Response(line(AuditSerializer, row))
