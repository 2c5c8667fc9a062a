"""Rows as plain values, and serializers whose fields are made once.

A serializer stays what describes and makes a row. DRF copies all its fields for each one that it makes,
which takes longer than what is done with them: here they are looked up once, not with every row or body.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from rest_framework import serializers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Field = serializers.Field[Any, Any, Any, Any]
    Kind = type[serializers.Serializer[Any]]


def lines(kind: Kind, rows: Iterable[object]) -> list[dict[str, Any]]:
    """The rows as ``kind(rows, many=True).data`` has them."""
    assert _is_plain(kind)
    fields = _fields(kind)
    return [
        {
            name: None if (value := getattr(row, name)) is None else told(value)
            for name, told in fields
        }
        for row in rows
    ]


def line(kind: Kind, row: object) -> Any:
    """The row as ``kind(row).data`` has it."""
    if isinstance(row, Mapping) or not _is_plain(kind):
        return kept(kind).to_representation(row)
    (told,) = lines(kind, [row])
    return told


@cache
def kept(kind: Kind) -> serializers.Serializer[Any]:
    """The one serializer of its kind that all requests share: nothing is ever set on it, or on its fields."""
    return kind()


def _instant(value: datetime) -> str:
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _as_it_is(value: object) -> object:
    return value


# What ``to_representation`` of these comes to, for the values that rows have.
_TOLD: Final[dict[type[Field], Callable[[Any], object]]] = {
    serializers.CharField: str,
    serializers.UUIDField: str,
    serializers.IntegerField: int,
    serializers.DateTimeField: _instant,
    serializers.JSONField: _as_it_is,
}


@cache
def _fields(kind: Kind) -> tuple[tuple[str, Callable[[Any], object]], ...]:
    """Each field's name, and what makes plain values of its values."""
    return tuple(
        (str(field.field_name), _TOLD.get(type(field), field.to_representation))
        for field in kept(kind)._readable_fields  # noqa: SLF001 - DRF's name for those that answers have
    )


@cache
def _is_plain(kind: Kind) -> bool:
    """Whether a row's values are those of its attributes of the fields' own names."""
    own = kind.to_representation is serializers.Serializer.to_representation
    return own and all(
        field.source == field.field_name and type(field).get_attribute is _ATTRIBUTE
        for field in kept(kind)._readable_fields  # noqa: SLF001 - likewise
    )


_ATTRIBUTE: Final = serializers.Field.get_attribute
