"""Reviews: what guards held, and deciding it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api import bodies
from scheduler_app.api.acts import ActRequestSerializer
from scheduler_app.api.clear import ClearPlanSerializer
from scheduler_app.api.lines import line
from scheduler_app.api.reading import ApiView, NounList
from scheduler_app.operations.reviews import approve_review, dismiss_review
from scheduler_app.queries import reviews, rights
from scheduler_app.queries.filters import ReviewFilter

if TYPE_CHECKING:
    from rest_framework.request import Request


class ReviewSerializer(serializers.Serializer[reviews.ReviewRow]):
    """One review."""

    id = serializers.IntegerField()
    guard = serializers.CharField()
    action = serializers.CharField()
    object_kind = serializers.CharField()
    object_id = serializers.CharField()
    flow_id = serializers.CharField(allow_null=True)
    summary = serializers.CharField()
    asked_by = serializers.CharField()
    reason = serializers.CharField()
    times = serializers.IntegerField()
    state = serializers.CharField()
    created_at = serializers.DateTimeField()
    last_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    decided_by = serializers.CharField()
    note = serializers.CharField()
    request = serializers.JSONField(allow_null=True)
    outcome = serializers.JSONField(allow_null=True)


class ApprovalRequestSerializer(ActRequestSerializer):
    """Why, and which preview is to be carried out; a preview needs neither."""

    plan_id = serializers.UUIDField(required=False, allow_null=True, default=None)


class DismissalRequestSerializer(serializers.Serializer[dict[str, object]]):
    """Why."""

    reason = serializers.CharField(
        required=False, allow_blank=True, default="", trim_whitespace=False
    )


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
        return Response(line(ReviewSerializer, row))


class ReviewApprove(ApiView):
    """Letting what a guard held happen after all."""

    @extend_schema(request=ApprovalRequestSerializer, responses=ClearPlanSerializer)
    def post(self, request: Request, review: int) -> Response:
        """It is carried out as the world is now; ``dry_run`` answers what that would be."""
        reviews.one(self.scope, review)
        body = bodies.checked(ApprovalRequestSerializer, request)
        rights.check(request.user, rights.DECIDE_REVIEWS)
        plan = approve_review(review_id=review, actor=request.user.get_username(), **body)
        return Response(line(ClearPlanSerializer, plan))


class ReviewDismiss(ApiView):
    """Giving up what a guard held."""

    @extend_schema(request=DismissalRequestSerializer, responses=ReviewSerializer)
    def post(self, request: Request, review: int) -> Response:
        """Nothing of it is carried out."""
        reviews.one(self.scope, review)
        body = bodies.checked(DismissalRequestSerializer, request)
        rights.check(request.user, rights.DECIDE_REVIEWS)
        dismiss_review(review_id=review, actor=request.user.get_username(), reason=body["reason"])
        return Response(line(ReviewSerializer, reviews.one(self.scope, review)))
