"""Guards of automatic actions: what is set, what holds, and what was done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api import bodies
from scheduler_app.api.lines import line
from scheduler_app.api.reading import ApiView, NounList
from scheduler_app.operations.guards import set_guard
from scheduler_app.queries import automatic_actions, flows, guards, rights
from scheduler_app.queries.filters import AutomaticActionFilter, GuardFilter
from scheduler_app.rules.guards import ActionKind, GuardLimits

if TYPE_CHECKING:
    from rest_framework.request import Request

LIMITS = tuple(GuardLimits.__dataclass_fields__)


class GuardSerializer(serializers.Serializer[guards.GuardRow]):
    """What an operator set for a flow (empty: everywhere) and a kind (empty: each)."""

    id = serializers.IntegerField()
    flow_id = serializers.CharField()
    kind = serializers.CharField()
    is_stopped = serializers.BooleanField()
    cooldown_s = serializers.FloatField(allow_null=True)
    actions_max = serializers.IntegerField(allow_null=True)
    window_s = serializers.FloatField(allow_null=True)
    runs_max = serializers.IntegerField(allow_null=True)
    task_instances_max = serializers.IntegerField(allow_null=True)
    reason = serializers.CharField()
    actor = serializers.CharField()
    updated_at = serializers.DateTimeField()


class GuardRequestSerializer(serializers.Serializer[dict[str, Any]]):
    """What is to hold from now on, and why; what is left out stays, a null limit is no longer set."""

    flow_id = serializers.CharField(required=False, allow_blank=True, default="")
    kind = serializers.ChoiceField(
        choices=["", *(kind.value for kind in ActionKind)], required=False, default=""
    )
    is_stopped = serializers.BooleanField(required=False, allow_null=True, default=None)
    cooldown_s = serializers.FloatField(required=False, allow_null=True)
    actions_max = serializers.IntegerField(required=False, allow_null=True)
    window_s = serializers.FloatField(required=False, allow_null=True)
    runs_max = serializers.IntegerField(required=False, allow_null=True)
    task_instances_max = serializers.IntegerField(required=False, allow_null=True)
    reason = serializers.CharField(
        required=False, allow_blank=True, default="", trim_whitespace=False
    )


class GuardAnswerSerializer(serializers.Serializer[Any]):
    """What is set now."""

    flow_id = serializers.CharField()
    kind = serializers.CharField()
    is_stopped = serializers.BooleanField()
    cooldown_s = serializers.FloatField(source="limits.cooldown_s", allow_null=True)
    actions_max = serializers.IntegerField(source="limits.actions_max", allow_null=True)
    window_s = serializers.FloatField(source="limits.window_s", allow_null=True)
    runs_max = serializers.IntegerField(source="limits.runs_max", allow_null=True)
    task_instances_max = serializers.IntegerField(
        source="limits.task_instances_max", allow_null=True
    )
    actor = serializers.CharField()
    reason = serializers.CharField()


class HoldingSerializer(serializers.Serializer[guards.Holding]):
    """What holds for one kind of automatic action."""

    kind = serializers.CharField()
    cooldown_s = serializers.FloatField(source="limits.cooldown_s")
    actions_max = serializers.IntegerField(source="limits.actions_max")
    window_s = serializers.FloatField(source="limits.window_s")
    runs_max = serializers.IntegerField(source="limits.runs_max")
    task_instances_max = serializers.IntegerField(source="limits.task_instances_max")
    stopped_by = serializers.CharField(source="stopped_by.actor", allow_null=True, default=None)


class AutomaticActionSerializer(serializers.Serializer[automatic_actions.AutomaticActionRow]):
    """One automatic action that was carried out."""

    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    flow_id = serializers.CharField()
    kind = serializers.CharField()
    run = serializers.IntegerField()
    run_count = serializers.IntegerField()
    task_instance_count = serializers.IntegerField()
    actor = serializers.CharField()
    reason = serializers.CharField()


class GuardList(NounList):
    """Guards, page by page."""

    noun = guards.NOUN
    asked = GuardFilter
    serializer = GuardSerializer


class GuardSet(ApiView):
    """Setting a guard, or the kill switch."""

    @extend_schema(request=GuardRequestSerializer, responses=GuardAnswerSerializer)
    def post(self, request: Request) -> Response:
        """It holds for whatever is done automatically from now on."""
        body = bodies.checked(GuardRequestSerializer, request)
        rights.check(request.user, rights.SET_GUARDS)
        if body["flow_id"]:
            flows.one(self.scope, body["flow_id"])
        row = set_guard(
            actor=request.user.get_username(),
            limits={name: body.pop(name) for name in LIMITS if name in body},
            **body,
        )
        return Response(line(GuardAnswerSerializer, row))


class GuardDetail(ApiView):
    """One guard."""

    @extend_schema(responses=GuardSerializer)
    def get(self, request: Request, guard: int) -> Response:
        """All its fields."""
        del request
        return Response(line(GuardSerializer, guards.one(self.scope, guard)))


class FlowGuards(ApiView):
    """What holds for automatic actions on one flow, wherever it was set."""

    @extend_schema(responses=HoldingSerializer(many=True))
    def get(self, request: Request, flow_id: str) -> Response:
        """Kind by kind."""
        del request
        flows.one(self.scope, flow_id)
        found: Any = guards.holding(flow_id)
        return Response([line(HoldingSerializer, one) for one in found])


class AutomaticActionList(NounList):
    """Automatic actions, page by page."""

    noun = automatic_actions.NOUN
    asked = AutomaticActionFilter
    serializer = AutomaticActionSerializer


class AutomaticActionDetail(ApiView):
    """One automatic action."""

    @extend_schema(responses=AutomaticActionSerializer)
    def get(self, request: Request, action: int) -> Response:
        """All its fields."""
        del request
        return Response(line(AutomaticActionSerializer, automatic_actions.one(self.scope, action)))
