"""What every address of the compatible API shares: who asks, and how a refusal is told."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from django.http import Http404
from rest_framework import exceptions
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.response import Response

from scheduler_app.airflow_api.bodies import Unprocessable
from scheduler_app.api import errors as problems
from scheduler_app.api.reading import ApiView
from scheduler_app.rules import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rest_framework.renderers import BaseRenderer
    from rest_framework.request import Request

PAGE: Final = "docs/airflow_api.md"
# The reason that the audit keeps: bodies of this API have no place for one.
REASON: Final = "asked for over the Airflow-compatible API"


class OneRenderer(DefaultContentNegotiation):
    """JSON, whatever a client says that it accepts; a view may look at the header itself."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        """The only renderer."""
        del request, format_suffix
        only = next(iter(renderers))
        return only, only.media_type or "application/json"


class AirflowView(ApiView):
    """A view of the compatible API: a Bearer token or a session; refusals are ``{"detail": ...}``."""

    content_negotiation_class = OneRenderer

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], Response]:
        """Every refusal has Airflow's shape."""
        return answer

    @property
    def actor(self) -> str:
        """Who acts, for the audit."""
        name: str = self.request.user.get_username()
        return name


class UnknownAddress(AirflowView):
    """Says that nothing is here, and where it is told what is."""

    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """404, whatever the method."""
        del args, kwargs
        return refusal(
            HTTPStatus.NOT_FOUND,
            f"{request.method} {request.path} is not part of the Airflow-compatible API of Daylight."
            f" {PAGE} lists what is; /api/v1/ has everything else.",
        )

    post = put = patch = delete = get


def answer(error: Exception, context: dict[str, Any]) -> Response:
    """The answer to any exception of a view."""
    match error:
        case Unprocessable():
            return Response({"detail": error.items}, status=HTTPStatus.UNPROCESSABLE_ENTITY)
        case exceptions.NotAuthenticated():
            return refusal(HTTPStatus.UNAUTHORIZED, "Not authenticated")
        case exceptions.AuthenticationFailed():
            return refusal(HTTPStatus.UNAUTHORIZED, "Token Expired")
        case exceptions.ParseError():
            item = {"type": "json_invalid", "loc": ["body"], "msg": str(error.detail), "input": {}}
            return Response({"detail": [item]}, status=HTTPStatus.UNPROCESSABLE_ENTITY)
        case exceptions.PermissionDenied():
            return refusal(HTTPStatus.FORBIDDEN, "Forbidden")
        case exceptions.MethodNotAllowed():
            return refusal(
                HTTPStatus.METHOD_NOT_ALLOWED, f"Method Not Allowed: see {PAGE} for what there is."
            )
        case Http404():
            return refusal(HTTPStatus.NOT_FOUND, f"Not Found: see {PAGE} for what there is.")
        case errors.SchedulerError():
            status = problems.STATUSES.get(error.code, HTTPStatus.BAD_REQUEST)
            return refusal(status, str(error))
    told = problems.answer(error, context)
    return refusal(told.status_code, str(told.data["detail"]), headers=dict(told.headers))


def refusal(status: int, detail: object, *, headers: dict[str, str] | None = None) -> Response:
    """A refusal in Airflow's shape."""
    kept = {name: value for name, value in (headers or {}).items() if name != "Content-Type"}
    if status == HTTPStatus.UNAUTHORIZED:
        kept["WWW-Authenticate"] = "Bearer"
    return Response({"detail": detail}, status=status, headers=kept)


def duplicate(message: str) -> Response:
    """A refusal of what exists already, with the parts that scripts look at."""
    return refusal(
        HTTPStatus.CONFLICT,
        {
            "reason": "Unique constraint violation",
            "statement": "hidden",
            "orig_error": "hidden",
            "message": message,
        },
    )
