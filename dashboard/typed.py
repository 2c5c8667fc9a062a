"""Numbers that readers type or that stand in an address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from django.http import HttpRequest

DIGITS_MAX: Final = 9


def whole_number(name: str, text: str) -> int:
    """The number that was typed, from 0 on. Raises ``InvalidInput`` naming the field."""
    text = text.strip()
    if not (text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX):
        raise InvalidInput(f"{name}: {text[:80]!r} is no whole number from 0 on.", field=name)
    return int(text)


def slots_typed(request: HttpRequest) -> int:
    """How many slots the form says. Raises ``InvalidInput``."""
    return whole_number("slots", request.POST.get("slots", ""))


def offset(request: HttpRequest, name: str) -> int:
    """From where on rows are asked for; 0 where the address says nothing. Raises ``InvalidInput``."""
    return whole_number(name, request.GET.get(name, "0"))
