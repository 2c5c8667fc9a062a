"""Keyset paging: an opaque cursor that says after which row the next page begins."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db.models import F, Field, Q
from django.db.models.expressions import OrderBy

from scheduler_app.rules import errors

if TYPE_CHECKING:
    from django.db.models import Model

REMEDY = "Use the cursor of the last answer unchanged, or leave it out to start from the top."
CURSOR_LENGTH_MAX = 2000  # characters; ours are far shorter


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """An order of a list: by one column, ties broken by the key, nulls last."""

    column: str
    is_descending: bool
    is_nullable: bool
    key: str

    def expressions(self) -> list[OrderBy]:
        """The order as Django wants it; ``nulls_last`` only where needed, or no index serves it."""
        nulls_last = True if self.is_nullable else None
        first = OrderBy(F(self.column), descending=self.is_descending, nulls_last=nulls_last)
        if self.column == self.key:
            return [first]
        return [first, OrderBy(F(self.key), descending=self.is_descending)]

    def after(self, value: object, key: object) -> Q:
        """The rows that come after the row with this value and key."""
        beyond = "lt" if self.is_descending else "gt"
        if self.column == self.key:
            return Q(**{f"{self.key}__{beyond}": key})
        later_key = Q(**{f"{self.key}__{beyond}": key})
        if value is None:
            return Q(**{f"{self.column}__isnull": True}) & later_key
        later = Q(**{f"{self.column}__{beyond}": value})
        same = Q(**{self.column: value}) & later_key
        return (
            (later | same | Q(**{f"{self.column}__isnull": True}))
            if self.is_nullable
            else (later | same)
        )


def ordering(model: type[Model], order: str, key: str) -> Ordering:
    """The ordering that ``order`` (a column, '-' in front for descending) means on this model."""
    column = order.removeprefix("-")
    return Ordering(
        column=column,
        is_descending=order.startswith("-"),
        is_nullable=_field(model, column).null,
        key=key,
    )


def encode(order: str, value: object, key: object) -> str:
    """The opaque cursor of a page that ended at this row."""
    plain = json.dumps([order, _plain(value), _plain(key)], separators=(",", ":"))
    return base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")


def decode(model: type[Model], cursor: str, by: Ordering, order: str) -> Q:
    """The condition that the cursor stands for. Raises ``InvalidInput``."""
    try:
        if len(cursor) > CURSOR_LENGTH_MAX:
            raise ValueError(cursor)
        padded = cursor + "=" * (-len(cursor) % 4)
        parts = json.loads(base64.urlsafe_b64decode(padded.encode("ascii")))
        made_for, value, key = parts
        if made_for != order:
            raise errors.InvalidInput(
                f"cursor: it was made for order={made_for}, not for order={order}. {REMEDY}",
                parameter="cursor",
            )
        place = _typed(_field(model, by.column), value), _typed(_field(model, by.key), key)
        if place[1] is None:
            raise ValueError(cursor)
    except (
        ValueError,
        TypeError,
        binascii.Error,
        UnicodeError,
        RecursionError,
        ValidationError,
    ) as bad:
        raise errors.InvalidInput(
            f"cursor: not a cursor of this list. {REMEDY}", parameter="cursor"
        ) from bad
    return by.after(*place)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value


def _typed(field: Field[Any, Any], value: object) -> object:
    if value is None and field.null:
        return None
    if not isinstance(value, str | int) or (isinstance(value, str) and "\x00" in value):
        raise ValueError(value)
    typed = field.to_python(value)
    field.run_validators(typed)  # a number beyond the column's range
    return typed


def _field(model: type[Model], column: str) -> Field[Any, Any]:
    found = model._meta.get_field(column)  # noqa: SLF001 - documented by Django as public
    if not isinstance(found, Field):
        raise FieldDoesNotExist(column)
    return found
