"""Bodies of requests, checked by their fields; faults are told as FastAPI tells them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from rest_framework.serializers import ValidationError

from scheduler_app.api.bodies import check_storable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rest_framework.request import Request

REQUIRED: Final = object()


class Unprocessable(Exception):
    """The request is not what the address takes: 422, with an item for each fault."""

    def __init__(self, items: list[dict[str, Any]]) -> None:
        super().__init__(items)
        self.items = items


class Wrong(Exception):
    """One value is not as its field wants it."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


@dataclass(frozen=True, slots=True)
class Field:
    """How one field is read; without a default it is required."""

    read: Callable[[Any], Any]
    default: Any = REQUIRED


def fault(kind: str, where: list[Any], message: str, given: Any) -> dict[str, Any]:
    """One item of a 422."""
    return {"type": kind, "loc": where, "msg": message, "input": given}


def read(request: Request, fields: Mapping[str, Field], *, extra: bool = False) -> dict[str, Any]:
    """The checked body; unknown fields are refused unless ``extra``. Raises ``Unprocessable``."""
    given: object = request.data
    if not isinstance(given, dict):
        message = "Input should be a valid dictionary or object to extract fields from"
        raise Unprocessable([fault("model_attributes_type", ["body"], message, given)])
    return read_object(given, fields, where=["body"], extra=extra)


def read_object(
    given: Mapping[str, Any],
    fields: Mapping[str, Field],
    *,
    where: list[Any],
    extra: bool = False,
) -> dict[str, Any]:
    """As ``read``, of an object within a body."""
    faults: list[dict[str, Any]] = []
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name not in given:
            if field.default is REQUIRED:
                faults.append(fault("missing", [*where, name], "Field required", dict(given)))
            else:
                values[name] = field.default
            continue
        try:
            values[name] = field.read(given[name])
            check_storable(values[name])
        except Wrong as wrong:
            faults.append(fault(wrong.kind, [*where, name], wrong.message, given[name]))
        except ValidationError as wrong:
            faults.append(
                fault("value_error", [*where, name], str(wrong.args[0]), "(not storable)")
            )
    if not extra:
        faults += [
            fault("extra_forbidden", [*where, name], "Extra inputs are not permitted", given[name])
            for name in given
            if name not in fields
        ]
    if faults:
        raise Unprocessable(faults)
    return values


def text(value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise Wrong("string_type", "Input should be a valid string")
    return value


def boolean(value: Any) -> bool:
    """True or false, also as texts say it."""
    if isinstance(value, bool):
        return value
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if str(value).lower() not in known:
        raise Wrong("bool_parsing", "Input should be a valid boolean, unable to interpret input")
    return known[str(value).lower()]


def integer(value: Any) -> int:
    """A whole number."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**31:
        raise Wrong("int_parsing", "Input should be a valid integer")
    return value


def moment(value: Any) -> datetime:
    """A time with its offset; a time without one is in UTC."""
    try:
        at = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise Wrong("datetime_from_date_parsing", "Input should be a valid datetime") from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)


def mapping(value: Any) -> dict[str, Any]:
    """An object."""
    if not isinstance(value, dict):
        raise Wrong("dict_type", "Input should be a valid dictionary")
    return value


def anything(value: Any) -> Any:
    """Any JSON value."""
    return value


def optional(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Null, or what ``check`` takes."""
    return lambda value: None if value is None else check(value)


def listed(check: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    """A list of what ``check`` takes."""

    def read_all(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise Wrong("list_type", "Input should be a valid list")
        return [check(each) for each in value]

    return read_all


def choice(*choices: str) -> Callable[[Any], str]:
    """One of these texts."""

    def read_one(value: Any) -> str:
        if value not in choices:
            named = ", ".join(f"'{one}'" for one in choices)
            raise Wrong("enum", f"Input should be {named}")
        return str(value)

    return read_one
