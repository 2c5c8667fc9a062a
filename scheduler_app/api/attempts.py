"""Attempts, and what they printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api.lines import line
from scheduler_app.api.reading import ApiView, NounList, StandingSerializer
from scheduler_app.api.saving import ProgressSerializer, PushedSerializer
from scheduler_app.queries import attempts, leadership, logs, saving
from scheduler_app.queries.filters import AttemptFilter
from scheduler_app.rules import errors

if TYPE_CHECKING:
    from uuid import UUID

    from rest_framework.request import Request


class AttemptSerializer(StandingSerializer):
    """One attempt."""

    id = serializers.UUIDField()
    flow_id = serializers.CharField(allow_null=True)
    run_id = serializers.CharField(allow_null=True)
    run = serializers.IntegerField(allow_null=True)
    ti = serializers.IntegerField(allow_null=True)
    task_id = serializers.CharField(allow_null=True)
    map_index = serializers.IntegerField(allow_null=True)
    map_label = serializers.CharField(allow_null=True)
    kind = serializers.CharField()
    callback_on = serializers.CharField(allow_null=True)
    callback_name = serializers.CharField(allow_null=True)
    callback_group = serializers.CharField(allow_null=True)
    callback_of = serializers.CharField(allow_null=True)
    try_number = serializers.IntegerField(allow_null=True)
    resume_index = serializers.IntegerField(allow_null=True)
    dispatch_no = serializers.IntegerField(allow_null=True)
    run_attempt = serializers.IntegerField(allow_null=True)
    shard = serializers.IntegerField(allow_null=True)
    lease_token = serializers.IntegerField(allow_null=True)
    fence = serializers.IntegerField(allow_null=True)
    queue = serializers.CharField()
    pool = serializers.CharField()
    pool_slots = serializers.IntegerField()
    state = serializers.CharField()
    outcome = serializers.CharField(allow_null=True)
    outcome_reason = serializers.CharField(allow_null=True)
    is_live = serializers.BooleanField()
    is_accepted = serializers.BooleanField()
    worker_job_id = serializers.UUIDField(allow_null=True)
    hostname = serializers.CharField(allow_null=True)
    pid = serializers.IntegerField(allow_null=True)
    publish_count = serializers.IntegerField()
    issued_at = serializers.DateTimeField(allow_null=True)
    published_at = serializers.DateTimeField(allow_null=True)
    started_at = serializers.DateTimeField(allow_null=True)
    heartbeat_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    stop_requested_at = serializers.DateTimeField(allow_null=True)
    stop_reason = serializers.CharField(allow_null=True)


class LeaseChangeSerializer(serializers.Serializer[leadership.NearChange]):
    """A change of a lease within 60 s of an execution; ``when`` says how near, in words."""

    event_id = serializers.IntegerField()
    shard = serializers.IntegerField()
    kind = serializers.CharField()
    token = serializers.IntegerField()
    at = serializers.DateTimeField()
    why = serializers.CharField()
    when = serializers.CharField()
    take_over = serializers.IntegerField(allow_null=True)


class AttemptDetailSerializer(AttemptSerializer):
    """One attempt with what lists leave out: what may be large, and what lies around it."""

    result = serializers.JSONField()
    error = serializers.JSONField(allow_null=True)
    progress = ProgressSerializer(allow_null=True)
    pushed = PushedSerializer(many=True)
    near_lease_changes = LeaseChangeSerializer(many=True)


class AttemptList(NounList):
    """Attempts, page by page."""

    noun = attempts.NOUN
    asked = AttemptFilter
    serializer = AttemptSerializer


class AttemptDetail(ApiView):
    """One attempt, current or filtered."""

    @extend_schema(responses=AttemptDetailSerializer)
    def get(self, request: Request, attempt_id: UUID) -> Response:
        """All its fields."""
        del request
        row = attempts.one(self.scope, attempt_id)
        near = leadership.near_attempt(self.scope, attempt_id)
        return Response(
            {
                **line(AttemptSerializer, row),
                "result": row.result,
                "error": row.error,
                "progress": line(ProgressSerializer, row.progress) if row.progress else None,
                "pushed": [line(PushedSerializer, one) for one in saving.pushed_by(attempt_id)],
                "near_lease_changes": [line(LeaseChangeSerializer, one) for one in near],
            }
        )


LOG_PARAMETERS: Final = ("offset", "limit")


class AttemptLog(ApiView):
    """What an attempt printed, by byte offset."""

    @extend_schema(
        parameters=[
            OpenApiParameter("offset", int, description="First byte; negative: from the end."),
            OpenApiParameter("limit", int, description="Bytes at most."),
        ],
        responses={(200, "text/plain"): OpenApiTypes.BINARY},
    )
    def get(self, request: Request, attempt_id: UUID) -> HttpResponse:
        """The bytes as they were printed; the headers say where to read on, and whether to."""
        offset = _whole_number(request, "offset", 0)
        limit = _whole_number(request, "limit", logs.PAGE_BYTES_DEFAULT)
        page = logs.read_log(self.scope, attempt_id, offset, limit)
        return HttpResponse(
            page.data,
            content_type="text/plain; charset=utf-8",
            headers={
                "X-Daylight-Next-Offset": str(page.next_offset),
                "X-Daylight-Size": str(page.size),
                "X-Daylight-Ended": "true" if page.ended else "false",
                "Content-Security-Policy": "sandbox",
            },
        )


def _whole_number(request: Request, name: str, default: int) -> int:
    unknown = sorted(set(request.query_params) - set(LOG_PARAMETERS))
    if unknown:
        raise errors.InvalidInput(
            f"{unknown[0]}: no such parameter of a log. It knows: offset, limit.",
            parameter=unknown[0],
        )
    text = request.query_params.get(name, "")
    try:
        return int(text[:20]) if text else default
    except ValueError:
        raise errors.InvalidInput(f"{name}: not a whole number.", parameter=name) from None
