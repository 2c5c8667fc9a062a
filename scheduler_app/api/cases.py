"""Cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api.lines import line
from scheduler_app.api.reading import ApiView, NounList
from scheduler_app.queries import cases
from scheduler_app.queries.filters import CaseFilter

if TYPE_CHECKING:
    from rest_framework.request import Request


class CaseSerializer(serializers.Serializer[cases.CaseRow]):
    """One case."""

    id = serializers.IntegerField()
    title = serializers.CharField()
    state = serializers.CharField()
    opened_by = serializers.CharField()
    opened_at = serializers.DateTimeField()
    closed_at = serializers.DateTimeField(allow_null=True)
    notes = serializers.CharField()


class CaseList(NounList):
    """Cases, page by page."""

    noun = cases.NOUN
    asked = CaseFilter
    serializer = CaseSerializer


class CaseDetail(ApiView):
    """One case, current or filtered."""

    @extend_schema(responses=CaseSerializer)
    def get(self, request: Request, case: int) -> Response:
        """All its fields."""
        del request
        row = cases.one(self.scope, case)
        return Response(line(CaseSerializer, row))
