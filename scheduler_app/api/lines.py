"""Rows of lists as plain values: what their serializers make of them, without DRF's walk over each field.

A serializer stays what describes and makes a row; here its fields are looked up once, not with every row.
"""

from __future__ import annotations

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
    fields = _fields(kind)
    return [
        {
            name: None if (value := getattr(row, name)) is None else told(value)
            for name, told in fields
        }
        for row in rows
    ]


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
    assert kind.to_representation is serializers.Serializer.to_representation
    fields = {name: field for name, field in kind().fields.items() if not field.write_only}
    assert all(field.source == name for name, field in fields.items())
    return tuple(
        (name, _TOLD.get(type(field), field.to_representation)) for name, field in fields.items()
    )
