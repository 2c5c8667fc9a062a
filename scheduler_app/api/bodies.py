"""Bodies of requests: checked, with nothing in them that the database cannot keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rest_framework.serializers import Serializer, ValidationError

from scheduler_app.api.lines import kept
from scheduler_app.rules import errors

if TYPE_CHECKING:
    from rest_framework.request import Request

DEPTH_MAX: Final = 100  # of nested lists and objects


def checked(kind: type[Serializer[Any]], request: Request) -> dict[str, Any]:
    """The checked body. Raises ``InvalidInput`` for one that is no object or has unknown keys."""
    given: object = request.data
    if not isinstance(given, dict):
        raise errors.InvalidInput("The body must be a JSON object.")
    serializer = kind(data=given)
    vars(serializer)["fields"] = kept(kind).fields  # else all are copied for each body
    unknown = sorted(set(given) - set(serializer.fields))
    if unknown:
        known = ", ".join(sorted(serializer.fields))
        raise errors.InvalidInput(
            f"{unknown[0]}: no such field. The body may have: {known}.", field=unknown[0]
        )
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)


def check_storable(value: object, depth: int = 0) -> None:
    """Raises unless the JSON value can be stored: JSON allows what PostgreSQL's text does not."""
    if depth > DEPTH_MAX:
        raise ValidationError(f"Nested more than {DEPTH_MAX} levels deep.")
    match value:
        case str():
            if "\x00" in value or not _is_text(value):
                raise ValidationError(
                    "A text has a NUL or half a surrogate pair in it; take it out."
                )
        case dict():
            for key, each in value.items():
                check_storable(key, depth + 1)
                check_storable(each, depth + 1)
        case list():
            for each in value:
                check_storable(each, depth + 1)


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
