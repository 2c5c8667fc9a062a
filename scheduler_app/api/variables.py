"""Variables; the value of a secret is null."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api.reading import ApiView, NounList
from scheduler_app.queries import variables
from scheduler_app.queries.filters import VariableFilter

if TYPE_CHECKING:
    from rest_framework.request import Request


class VariableSerializer(serializers.Serializer[variables.VariableRow]):
    """One variable."""

    key = serializers.CharField()
    value = serializers.JSONField()
    description = serializers.CharField()
    is_secret = serializers.BooleanField()
    updated_at = serializers.DateTimeField()
    updated_by = serializers.CharField()


class VariableList(NounList):
    """Variables, page by page."""

    noun = variables.NOUN
    asked = VariableFilter
    serializer = VariableSerializer


class VariableDetail(ApiView):
    """One variable, current or filtered."""

    @extend_schema(responses=VariableSerializer)
    def get(self, request: Request, key: str) -> Response:
        """All its fields."""
        del request
        row = variables.one(self.scope, key)
        return Response(VariableSerializer(row).data)
