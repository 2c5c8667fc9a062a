"""Backfills: asking for a range of dates, how far it is, and changing one that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api import bodies
from scheduler_app.api.lines import line
from scheduler_app.api.reading import ApiView, NounList
from scheduler_app.operations import backfill as operations
from scheduler_app.queries import backfills, flows
from scheduler_app.queries.filters import BackfillDateFilter, BackfillFilter
from scheduler_app.rules.backfill import ACTIVE_RUNS_DEFAULT, Reprocess

if TYPE_CHECKING:
    from rest_framework.request import Request


class BackfillSerializer(serializers.Serializer[backfills.BackfillRow]):
    """One backfill, with how many of its dates are where."""

    id = serializers.IntegerField()
    flow_id = serializers.CharField()
    state = serializers.CharField()
    from_date = serializers.DateTimeField()
    to_date = serializers.DateTimeField()
    is_backwards = serializers.BooleanField()
    reprocess = serializers.CharField()
    max_active_runs = serializers.IntegerField()
    conf = serializers.JSONField()
    actor = serializers.CharField()
    reason = serializers.CharField()
    dates = serializers.IntegerField()
    waiting = serializers.IntegerField()
    skipped = serializers.IntegerField()
    active_runs = serializers.IntegerField()
    failed_runs = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    paused_at = serializers.DateTimeField(allow_null=True)
    cancelled_at = serializers.DateTimeField(allow_null=True)
    cancelled_by = serializers.CharField()
    ended_at = serializers.DateTimeField(allow_null=True)
    is_flow_frozen = serializers.BooleanField()


class BackfillDateSerializer(serializers.Serializer[backfills.BackfillDateRow]):
    """One date and what became of it."""

    id = serializers.IntegerField()
    backfill = serializers.IntegerField()
    position = serializers.IntegerField()
    logical_date = serializers.DateTimeField()
    data_interval_start = serializers.DateTimeField()
    data_interval_end = serializers.DateTimeField()
    state = serializers.CharField()
    run = serializers.IntegerField(allow_null=True)
    run_state = serializers.CharField(allow_null=True)
    reason = serializers.CharField()
    decided_at = serializers.DateTimeField(allow_null=True)


class BackfillRequestSerializer(serializers.Serializer[dict[str, Any]]):
    """Which dates, and how. ``dry_run`` (the default) only answers what it would do."""

    from_date = serializers.DateTimeField()
    to_date = serializers.DateTimeField()
    run_backwards = serializers.BooleanField(required=False, default=False)
    reprocess = serializers.ChoiceField(
        choices=[str(word) for word in Reprocess], required=False, default=Reprocess.NONE
    )
    max_active_runs = serializers.IntegerField(required=False, default=ACTIVE_RUNS_DEFAULT)
    conf = serializers.JSONField(required=False, allow_null=True, default=None)
    reason = serializers.CharField(
        required=False, allow_blank=True, default="", trim_whitespace=False
    )
    dry_run = serializers.BooleanField(required=False, default=True)


class DatePlanSerializer(serializers.Serializer[operations.DatePlan]):
    """One date and what would become of it now."""

    logical_date = serializers.DateTimeField()
    data_interval_end = serializers.DateTimeField()
    state = serializers.CharField()
    reason = serializers.CharField()


class BackfillPlanSerializer(serializers.Serializer[operations.BackfillPlan]):
    """What it does; ``id`` is null for a dry run."""

    id = serializers.IntegerField(allow_null=True)
    flow_id = serializers.CharField()
    dates = DatePlanSerializer(many=True)
    counts = serializers.DictField(child=serializers.IntegerField())
    dry_run = serializers.BooleanField()


class ReasonSerializer(serializers.Serializer[dict[str, Any]]):
    """Why."""

    reason = serializers.CharField(
        required=False, allow_blank=True, default="", trim_whitespace=False
    )


class LimitSerializer(ReasonSerializer):
    """How many of its runs may be active at a time, and why."""

    max_active_runs = serializers.IntegerField()


class BackfillList(NounList):
    """Backfills, page by page."""

    noun = backfills.NOUN
    asked = BackfillFilter
    serializer = BackfillSerializer


class FlowBackfillList(BackfillList):
    """Backfills of one flow; POST asks for one."""

    @extend_schema(request=BackfillRequestSerializer, responses=BackfillPlanSerializer)
    def post(self, request: Request, flow_id: str) -> Response:
        """The dates wait for their runs, or, as a dry run, what would become of each."""
        body = bodies.checked(BackfillRequestSerializer, request)
        flows.one(self.scope, flow_id)
        plan = operations.create_backfill(
            flow_id=flow_id, actor=request.user.get_username(), **body
        )
        return Response(line(BackfillPlanSerializer, plan), status=200 if plan.dry_run else 201)


class BackfillDateList(NounList):
    """Dates of one backfill, in the order of their turn."""

    noun = backfills.DATES
    asked = BackfillDateFilter
    serializer = BackfillDateSerializer


class BackfillDetail(ApiView):
    """One backfill."""

    @extend_schema(responses=BackfillSerializer)
    def get(self, request: Request, backfill: int) -> Response:
        """All its fields."""
        del request
        return Response(line(BackfillSerializer, backfills.one(self.scope, backfill)))


class BackfillDateDetail(ApiView):
    """One date of a backfill."""

    @extend_schema(responses=BackfillDateSerializer)
    def get(self, request: Request, date: int) -> Response:
        """All its fields."""
        del request
        return Response(line(BackfillDateSerializer, backfills.one_date(self.scope, date)))


class BackfillAct(ApiView):
    """Changing a backfill that is not over; ``act`` is said by the address."""

    act = ""

    @extend_schema(request=LimitSerializer, responses=BackfillSerializer)
    def post(self, request: Request, backfill: int) -> Response:
        """It is paused, goes on, is cancelled, or has another limit; answered is what it is then."""
        backfills.one(self.scope, backfill)
        is_limit = self.act == "limit"
        body = bodies.checked(LimitSerializer if is_limit else ReasonSerializer, request)
        named: dict[str, Any] = {"backfill_id": backfill, "actor": request.user.get_username()}
        match self.act:
            case "limit":
                operations.set_limit(**named, **body)
            case "cancel":
                operations.cancel_backfill(**named, **body)
            case _:
                operations.pause_backfill(is_paused=self.act == "pause", **named, **body)
        return Response(line(BackfillSerializer, backfills.one(self.scope, backfill)))
