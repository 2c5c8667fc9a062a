"""Every refusal as problem+json: type, title, status, detail, code, and what else is known."""

from __future__ import annotations

import logging
import uuid
from http import HTTPStatus
from typing import Any, Final

import psycopg
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404
from rest_framework import exceptions, serializers
from rest_framework.response import Response

from scheduler_app.rules import errors

CONTENT_TYPE: Final = "application/problem+json"

logger = logging.getLogger(__name__)

# By the stable code of the error; what is not here is the caller's mistake.
STATUSES: Final[dict[str, HTTPStatus]] = {
    errors.InvalidInput.code: HTTPStatus.BAD_REQUEST,
    errors.DefinitionError.code: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.NotAuthenticated.code: HTTPStatus.UNAUTHORIZED,
    errors.TooManyFailures.code: HTTPStatus.TOO_MANY_REQUESTS,
    errors.NotFound.code: HTTPStatus.NOT_FOUND,
    errors.Conflict.code: HTTPStatus.CONFLICT,
    errors.NotAllowed.code: HTTPStatus.CONFLICT,
    errors.HeldForReview.code: HTTPStatus.CONFLICT,
    errors.Fenced.code: HTTPStatus.SERVICE_UNAVAILABLE,
}


class ProblemSerializer(serializers.Serializer[dict[str, Any]]):
    """What every refusal says."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    code = serializers.CharField()


def answer(error: Exception, context: dict[str, Any]) -> Response:
    """The answer to any exception of a view; what nobody foresaw is logged under an id."""
    response = _answer(error)
    if response.status_code == HTTPStatus.UNAUTHORIZED:
        response["WWW-Authenticate"] = "Bearer"
    del context
    return response


def problem(
    status: int, code: str, detail: str, *, headers: dict[str, str] | None = None, **extra: object
) -> Response:
    """A refusal. ``type`` is about:blank: ``code`` tells kinds apart, ``title`` names the status."""
    body = {
        **extra,
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": int(status),
        "detail": detail,
        "code": code,
    }
    return Response(body, status=status, content_type=CONTENT_TYPE, headers=headers)


def _answer(error: Exception) -> Response:
    match error:
        case errors.SchedulerError():
            status = STATUSES.get(error.code, HTTPStatus.BAD_REQUEST)
            response = problem(status, error.code, str(error))
            response.data = {**error.extra, **response.data}
            if "retry_after_s" in error.extra:
                response["Retry-After"] = str(error.extra["retry_after_s"])
            return response
        case exceptions.ValidationError():
            fields = _plain(error.detail)
            return problem(error.status_code, "invalid_input", _sentence(fields), fields=fields)
        case exceptions.APIException():
            headers = _headers(error)
            return problem(
                error.status_code, str(error.default_code), str(error.detail), headers=headers
            )
        case Http404():
            return problem(404, "not_found", "There is nothing at this address.")
        case PermissionDenied():
            return problem(403, "permission_denied", "You may not do this.")
        case RequestDataTooBig():
            return problem(413, "too_large", "The body of the request is too large.")
        case SuspiciousOperation():
            return problem(400, "invalid_input", "The request is malformed.")
        case RecursionError():
            return problem(400, "invalid_input", "The JSON of the body is nested too deeply.")
        # Operations write over the driver's own connection, whose errors nobody has made Django's.
        case (
            OperationalError()
            | InterfaceError()
            | psycopg.OperationalError()
            | psycopg.InterfaceError()
        ):
            logger.warning("the database did not answer the API", extra={"error": str(error)})
            return problem(
                503,
                "database_unavailable",
                "The database did not answer in time. Try again; narrow the question if it persists.",
                headers={"Retry-After": "5"},
            )
        case _:
            return _unforeseen(error)


def _unforeseen(error: Exception) -> Response:
    error_id = uuid.uuid4().hex
    logger.error("the API failed", exc_info=error, extra={"error_id": error_id})
    detail = f"Something went wrong that nobody foresaw. The log has it under {error_id}."
    return problem(500, "internal_error", detail, error_id=error_id)


def _headers(error: exceptions.APIException) -> dict[str, str]:
    wait_s = getattr(error, "wait", None)
    return {"Retry-After": str(int(wait_s))} if wait_s else {}


def _plain(detail: Any) -> Any:
    if isinstance(detail, dict):
        return {str(key): _plain(value) for key, value in detail.items()}
    return [_plain(value) for value in detail] if isinstance(detail, list) else str(detail)


def _sentence(fields: Any) -> str:
    if isinstance(fields, dict):
        return " ".join(f"{name}: {_sentence(value)}" for name, value in fields.items())
    return " ".join(map(_sentence, fields)) if isinstance(fields, list) else str(fields)
