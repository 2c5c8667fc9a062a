"""Query strings: the same address with some parameters changed, and the lens that links carry on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django.http import QueryDict
from django.utils.http import url_has_allowed_host_and_scheme

from scheduler_app.queries.list_filter import Lens

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from django.http import HttpRequest

LENS_ON: Final = frozenset({Lens.ALL.value, Lens.ONLY.value, "true"})
PLACE_IN_LIST: Final = ("cursor",)  # means nothing once anything else changes


def is_lens_on(request: HttpRequest) -> bool:
    """Whether this address shows filtered records."""
    if "filtered" in request.GET:
        return request.GET["filtered"] in LENS_ON
    return bool(request.GET.get("why"))


def changed(request: HttpRequest, changes: Mapping[str, object]) -> str:
    """This address's parameters with these changed, as a query string; None takes one out.

    The place in the list goes, unless it is given.
    """
    query = QueryDict(mutable=True)
    for name, values in request.GET.lists():
        if name not in changes and name not in PLACE_IN_LIST:
            query.setlist(name, [value for value in values if value != ""])
    for name, value in changes.items():
        if value is None or value == "":
            query.pop(name, None)
        else:
            query[name] = str(value)
    text = query.urlencode(safe=",:")
    return f"?{text}" if text else "?"


def carried(request: HttpRequest, parameters: Mapping[str, object]) -> str:
    """The query string of a link to another page: these parameters, and the lens while it is on."""
    query = QueryDict(mutable=True)
    for name, value in parameters.items():
        if value is not None and value != "":
            query[name] = str(value)
    if is_lens_on(request) and "filtered" not in query:
        query["filtered"] = Lens.ALL.value
    text = query.urlencode(safe=",:")
    return f"?{text}" if text else ""


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
