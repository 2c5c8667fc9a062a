"""Leases: who decides for each shard, and every change of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django.conf import settings

from dashboard import answer, listing
from scheduler_app.queries import lease_events, leases
from scheduler_app.queries.filters import LeaseEventFilter, LeaseFilter

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

EVENTS_LIMIT: Final = 50
LEASES_LIMIT: Final = 200


@answer.page
def lease_list(request: HttpRequest) -> HttpResponse:
    """Every shard with its holder, and the newest changes."""
    reading = answer.begin(request)
    found = listing.read(
        request,
        reading,
        LeaseFilter,
        leases.page,
        noun="leases",
        fields=("shard", "state"),
        limit=LEASES_LIMIT,
    )
    newest = LeaseEventFilter(shard=found.asked.shard, limit=EVENTS_LIMIT)  # type: ignore[attr-defined] # a LeaseFilter
    context = {
        "list": found,
        "events": lease_events.page(newest, reading.scope),
        "ttl_s": settings.LEASE_TTL_S,
        "renew_interval_s": settings.LEASE_RENEW_INTERVAL_S,
        "deadline_s": settings.LEASE_DEADLINE_S,
    }
    return answer.answer(request, "dashboard/lease_list.html", reading, context, topics=["leases"])
