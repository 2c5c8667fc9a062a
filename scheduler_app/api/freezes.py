"""Freezing and thawing over the API: of task instances, runs, flows, shards and everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api import bodies
from scheduler_app.api.acts import (
    ActRequestSerializer,
    FreezePlanSerializer,
    FreezeRequestSerializer,
    ThawPlanSerializer,
)
from scheduler_app.api.lines import line
from scheduler_app.api.reading import ApiView, NounList
from scheduler_app.operations.freeze import freeze
from scheduler_app.operations.thaw import thaw
from scheduler_app.queries import flows, freezes, leases, runs, task_instances
from scheduler_app.queries.filters import FreezeFilter
from scheduler_app.rules.freezing import ScopeKind, scope_of, task_scope

if TYPE_CHECKING:
    from rest_framework.request import Request


class FreezeSerializer(serializers.Serializer[Any]):
    """One freeze."""

    id = serializers.IntegerField()
    scope_kind = serializers.CharField()
    scope_id = serializers.CharField()
    state = serializers.CharField()
    mode = serializers.CharField()
    actor = serializers.CharField()
    reason = serializers.CharField()
    created_at = serializers.DateTimeField()
    until = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)


class FreezeList(NounList):
    """Freezes, page by page; those that hold something now unless ``state`` says otherwise."""

    noun = freezes.NOUN
    asked = FreezeFilter
    serializer = FreezeSerializer

    def get(self, request: Request, **path: str) -> Response:
        """Oldest first; of flows that the account may see, and of everything."""
        if "state" not in request.query_params:
            path["state"] = "live"
        return super().get(request, **path)


class FreezeDetail(ApiView):
    """One freeze, live or over."""

    @extend_schema(responses=FreezeSerializer)
    def get(self, request: Request, freeze: int) -> Response:
        """All its fields."""
        del request
        return Response(line(FreezeSerializer, freezes.one(self.scope, freeze)))


class _Act(ApiView):
    kind = ScopeKind.ALL

    def check(self, scope_id: Any) -> None:
        """Raises where the account may not see what it asks to freeze."""
        match self.kind:
            case ScopeKind.TASK_INSTANCE:
                task_instances.one(self.scope, scope_id)
            case ScopeKind.RUN | ScopeKind.TASK:
                runs.one(self.scope, scope_of(self.kind.value, scope_id).number or 0)
            case ScopeKind.FLOW:
                flows.one(self.scope, scope_id)
            case ScopeKind.SHARD:
                freezes.check_wide(self.scope)
                leases.one(self.scope, scope_id)
            case ScopeKind.ALL:
                freezes.check_wide(self.scope)

    def scope_id(self, scope_id: Any, task_id: str | None) -> Any:
        """What the path names: of a task, the run and the task."""
        return scope_id if task_id is None else task_scope(scope_id, task_id).id


class Freeze(_Act):
    """Nothing of it starts until the thaw."""

    @extend_schema(request=FreezeRequestSerializer, responses=FreezePlanSerializer)
    def post(self, request: Request, scope_id: Any = "", task_id: str | None = None) -> Response:
        """What runs ends by itself (drain) or is stopped (hard); ``dry_run`` only says so."""
        scope_id = self.scope_id(scope_id, task_id)
        self.check(scope_id)
        body = bodies.checked(FreezeRequestSerializer, request)
        plan = freeze(
            scope_kind=self.kind.value,
            scope_id=scope_id,
            actor=request.user.get_username(),
            **body,
        )
        return Response(line(FreezePlanSerializer, plan))


class Thaw(_Act):
    """It goes on where it stood."""

    @extend_schema(request=ActRequestSerializer, responses=ThawPlanSerializer)
    def post(self, request: Request, scope_id: Any = "", task_id: str | None = None) -> Response:
        """What another freeze holds stays held; ``dry_run`` only says so."""
        scope_id = self.scope_id(scope_id, task_id)
        self.check(scope_id)
        body = bodies.checked(ActRequestSerializer, request)
        plan = thaw(
            scope_kind=self.kind.value,
            scope_id=scope_id,
            actor=request.user.get_username(),
            **body,
        )
        return Response(line(ThawPlanSerializer, plan))
