"""How one parameter of a list is read from text, and which rows its values keep."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from django.db.models import Q

from scheduler_app.rules import errors

TEXT_LENGTH_MAX: Final = 250  # characters, as the columns
INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
BIGINT_MAX: Final = 2**63 - 1

Metadata = Mapping[str, "Parameter"]  # of a dataclass field


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """How one parameter is read, and which rows it keeps."""

    parse: Callable[[str, str], object]  # (name, text) -> value; raises InvalidInput
    keep: Callable[[Any], Q]  # value, or tuple of values if repeated
    is_repeated: bool = True
    choices: tuple[str, ...] = ()
    kind: str = "string"  # for the API description: string, integer, uuid, date-time, boolean


def text_of(lookup: str) -> Metadata:
    """Texts; keeps the rows whose column is one of them."""
    return _declared(Parameter(parse=_parse_text, keep=lambda texts: Q(**{f"{lookup}__in": texts})))


def text_by(keep: Callable[[tuple[str, ...]], Q]) -> Metadata:
    """Texts; ``keep`` says which rows they keep."""
    return _declared(Parameter(parse=_parse_text, keep=keep))


def number_of(lookup: str) -> Metadata:
    """Whole numbers; keeps the rows whose column is one of them."""
    return _declared(
        Parameter(
            parse=_parse_number,
            keep=lambda numbers: Q(**{f"{lookup}__in": numbers}),
            kind="integer",
        )
    )


def number_by(keep: Callable[[tuple[int, ...]], Q]) -> Metadata:
    """Whole numbers; ``keep`` says which rows they keep."""
    return _declared(Parameter(parse=_parse_number, keep=keep, kind="integer"))


def uuid_of(lookup: str) -> Metadata:
    """UUIDs; keeps the rows whose column is one of them."""
    return _declared(
        Parameter(parse=_parse_uuid, keep=lambda ids: Q(**{f"{lookup}__in": ids}), kind="uuid")
    )


def uuid_by(keep: Callable[[tuple[UUID, ...]], Q]) -> Metadata:
    """UUIDs; ``keep`` says which rows they keep."""
    return _declared(Parameter(parse=_parse_uuid, keep=keep, kind="uuid"))


def choice_of(lookup: str, choices: tuple[str, ...]) -> Metadata:
    """Some of ``choices``; keeps the rows whose column is one of them."""
    return choice_by(lambda values: Q(**{f"{lookup}__in": values}), choices)


def choice_by(keep: Callable[[tuple[str, ...]], Q], choices: tuple[str, ...]) -> Metadata:
    """Some of ``choices``; ``keep`` says which rows they keep."""

    def parse(name: str, text: str) -> str:
        if text not in choices:
            raise errors.InvalidInput(
                f"{name}: {quoted(text)} is not one of {', '.join(choices)}.", parameter=name
            )
        return text

    return _declared(Parameter(parse=parse, keep=keep, choices=choices))


def moment(lookup: str) -> Metadata:
    """A time, once; keeps the rows on its side of the comparison ``lookup``."""
    return _declared(
        Parameter(
            parse=_parse_moment,
            keep=lambda moment: Q(**{lookup: moment}),
            is_repeated=False,
            kind="date-time",
        )
    )


def _declared(parameter: Parameter) -> Metadata:
    return {"parameter": parameter}


def _parse_text(name: str, text: str) -> str:
    if len(text) > TEXT_LENGTH_MAX or "\x00" in text:
        raise errors.InvalidInput(
            f"{name}: at most {TEXT_LENGTH_MAX} characters and no NUL are allowed.", parameter=name
        )
    return text


def _parse_number(name: str, text: str) -> int:
    number = int(text) if INTEGER.fullmatch(text) else None
    if number is None or abs(number) > BIGINT_MAX:
        raise errors.InvalidInput(f"{name}: {quoted(text)} is not a whole number.", parameter=name)
    return number


def _parse_uuid(name: str, text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise errors.InvalidInput(
            f"{name}: {quoted(text)} is not a UUID (8-4-4-4-12 hexadecimal digits).", parameter=name
        ) from None


def _parse_moment(name: str, text: str) -> datetime:
    # An unescaped '+' of an offset arrives as a space.
    mended = re.sub(r"(T.*) (\d\d:?\d\d)$", r"\1+\2", text)
    try:
        moment = datetime.fromisoformat(mended)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise errors.InvalidInput(
            f"{name}: {quoted(text)} is not a time. Write ISO 8601, such as 2026-01-31T02:00:00Z.",
            parameter=name,
        ) from None


def quoted(text: str) -> str:
    """The text as a message may show it: short, and printable."""
    return f"'{text[:80]}'" if text.isprintable() else ascii(text[:80])
