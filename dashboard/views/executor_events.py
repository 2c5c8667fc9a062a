"""Executor events: what witnesses said, and how each was judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dashboard import answer, listing
from scheduler_app.queries import executor_events
from scheduler_app.queries.filters import EventFilter

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

FIELDS: Final = ("flow_id", "run_id", "task_id", "verdict", "kind", "source", "received_at_gte")


@answer.page
def executor_event_list(request: HttpRequest) -> HttpResponse:
    """Executor events, newest first."""
    reading = answer.begin(request)
    found = listing.read(
        request,
        reading,
        EventFilter,
        executor_events.page,
        noun="executor events",
        fields=FIELDS,
    )
    context = {"list": found, "with_run": True}
    return answer.answer(
        request, "dashboard/executor_event_list.html", reading, context, topics=["runs"]
    )


@answer.page
def executor_event_detail(request: HttpRequest, event: int) -> HttpResponse:
    """One executor event with what it brought and the values that its verdict compared."""
    reading = answer.begin(request)
    row = executor_events.one(reading.scope, event)
    topics = [f"run:{row.run}"] if row.run else ["runs"]
    return answer.answer(
        request, "dashboard/executor_event_detail.html", reading, {"event": row}, topics=topics
    )
