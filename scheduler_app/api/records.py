"""Records of every noun in one list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api import bodies
from scheduler_app.api.acts import ActRequestSerializer
from scheduler_app.api.lines import line
from scheduler_app.api.reading import ApiView, NounList, StandingSerializer
from scheduler_app.operations.mark_reviewed import KEYS_MAX, mark_reviewed, unmark_reviewed
from scheduler_app.queries import records
from scheduler_app.queries.filters import RecordFilter

if TYPE_CHECKING:
    from rest_framework.request import Request


class RecordSerializer(StandingSerializer):
    """One record of any noun."""

    key = serializers.CharField()
    noun = serializers.CharField()
    record_id = serializers.CharField()
    at = serializers.DateTimeField(allow_null=True)
    flow_id = serializers.CharField(allow_null=True)
    run_id = serializers.CharField(allow_null=True)
    run = serializers.IntegerField(allow_null=True)
    ti = serializers.IntegerField(allow_null=True)
    task_id = serializers.CharField(allow_null=True)
    map_index = serializers.IntegerField(allow_null=True)
    attempt_id = serializers.UUIDField(allow_null=True)
    hostname = serializers.CharField(allow_null=True)
    pid = serializers.IntegerField(allow_null=True)
    shard = serializers.IntegerField(allow_null=True)
    kind = serializers.CharField(allow_null=True)
    state = serializers.CharField(allow_null=True)
    ran = serializers.BooleanField()
    reviewed = serializers.JSONField(allow_null=True)


class RecordList(NounList):
    """Records of runs, run attempts, task instances, attempts, executor events, flows and jobs."""

    noun = records.NOUN
    asked = RecordFilter
    serializer = RecordSerializer


class RecordDetail(ApiView):
    """One record of any noun by its key, such as ``attempt:0198...``."""

    @extend_schema(responses=RecordSerializer)
    def get(self, request: Request, key: str) -> Response:
        """What every record has."""
        del request
        return Response(line(RecordSerializer, records.one(self.scope, key)))


class ReviewedRequestSerializer(ActRequestSerializer):
    """Which records, and the note."""

    keys = serializers.ListField(
        child=serializers.CharField(max_length=300), min_length=1, max_length=KEYS_MAX
    )


class ReviewedSubjectSerializer(serializers.Serializer[Any]):
    """One record, and what becomes of its mark."""

    key = serializers.CharField()
    name = serializers.CharField()
    state = serializers.CharField()
    effect = serializers.CharField()


class ReviewedPlanSerializer(serializers.Serializer[Any]):
    """What marking does."""

    included = ReviewedSubjectSerializer(many=True)
    excluded = ReviewedSubjectSerializer(many=True)
    dry_run = serializers.BooleanField()


class RecordsReviewed(ApiView):
    """Notes that a person has looked at filtered records and ghosts, or takes that back."""

    is_reviewed = True

    @extend_schema(request=ReviewedRequestSerializer, responses=ReviewedPlanSerializer)
    def post(self, request: Request) -> Response:
        """All of them, or none; ``dry_run`` only says what would follow."""
        body = bodies.checked(ReviewedRequestSerializer, request)
        records.check_visible(self.scope, body["keys"])
        act = mark_reviewed if self.is_reviewed else unmark_reviewed
        plan = act(actor=request.user.get_username(), **body)
        return Response(line(ReviewedPlanSerializer, plan))
