"""Executor events and their verdicts."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied
from rest_framework.response import Response

from scheduler_app.api import bodies
from scheduler_app.api.lines import line
from scheduler_app.api.reading import ApiView, NounList, StandingSerializer
from scheduler_app.operations.record_executor_event import (
    STATES,
    Statement,
    record_executor_event,
)
from scheduler_app.queries import executor_events
from scheduler_app.queries.filters import EventFilter

if TYPE_CHECKING:
    from rest_framework.request import Request

# Reading is for everybody who is logged in; what executors say is for operators to say.
MAY_REPORT: Final = "scheduler_app.add_executorevent"
NUMBER_MAX: Final = 2**31 - 1
INFO_CHARACTERS_MAX: Final = 1000
KEY_CHARACTERS_MAX: Final = 250


class EventSerializer(StandingSerializer):
    """One executor event."""

    id = serializers.IntegerField()
    attempt_id = serializers.UUIDField(allow_null=True)
    flow_id = serializers.CharField(allow_null=True)
    run_id = serializers.CharField(allow_null=True)
    run = serializers.IntegerField(allow_null=True)
    ti = serializers.IntegerField(allow_null=True)
    task_id = serializers.CharField(allow_null=True)
    map_index = serializers.IntegerField(allow_null=True)
    try_number = serializers.IntegerField(allow_null=True)
    shard = serializers.IntegerField(allow_null=True)
    kind = serializers.CharField()
    source = serializers.CharField()  # type: ignore[assignment] # a field of this name is meant
    source_job_id = serializers.UUIDField(allow_null=True)
    payload = serializers.JSONField()
    received_at = serializers.DateTimeField()
    verdict = serializers.CharField()
    verdict_code = serializers.CharField(allow_null=True)
    verdict_reason = serializers.CharField(allow_null=True)
    verdict_detail = serializers.JSONField(allow_null=True)
    judged_at = serializers.DateTimeField(allow_null=True)


class StatementSerializer(serializers.Serializer[dict[str, Any]]):
    """What an executor may say of an execution."""

    flow_id = serializers.CharField(max_length=250, validators=[bodies.check_storable])
    run_id = serializers.CharField(max_length=250, validators=[bodies.check_storable])
    task_id = serializers.CharField(max_length=250, validators=[bodies.check_storable])
    map_index = serializers.IntegerField(
        required=False, default=-1, min_value=-1, max_value=NUMBER_MAX
    )
    try_number = serializers.IntegerField(min_value=1, max_value=NUMBER_MAX)
    state = serializers.ChoiceField(choices=sorted(STATES))
    info = serializers.CharField(
        required=False,
        allow_null=True,
        default=None,
        max_length=INFO_CHARACTERS_MAX,
        validators=[bodies.check_storable],
    )
    attempt_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    still_held = serializers.BooleanField(required=False, default=False)
    key = serializers.CharField(
        required=False, allow_null=True, default=None, max_length=KEY_CHARACTERS_MAX
    )


class EventList(NounList):
    """Executor events, page by page; and the door for executors outside this product."""

    noun = executor_events.NOUN
    asked = EventFilter
    serializer = EventSerializer

    @extend_schema(
        request=StatementSerializer,
        responses={HTTPStatus.CREATED: EventSerializer, HTTPStatus.OK: EventSerializer},
    )
    def post(self, request: Request) -> Response:
        """The statement is a row, judged by the scheduler; 200 if its key was said before."""
        if not request.user.has_perm(MAY_REPORT):
            raise PermissionDenied(
                "This account may not report executions: give it the permission"
                f" {MAY_REPORT}, or use that of an administrator."
            )
        body = bodies.checked(StatementSerializer, request)
        recorded = record_executor_event(Statement(**body), actor=request.user.get_username())
        row = executor_events.one(self.scope, recorded.id)
        status = HTTPStatus.CREATED if recorded.is_new else HTTPStatus.OK
        return Response(line(EventSerializer, row), status=status)


class EventDetail(ApiView):
    """One executor event, current or filtered."""

    @extend_schema(responses=EventSerializer)
    def get(self, request: Request, event: int) -> Response:
        """All its fields."""
        del request
        row = executor_events.one(self.scope, event)
        return Response(line(EventSerializer, row))
