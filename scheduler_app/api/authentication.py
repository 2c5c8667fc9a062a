"""Who asks: a Bearer token, or the session of the pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed

from scheduler_app.queries import api_tokens

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from rest_framework.request import Request

TOKEN_LENGTH_MAX: Final = 200  # characters; ours are far shorter


class BearerAuthentication(BaseAuthentication):
    """``Authorization: Bearer TOKEN`` with a token of ``POST /auth/token``."""

    @staticmethod
    def token_of(request: Request) -> str:
        """The token of the header; empty without one."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""

    def authenticate(self, request: Request) -> tuple[User, None] | None:
        """The user of the token; none without the header, so that a session may answer."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        token = token.strip()
        user = api_tokens.user_of(token) if 0 < len(token) <= TOKEN_LENGTH_MAX else None
        if user is None:
            raise AuthenticationFailed(
                "This token is not known or has expired. Get one from POST /auth/token."
            )
        return user, None

    def authenticate_header(self, request: Request) -> str:
        """What a client that is not logged in should send."""
        del request
        return "Bearer"


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call] # registers itself, without types
    """How the API description tells of it."""

    target_class = BearerAuthentication
    name = "bearer"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        """A token in the Authorization header."""
        del auto_schema
        return {"type": "http", "scheme": "bearer"}
