"""Variables and their history; the value of a secret is null, and masked in the history."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api import bodies
from scheduler_app.api.lines import line
from scheduler_app.api.reading import ApiView, NounList
from scheduler_app.operations.variables import (
    UNSET,
    delete_variable,
    increment_variable,
    set_variable,
)
from scheduler_app.queries import variable_changes, variables
from scheduler_app.queries.filters import VariableChangeFilter, VariableFilter

if TYPE_CHECKING:
    from rest_framework.request import Request


class VariableSerializer(serializers.Serializer[variables.VariableRow]):
    """One variable."""

    key = serializers.CharField()
    value = serializers.JSONField()
    description = serializers.CharField()
    is_secret = serializers.BooleanField()
    version = serializers.IntegerField()
    updated_at = serializers.DateTimeField()
    updated_by = serializers.CharField()


class VariableChangeSerializer(serializers.Serializer[variable_changes.VariableChangeRow]):
    """One change of a variable."""

    id = serializers.IntegerField()
    key = serializers.CharField()
    version = serializers.IntegerField()
    at = serializers.DateTimeField()
    actor = serializers.CharField()
    action = serializers.CharField()
    reason = serializers.CharField()
    before = serializers.JSONField()
    after = serializers.JSONField()
    was_secret = serializers.BooleanField(allow_null=True)
    is_secret = serializers.BooleanField(allow_null=True)
    flow_id = serializers.CharField(allow_null=True)
    attempt_id = serializers.UUIDField(allow_null=True)


class ReasonSerializer(serializers.Serializer[dict[str, Any]]):
    """Why."""

    reason = serializers.CharField(
        required=False, allow_blank=True, default="", trim_whitespace=False
    )


class VariableChangesSerializer(ReasonSerializer):
    """What is changed: what is left out stays. ``expected`` and ``expected_version`` guard it."""

    value = serializers.JSONField(required=False, validators=[bodies.check_storable])
    description = serializers.CharField(
        required=False, allow_blank=True, trim_whitespace=False, validators=[bodies.check_storable]
    )
    is_secret = serializers.BooleanField(required=False)
    expected = serializers.JSONField(required=False)
    expected_version = serializers.IntegerField(required=False)


class NewVariableSerializer(ReasonSerializer):
    """A variable that is not there yet."""

    key = serializers.CharField(trim_whitespace=False)
    value = serializers.JSONField(validators=[bodies.check_storable])
    description = serializers.CharField(
        required=False, allow_blank=True, trim_whitespace=False, validators=[bodies.check_storable]
    )
    is_secret = serializers.BooleanField(required=False)


class IncrementSerializer(ReasonSerializer):
    """By how much; a variable that is not there begins at ``start``."""

    by = serializers.FloatField(required=False, default=1)
    start = serializers.FloatField(required=False, default=0)


class VariableList(NounList):
    """Variables, page by page; a POST makes one more."""

    noun = variables.NOUN
    asked = VariableFilter
    serializer = VariableSerializer

    @extend_schema(
        request=NewVariableSerializer, responses={HTTPStatus.CREATED: VariableSerializer}
    )
    def post(self, request: Request) -> Response:
        """The variable is there."""
        body = bodies.checked(NewVariableSerializer, request)
        set_variable(actor=request.user.get_username(), must_be_new=True, **body)
        return _answer(self, body["key"], HTTPStatus.CREATED)


class VariableDetail(ApiView):
    """One variable."""

    @extend_schema(responses=VariableSerializer)
    def get(self, request: Request, key: str) -> Response:
        """All its fields."""
        del request
        return _answer(self, key)

    @extend_schema(request=VariableChangesSerializer, responses=VariableSerializer)
    def patch(self, request: Request, key: str) -> Response:
        """It is as the body says; 409 where it is not as expected."""
        variables.one(self.scope, key)
        body = bodies.checked(VariableChangesSerializer, request)
        body = {"value": UNSET, **body}
        set_variable(key=key, actor=request.user.get_username(), must_exist=True, **body)
        return _answer(self, key)

    @extend_schema(request=ReasonSerializer, responses={HTTPStatus.NO_CONTENT: None})
    def delete(self, request: Request, key: str) -> Response:
        """It is gone; its history stays."""
        variables.one(self.scope, key)
        body = bodies.checked(ReasonSerializer, request)
        delete_variable(key=key, actor=request.user.get_username(), **body)
        return Response(status=HTTPStatus.NO_CONTENT)


class VariableIncrement(ApiView):
    """Counting a variable up, in one step."""

    @extend_schema(request=IncrementSerializer, responses=VariableSerializer)
    def post(self, request: Request, key: str) -> Response:
        """The number is greater by as much, whoever else counts."""
        body = bodies.checked(IncrementSerializer, request)
        numbers = {name: _whole(body[name]) for name in ("by", "start")}
        increment_variable(
            key=key, actor=request.user.get_username(), reason=body["reason"], **numbers
        )
        return _answer(self, key)


class VariableChangeList(NounList):
    """Changes of variables, page by page."""

    noun = variable_changes.NOUN
    asked = VariableChangeFilter
    serializer = VariableChangeSerializer


class VariableChangeDetail(ApiView):
    """One change of a variable."""

    @extend_schema(responses=VariableChangeSerializer)
    def get(self, request: Request, change: int) -> Response:
        """All its fields."""
        del request
        return Response(line(VariableChangeSerializer, variable_changes.one(self.scope, change)))


def _answer(view: ApiView, key: str, status: int = HTTPStatus.OK) -> Response:
    return Response(line(VariableSerializer, variables.one(view.scope, key)), status=status)


def _whole(number: float) -> float:
    return int(number) if float(number).is_integer() else number
