"""Take-overs, what they found, and what workers answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api.lines import line
from scheduler_app.api.reading import ApiView, NounList
from scheduler_app.queries import inquiries, take_over_items, take_overs
from scheduler_app.queries.filters import InquiryFilter, TakeOverFilter, TakeOverItemFilter

if TYPE_CHECKING:
    from rest_framework.request import Request


class TakeOverSerializer(serializers.Serializer[take_overs.TakeOverRow]):
    """One change of a shard's leader."""

    id = serializers.IntegerField()
    shard = serializers.IntegerField()
    cause = serializers.CharField()
    state = serializers.CharField()
    old_holder = serializers.UUIDField(allow_null=True)
    old_hostname = serializers.CharField(allow_null=True)
    old_pid = serializers.IntegerField(allow_null=True)
    old_token = serializers.IntegerField(allow_null=True)
    old_renewed_at = serializers.DateTimeField(allow_null=True)
    old_expires_at = serializers.DateTimeField(allow_null=True)
    holder = serializers.UUIDField()
    holder_hostname = serializers.CharField(allow_null=True)
    holder_pid = serializers.IntegerField(allow_null=True)
    new_token = serializers.IntegerField()
    acquired_at = serializers.DateTimeField(allow_null=True)
    gap_s = serializers.FloatField(allow_null=True)
    started_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)
    ask_id = serializers.UUIDField(allow_null=True)
    asked = serializers.IntegerField()
    answered = serializers.IntegerField()
    counts = serializers.DictField(child=serializers.IntegerField())


class TakeOverList(NounList):
    """Take-overs, page by page."""

    noun = take_overs.NOUN
    asked = TakeOverFilter
    serializer = TakeOverSerializer


class TakeOverDetail(ApiView):
    """One take-over; what it found is at ``/take-over-items/?take_over=``."""

    @extend_schema(responses=TakeOverSerializer)
    def get(self, request: Request, take_over: int) -> Response:
        """All its fields."""
        del request
        return Response(line(TakeOverSerializer, take_overs.one(self.scope, take_over)))


class TakeOverItemSerializer(serializers.Serializer[take_over_items.TakeOverItemRow]):
    """One attempt in one take-over."""

    id = serializers.IntegerField()
    take_over = serializers.IntegerField()
    shard = serializers.IntegerField()
    attempt_id = serializers.UUIDField()
    flow_id = serializers.CharField(allow_null=True)
    run_id = serializers.CharField(allow_null=True)
    run = serializers.IntegerField(allow_null=True)
    ti = serializers.IntegerField(allow_null=True)
    task_id = serializers.CharField(allow_null=True)
    map_index = serializers.IntegerField(allow_null=True)
    found = serializers.CharField()
    decision = serializers.CharField()
    reason = serializers.CharField()
    worker_job_id = serializers.UUIDField(allow_null=True)
    hostname = serializers.CharField(allow_null=True)
    pid = serializers.IntegerField(allow_null=True)
    decided_at = serializers.DateTimeField(allow_null=True)


class TakeOverItemList(NounList):
    """What take-overs found, page by page."""

    noun = take_over_items.NOUN
    asked = TakeOverItemFilter
    serializer = TakeOverItemSerializer


class TakeOverItemDetail(ApiView):
    """One find."""

    @extend_schema(responses=TakeOverItemSerializer)
    def get(self, request: Request, item: int) -> Response:
        """All its fields."""
        del request
        return Response(line(TakeOverItemSerializer, take_over_items.one(self.scope, item)))


class InquirySerializer(serializers.Serializer[inquiries.InquiryRow]):
    """One question to one worker, and its answer."""

    id = serializers.IntegerField()
    ask_id = serializers.UUIDField()
    reason = serializers.CharField()
    asked_by = serializers.UUIDField()
    worker_job_id = serializers.UUIDField()
    hostname = serializers.CharField()
    pid = serializers.IntegerField()
    state = serializers.CharField()
    asked_at = serializers.DateTimeField()
    answered_at = serializers.DateTimeField(allow_null=True)
    took_s = serializers.FloatField(allow_null=True)
    holdings = serializers.JSONField(allow_null=True)


class InquiryList(NounList):
    """Questions to workers, page by page."""

    noun = inquiries.NOUN
    asked = InquiryFilter
    serializer = InquirySerializer


class InquiryDetail(ApiView):
    """One question."""

    @extend_schema(responses=InquirySerializer)
    def get(self, request: Request, inquiry: int) -> Response:
        """All its fields."""
        del request
        return Response(line(InquirySerializer, inquiries.one(self.scope, inquiry)))
