"""Pools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api.reading import ApiView, NounList
from scheduler_app.queries import pools
from scheduler_app.queries.filters import PoolFilter

if TYPE_CHECKING:
    from rest_framework.request import Request


class PoolSerializer(serializers.Serializer[pools.PoolRow]):
    """One pool."""

    name = serializers.CharField()
    slots = serializers.IntegerField()
    running_slots = serializers.IntegerField()
    queued_slots = serializers.IntegerField()
    description = serializers.CharField()
    include_deferred = serializers.BooleanField()


class PoolList(NounList):
    """Pools, page by page."""

    noun = pools.NOUN
    asked = PoolFilter
    serializer = PoolSerializer


class PoolDetail(ApiView):
    """One pool, current or filtered."""

    @extend_schema(responses=PoolSerializer)
    def get(self, request: Request, name: str) -> Response:
        """All its fields."""
        del request
        row = pools.one(self.scope, name)
        return Response(PoolSerializer(row).data)
