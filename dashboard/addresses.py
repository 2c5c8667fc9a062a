"""Query strings: the same address with some parameters changed, and the lens that links carry on."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode
from uuid import UUID

from django.http import QueryDict
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from scheduler_app.queries.list_filter import Lens

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from django.http import HttpRequest

LENS_ON: Final = frozenset({Lens.ALL.value, Lens.ONLY.value, "true"})
# In no address of ours.
_NUMBER: Final = 9_876_543_210
_UUID: Final = UUID(int=_NUMBER)
PLACE_IN_LIST: Final = ("cursor",)  # means nothing once anything else changes


def is_lens_on(request: HttpRequest) -> bool:
    """Whether this address shows filtered records."""
    return _is_lens_on(request.META.get("QUERY_STRING", ""), request.GET.encoding)


@lru_cache(maxsize=1024)
def _is_lens_on(asked: str, encoding: str) -> bool:
    """As ``is_lens_on``; each link of a long list asks for it."""
    given = QueryDict(asked, encoding=encoding)
    if "filtered" in given:
        return given["filtered"] in LENS_ON
    return bool(given.get("why"))


def changed(request: HttpRequest, changes: Mapping[str, object]) -> str:
    """This address's parameters with these changed, as a query string; None takes one out.

    The place in the list goes, unless it is given.
    """
    return _changed(
        request.META.get("QUERY_STRING", ""),
        request.GET.encoding,
        tuple(
            (name, None if value is None or value == "" else str(value))
            for name, value in changes.items()
        ),
    )


@lru_cache(maxsize=1024)
def _changed(asked: str, encoding: str, changes: tuple[tuple[str, str | None], ...]) -> str:
    """As ``changed``; the links of a long list say the same again and again."""
    query = QueryDict(mutable=True)
    names = {name for name, _ in changes}
    for name, values in QueryDict(asked, encoding=encoding).lists():
        if name not in names and name not in PLACE_IN_LIST:
            query.setlist(name, [value for value in values if value != ""])
    for name, value in changes:
        if value is None:
            query.pop(name, None)
        else:
            query[name] = value
    text = query.urlencode(safe=",:")
    return f"?{text}" if text else "?"


def carried(request: HttpRequest, parameters: Mapping[str, object]) -> str:
    """The query string of a link to another page: these parameters, and the lens while it is on."""
    given = tuple(
        (name, str(value))
        for name, value in parameters.items()
        if value is not None and value != ""
    )
    return _encoded(given, is_lens_on(request))


@lru_cache(maxsize=1024)
def _encoded(given: tuple[tuple[str, str], ...], is_on: bool) -> str:
    """As ``carried``; the links of a long list say the same again and again."""
    parameters = dict(given)
    if is_on:
        parameters.setdefault("filtered", Lens.ALL.value)
    return f"?{urlencode(parameters, safe=',:', quote_via=quote)}" if parameters else ""


def address_of(name: str, record_id: object) -> str:
    """The address of the page of the record with this id; a number or a UUID may be given as text."""
    if isinstance(record_id, str):
        if record_id.isdecimal():
            return address(name, int(record_id))
        if _WRITTEN_UUID.fullmatch(record_id):
            before, after = _around_uuid(name)
            return f"{before}{record_id}{after}"
        with suppress(ValueError):
            return address(name, UUID(record_id))
    return address(name, record_id)


_WRITTEN_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def address(name: str, *args: object) -> str:
    """The address of the page, as ``reverse`` gives it; for the numbers of a long list at once."""
    if len(args) == 1 and isinstance(args[0], int):
        before, after = _around_number(name)
        return f"{before}{args[0]}{after}"
    if len(args) == 1 and isinstance(args[0], UUID):
        before, after = _around_uuid(name)
        return f"{before}{args[0]}{after}"
    return _reversed(name, args)


@cache
def _around_number(name: str) -> tuple[str, str]:
    """What stands in the address before and after its one argument."""
    before, _, after = reverse(name, args=[_NUMBER]).partition(str(_NUMBER))
    return before, after


@cache
def _around_uuid(name: str) -> tuple[str, str]:
    before, _, after = reverse(name, args=[_UUID]).partition(str(_UUID))
    return before, after


@lru_cache(maxsize=1024)
def _reversed(name: str, args: tuple[object, ...]) -> str:
    return reverse(name, args=args)


def came_from(request: HttpRequest, *, otherwise: str = "/") -> str:
    """The page of this site that the form stood on; ``otherwise`` if it does not say."""
    target = request.POST.get("next", "")
    if url_has_allowed_host_and_scheme(
        target, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    ):
        return target
    return otherwise


def in_address(at: datetime) -> str:
    """The time as an address says it."""
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")
