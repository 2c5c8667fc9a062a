"""Tokens: a name and a password for a while of Bearer access."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from django.conf import settings
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.parsers import FormParser, JSONParser
from rest_framework.permissions import AllowAny
from rest_framework.response import Response

from scheduler_app.api import bodies
from scheduler_app.api.authentication import BearerAuthentication
from scheduler_app.api.lines import line
from scheduler_app.api.reading import ApiView
from scheduler_app.operations.issue_token import issue_token
from scheduler_app.operations.revoke_tokens import revoke_own

if TYPE_CHECKING:
    from rest_framework.request import Request


class SignInSerializer(serializers.Serializer[dict[str, Any]]):
    """Who asks."""

    username = serializers.CharField(max_length=150)
    password = serializers.CharField(max_length=4096, trim_whitespace=False, write_only=True)


class TokenSerializer(serializers.Serializer[dict[str, Any]]):
    """The token, shown once."""

    access_token = serializers.CharField()
    token_type = serializers.CharField()
    expires_at = serializers.DateTimeField()


class TokenIssue(ApiView):
    """The one address of the API, beside health and metrics, that needs no login."""

    authentication_classes = ()
    permission_classes = (AllowAny,)
    parser_classes = (JSONParser, FormParser)  # type: ignore[assignment] # a form too, as Airflow's
    is_short = False  # for a person at a command line

    @extend_schema(
        request=SignInSerializer, responses={HTTPStatus.CREATED: TokenSerializer}, auth=[]
    )
    def post(self, request: Request) -> Response:
        """A new token for this user."""
        lifetime_s = (
            settings.CLI_TOKEN_LIFETIME_S if self.is_short else settings.API_TOKEN_LIFETIME_S
        )
        issued = issue_token(
            **bodies.checked(SignInSerializer, request),
            address=request.META.get("REMOTE_ADDR", ""),
            lifetime_s=lifetime_s,
        )
        token = {
            "access_token": issued.token,
            "token_type": "Bearer",
            "expires_at": issued.expires_at,
        }
        return Response(
            line(TokenSerializer, token),
            status=HTTPStatus.CREATED,
            headers={"Cache-Control": "no-store"},
        )


class TokenRevoke(ApiView):
    """Signing out: the token that the request carries is over."""

    authentication_classes = (BearerAuthentication,)

    @extend_schema(request=None, responses={HTTPStatus.NO_CONTENT: None})
    def post(self, request: Request) -> Response:
        """It opens nothing any more."""
        revoke_own(token=BearerAuthentication.token_of(request), actor=request.user.get_username())
        return Response(status=HTTPStatus.NO_CONTENT)
