"""Pools: slots, and who takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard import answer, listing
from scheduler_app.queries import pools
from scheduler_app.queries.filters import PoolFilter

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


@answer.page
def pool_list(request: HttpRequest) -> HttpResponse:
    """Every pool with its use."""
    reading = answer.begin(request)
    found = listing.read(request, reading, PoolFilter, pools.page, noun="pools", fields=("name",))
    return answer.answer(
        request, "dashboard/pool_list.html", reading, {"list": found}, topics=["pools", "runs"]
    )
