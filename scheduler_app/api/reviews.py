"""Reviews."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api.reading import ApiView, NounList
from scheduler_app.queries import reviews
from scheduler_app.queries.filters import ReviewFilter

if TYPE_CHECKING:
    from rest_framework.request import Request


class ReviewSerializer(serializers.Serializer[reviews.ReviewRow]):
    """One review."""

    id = serializers.IntegerField()
    guard = serializers.CharField()
    object_kind = serializers.CharField()
    object_id = serializers.CharField()
    flow_id = serializers.CharField(allow_null=True)
    summary = serializers.CharField()
    state = serializers.CharField()
    created_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)
    decided_by = serializers.CharField()
    note = serializers.CharField()


class ReviewList(NounList):
    """Reviews, page by page."""

    noun = reviews.NOUN
    asked = ReviewFilter
    serializer = ReviewSerializer


class ReviewDetail(ApiView):
    """One review, current or filtered."""

    @extend_schema(responses=ReviewSerializer)
    def get(self, request: Request, review: int) -> Response:
        """All its fields."""
        del request
        row = reviews.one(self.scope, review)
        return Response(ReviewSerializer(row).data)
