"""Connections: where outside systems are. What opens them is taken in and never given out."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api import bodies
from scheduler_app.api.lines import line
from scheduler_app.api.pools import ReasonSerializer
from scheduler_app.api.reading import ApiView, NounList
from scheduler_app.operations.connections import delete_connection, set_connection
from scheduler_app.queries import connections
from scheduler_app.queries.filters import ConnectionFilter

if TYPE_CHECKING:
    from rest_framework.request import Request


class ConnectionSerializer(serializers.Serializer[connections.ConnectionRow]):
    """One connection: whether it has a password, and what its extras are called."""

    connection_id = serializers.CharField()
    conn_type = serializers.CharField()
    host = serializers.CharField()
    login = serializers.CharField()
    schema = serializers.CharField()
    port = serializers.IntegerField(allow_null=True)
    description = serializers.CharField()
    has_password = serializers.BooleanField()
    extra_keys = serializers.ListField(child=serializers.CharField())
    version = serializers.IntegerField()
    updated_at = serializers.DateTimeField()
    updated_by = serializers.CharField()


def _text() -> serializers.CharField:
    return serializers.CharField(
        required=False, allow_blank=True, trim_whitespace=False, validators=[bodies.check_storable]
    )


class ConnectionChangesSerializer(ReasonSerializer):
    """What is changed: what is left out stays, and so does a password or an extra that is ``***``.

    ``extra`` is an object, all of them; an empty ``password`` takes it away. ``expected_version``
    guards the change.
    """

    conn_type = serializers.CharField(required=False)
    host = _text()
    login = _text()
    schema = _text()
    port = serializers.IntegerField(required=False, allow_null=True)
    description = _text()
    password = _text()
    extra = serializers.DictField(required=False, validators=[bodies.check_storable])
    expected_version = serializers.IntegerField(required=False)


class NewConnectionSerializer(ConnectionChangesSerializer):
    """A connection that is not there yet."""

    connection_id = serializers.CharField(trim_whitespace=False)
    conn_type = serializers.CharField()
    expected_version = None  # type: ignore[assignment]  # there is none before


class ConnectionList(NounList):
    """Connections, page by page; a POST makes one more."""

    noun = connections.NOUN
    asked = ConnectionFilter
    serializer = ConnectionSerializer

    @extend_schema(
        request=NewConnectionSerializer, responses={HTTPStatus.CREATED: ConnectionSerializer}
    )
    def post(self, request: Request) -> Response:
        """The connection is there."""
        body: dict[str, Any] = bodies.checked(NewConnectionSerializer, request)
        set_connection(actor=request.user.get_username(), must_be_new=True, **body)
        return _answer(self, body["connection_id"], HTTPStatus.CREATED)


class ConnectionDetail(ApiView):
    """One connection."""

    @extend_schema(responses=ConnectionSerializer)
    def get(self, request: Request, connection_id: str) -> Response:
        """All its fields but what opens it."""
        del request
        return _answer(self, connection_id)

    @extend_schema(request=ConnectionChangesSerializer, responses=ConnectionSerializer)
    def patch(self, request: Request, connection_id: str) -> Response:
        """It is as the body says; 409 where somebody was faster."""
        connections.one(self.scope, connection_id)
        body: dict[str, Any] = bodies.checked(ConnectionChangesSerializer, request)
        set_connection(
            connection_id=connection_id,
            actor=request.user.get_username(),
            must_exist=True,
            **body,
        )
        return _answer(self, connection_id)

    @extend_schema(request=ReasonSerializer, responses={HTTPStatus.NO_CONTENT: None})
    def delete(self, request: Request, connection_id: str) -> Response:
        """It is gone."""
        connections.one(self.scope, connection_id)
        body = bodies.checked(ReasonSerializer, request)
        delete_connection(
            connection_id=connection_id, actor=request.user.get_username(), reason=body["reason"]
        )
        return Response(status=HTTPStatus.NO_CONTENT)


def _answer(view: ApiView, connection_id: str, status: int = HTTPStatus.OK) -> Response:
    row = connections.one(view.scope, connection_id)
    return Response(line(ConnectionSerializer, row), status=status)
