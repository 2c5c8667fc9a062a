"""Limits of keys: as operators set them, and who holds and waits for the slots of a key."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api import bodies
from scheduler_app.api.lines import line
from scheduler_app.api.pools import (
    HoldersSerializer,
    ReasonSerializer,
    WaitersSerializer,
    window,
)
from scheduler_app.api.reading import ApiView, NounList
from scheduler_app.operations.key_limits import remove_limit, set_limit
from scheduler_app.queries import key_limits, slots
from scheduler_app.queries.filters import KeyLimitFilter

if TYPE_CHECKING:
    from rest_framework.request import Request


class KeyLimitSerializer(serializers.Serializer[key_limits.KeyLimitRow]):
    """One key; without slots each task has its own number."""

    key = serializers.CharField()
    slots = serializers.IntegerField(allow_null=True)
    description = serializers.CharField()
    is_set = serializers.BooleanField()
    rule = serializers.CharField(allow_null=True)
    held = serializers.IntegerField()
    waiting = serializers.IntegerField()
    waits_since = serializers.DateTimeField(allow_null=True)


class KeyLimitRequestSerializer(ReasonSerializer):
    """How many slots the key has; a description that is left out stays."""

    slots = serializers.IntegerField()
    description = serializers.CharField(
        required=False, allow_blank=True, allow_null=True, default=None, trim_whitespace=False
    )


class KeyLimitList(NounList):
    """Limits, page by page."""

    noun = key_limits.NOUN
    asked = KeyLimitFilter
    serializer = KeyLimitSerializer


class KeyLimitDetail(ApiView):
    """The limit of one key."""

    @extend_schema(responses=KeyLimitSerializer)
    def get(self, request: Request, key: str) -> Response:
        """All its fields."""
        del request
        return Response(line(KeyLimitSerializer, key_limits.one(self.scope, key)))

    @extend_schema(request=KeyLimitRequestSerializer, responses=KeyLimitSerializer)
    def put(self, request: Request, key: str) -> Response:
        """The key has so many slots, from the next look of a scheduler on."""
        body: dict[str, Any] = bodies.checked(KeyLimitRequestSerializer, request)
        set_limit(key=key, actor=request.user.get_username(), **body)
        return self.get(request, key)

    @extend_schema(request=ReasonSerializer, responses={HTTPStatus.NO_CONTENT: None})
    def delete(self, request: Request, key: str) -> Response:
        """Tasks have their own numbers again."""
        body = bodies.checked(ReasonSerializer, request)
        remove_limit(key=key, actor=request.user.get_username(), reason=body["reason"])
        return Response(status=HTTPStatus.NO_CONTENT)


class KeyLimitHolders(ApiView):
    """Who holds the slots of a key."""

    @extend_schema(responses=HoldersSerializer)
    def get(self, request: Request, key: str) -> Response:
        """Longest first, ``limit`` from ``offset`` on; ``slots`` are those of their pools."""
        key_limits.one(self.scope, key)
        found = slots.holders(self.scope, slots.Slots(key=key), **window(request))
        return Response(line(HoldersSerializer, found))


class KeyLimitWaiters(ApiView):
    """Who waits for a slot of a key."""

    @extend_schema(responses=WaitersSerializer)
    def get(self, request: Request, key: str) -> Response:
        """In the order of priority, then of how long; ``limit`` from ``offset`` on."""
        key_limits.one(self.scope, key)
        asked = window(request)
        found = slots.waiters(
            self.scope,
            key=key,
            limit=asked.get("limit", slots.PLACES),
            offset=asked.get("offset", 0),
        )
        return Response(line(WaitersSerializer, found))
