"""Pools."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api import bodies
from scheduler_app.api.lines import line
from scheduler_app.api.reading import ApiView, NounList
from scheduler_app.operations.pools import change_pool, create_pool, delete_pool
from scheduler_app.queries import pools, slots
from scheduler_app.queries.filters import PoolFilter
from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from rest_framework.request import Request


DIGITS_MAX: Final = 9


class PoolSerializer(serializers.Serializer[pools.PoolRow]):
    """One pool."""

    name = serializers.CharField()
    slots = serializers.IntegerField()
    running_slots = serializers.IntegerField()
    queued_slots = serializers.IntegerField()
    deferred_slots = serializers.IntegerField()
    description = serializers.CharField()
    include_deferred = serializers.BooleanField()


class HolderSerializer(serializers.Serializer[slots.HolderRow]):
    """A task instance that holds slots."""

    task_instance = serializers.IntegerField(source="ti")
    run = serializers.IntegerField()
    flow_id = serializers.CharField()
    run_id = serializers.CharField(source="run_key")
    task_id = serializers.CharField()
    map_index = serializers.IntegerField()
    map_label = serializers.CharField(allow_null=True)
    slots = serializers.IntegerField()
    state = serializers.CharField()
    since = serializers.DateTimeField()


class WaiterSerializer(HolderSerializer):
    """A task instance that waits for slots."""

    state = None  # type: ignore[assignment]  # it has none of its own
    priority = serializers.IntegerField()
    code = serializers.CharField()
    detail = serializers.CharField()


class HoldersSerializer(serializers.Serializer[Any]):
    """Who holds slots, longest first: ``offset`` to ``next_offset`` of ``total``."""

    results = HolderSerializer(many=True, source="rows")
    total = serializers.IntegerField()
    offset = serializers.IntegerField()
    next_offset = serializers.IntegerField(allow_null=True)


class WaitersSerializer(HoldersSerializer):
    """Who waits, in order."""

    results = WaiterSerializer(many=True, source="rows")


class ReasonSerializer(serializers.Serializer[dict[str, Any]]):
    """Why."""

    reason = serializers.CharField(
        required=False, allow_blank=True, default="", trim_whitespace=False
    )


class PoolChangesSerializer(ReasonSerializer):
    """What is changed: what is left out stays."""

    slots = serializers.IntegerField(required=False)
    description = serializers.CharField(required=False, allow_blank=True, trim_whitespace=False)
    include_deferred = serializers.BooleanField(required=False)


class NewPoolSerializer(ReasonSerializer):
    """A pool that is not there yet."""

    name = serializers.CharField(trim_whitespace=False)
    slots = serializers.IntegerField()
    description = serializers.CharField(
        required=False, allow_blank=True, default="", trim_whitespace=False
    )
    include_deferred = serializers.BooleanField(required=False, default=False)


class PoolList(NounList):
    """Pools, page by page; a POST makes one more."""

    noun = pools.NOUN
    asked = PoolFilter
    serializer = PoolSerializer

    @extend_schema(request=NewPoolSerializer, responses={HTTPStatus.CREATED: PoolSerializer})
    def post(self, request: Request) -> Response:
        """The pool is there."""
        body = bodies.checked(NewPoolSerializer, request)
        create_pool(actor=request.user.get_username(), **body)
        return Response(
            line(PoolSerializer, pools.one(self.scope, body["name"])), status=HTTPStatus.CREATED
        )


class PoolDetail(ApiView):
    """One pool, current or filtered."""

    @extend_schema(responses=PoolSerializer)
    def get(self, request: Request, name: str) -> Response:
        """All its fields."""
        del request
        return Response(line(PoolSerializer, pools.one(self.scope, name)))

    @extend_schema(request=PoolChangesSerializer, responses=PoolSerializer)
    def patch(self, request: Request, name: str) -> Response:
        """It is as the body says; fewer slots than are taken stop nothing."""
        pools.one(self.scope, name)
        body = bodies.checked(PoolChangesSerializer, request)
        change_pool(name=name, actor=request.user.get_username(), **body)
        return self.get(request, name)

    @extend_schema(request=ReasonSerializer, responses={HTTPStatus.NO_CONTENT: None})
    def delete(self, request: Request, name: str) -> Response:
        """It is gone; refused while flows name it."""
        pools.one(self.scope, name)
        body = bodies.checked(ReasonSerializer, request)
        delete_pool(name=name, actor=request.user.get_username(), reason=body["reason"])
        return Response(status=HTTPStatus.NO_CONTENT)


class PoolHolders(ApiView):
    """Who holds the slots of a pool."""

    @extend_schema(responses=HoldersSerializer)
    def get(self, request: Request, name: str) -> Response:
        """Longest first, ``limit`` from ``offset`` on."""
        pools.one(self.scope, name)
        found = slots.holders(self.scope, slots.Slots(pool=name), **window(request))
        return Response(line(HoldersSerializer, found))


class PoolWaiters(ApiView):
    """Who waits in a pool."""

    @extend_schema(responses=WaitersSerializer)
    def get(self, request: Request, name: str) -> Response:
        """In the order of priority, then of how long; ``limit`` from ``offset`` on."""
        pools.one(self.scope, name)
        asked = window(request)
        found = slots.waiters(
            self.scope,
            pool=name,
            limit=asked.get("limit", slots.PLACES),
            offset=asked.get("offset", 0),
        )
        return Response(line(WaitersSerializer, found))


def window(request: Request) -> dict[str, int]:
    """``limit`` and ``offset``. Raises ``InvalidInput``."""
    asked = {}
    for name, given in request.query_params.items():
        value = str(given)
        if name not in ("limit", "offset"):
            raise InvalidInput(
                f"{name}: no such parameter; there are limit and offset.", field=name
            )
        if not (value.isascii() and value.isdecimal() and len(value) <= DIGITS_MAX):
            raise InvalidInput(f"{name}: {value!r} is no whole number.", field=name)
        asked[name] = int(value)
    return asked
