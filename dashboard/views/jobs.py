"""Jobs: the processes that take part, each from its start to its end."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from django.conf import settings

from dashboard import answer, listing
from scheduler_app.queries import jobs
from scheduler_app.queries.filters import JobFilter

if TYPE_CHECKING:
    from datetime import datetime

    from django.http import HttpRequest, HttpResponse

    from scheduler_app.queries.jobs import JobRow

FIELDS: Final = ("kind", "state", "hostname", "started_at_gte")


@answer.page
def job_list(request: HttpRequest) -> HttpResponse:
    """Jobs, newest first; incarnations that ended are filtered."""
    reading = answer.begin(request)
    found = listing.read(request, reading, JobFilter, jobs.page, noun="jobs", fields=FIELDS)
    context = {
        "list": found,
        "conditions": {row.id: _condition(row, reading.now) for row in found.rows},
        "dead_after_s": settings.HEARTBEAT_DEAD_AFTER_S,
    }
    return answer.answer(request, "dashboard/job_list.html", reading, context, topics=["jobs"])


def _condition(job: JobRow, now: datetime) -> str:
    """``suspect`` while a running process has missed two beats, ``dead`` once it is taken for dead."""
    if job.state != "running":
        return job.state
    silence = now - job.heartbeat_at
    if silence > timedelta(seconds=settings.HEARTBEAT_DEAD_AFTER_S):
        return "dead"
    if silence > timedelta(seconds=2 * settings.HEARTBEAT_INTERVAL_S):
        return "suspect"
    return "active"
