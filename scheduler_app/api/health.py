"""Health: of this process for a load balancer, of every component for people."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api.lines import line
from scheduler_app.api.reading import ApiView
from scheduler_app.queries import health

if TYPE_CHECKING:
    from rest_framework.request import Request


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """200 while this process reaches the database; no login, and no word about the inside."""
    del request
    try:
        health.clock_of_database()
    except DatabaseError:
        return JsonResponse(
            {"status": "database unavailable"}, status=HTTPStatus.SERVICE_UNAVAILABLE
        )
    return JsonResponse({"status": "ok"}, headers={"Cache-Control": "no-store"})


class ComponentSerializer(serializers.Serializer[health.Component]):
    """One kind of process."""

    kind = serializers.CharField()
    is_healthy = serializers.BooleanField()
    alive = serializers.IntegerField()
    progress_at = serializers.DateTimeField(allow_null=True)
    heartbeat_at = serializers.DateTimeField(allow_null=True)
    progress_age_s = serializers.FloatField(allow_null=True)


class HealthSerializer(serializers.Serializer[health.Health]):
    """All components."""

    now = serializers.DateTimeField()
    is_healthy = serializers.BooleanField()
    components = ComponentSerializer(many=True)
    open_incidents = serializers.IntegerField()


class HealthDetail(ApiView):
    """When each component last got on: its progress, not only its heartbeat."""

    @extend_schema(responses=HealthSerializer)
    def get(self, request: Request) -> Response:
        """By the clock of the database."""
        del request
        return Response(line(HealthSerializer, health.health(self.scope)))
