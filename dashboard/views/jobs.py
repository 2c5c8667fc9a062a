"""Jobs: the processes that take part, each from its start to its end."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from django.conf import settings
from django.urls import reverse

from dashboard import acts, answer, listing
from scheduler_app.operations.drain_job import drain_job, undrain_job
from scheduler_app.operations.stop_job import stop_job
from scheduler_app.queries import jobs
from scheduler_app.queries.filters import JobFilter

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from django.http import HttpRequest, HttpResponse

    from scheduler_app.queries.jobs import JobRow

FIELDS: Final = ("kind", "alive", "state", "hostname", "started_at_gte")


@answer.page
def job_list(request: HttpRequest) -> HttpResponse:
    """Jobs, newest first; incarnations that ended are filtered."""
    reading = answer.begin(request)
    found = listing.read(request, reading, JobFilter, jobs.page, noun="jobs", fields=FIELDS)
    context = {
        "list": found,
        "conditions": {row.id: _condition(row, reading.now) for row in found.rows},
        "alive_s": settings.JOB_ALIVE_S,
        "dead_after_s": settings.HEARTBEAT_DEAD_AFTER_S,
    }
    return answer.answer(request, "dashboard/job_list.html", reading, context, topics=["jobs"])


def _condition(job: JobRow, now: datetime) -> str:
    """``active`` while it is alive, then ``suspect``, and ``dead`` once it is taken for dead."""
    if job.state != "running":
        return job.state
    if job.alive:
        return "active"
    silence = now - job.heartbeat_at
    return "dead" if silence > timedelta(seconds=settings.HEARTBEAT_DEAD_AFTER_S) else "suspect"


@answer.sheet
def job_stop(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """What a stop of the process would do; posted with a reason, it is asked to stop."""
    reading = answer.begin(request)
    row = jobs.one(reading.scope, job_id)
    process = f"{row.kind} {row.hostname}:{row.pid}"

    def sheet() -> acts.Sheet:
        plan = stop_job(job_id=job_id, actor=request.user.get_username(), dry_run=True)
        return acts.Sheet(title=f"Stop {process}", button="Stop this process", effects=plan.effects)

    def act(reason: str) -> str:
        stop_job(job_id=job_id, actor=request.user.get_username(), reason=reason)
        return f"The {process} was asked to stop and ends within seconds."

    return acts.answer_sheet(
        request, reading, sheet=sheet, act=act, back=reverse("dashboard:job_list")
    )


@answer.sheet
def job_drain(request: HttpRequest, job_id: UUID, *, is_drained: bool) -> HttpResponse:
    """What draining the scheduler, or ending that, would do; posted with a reason, it is done."""
    reading = answer.begin(request)
    row = jobs.one(reading.scope, job_id)
    process = f"{row.kind} {row.hostname}:{row.pid}"
    verb = drain_job if is_drained else undrain_job
    actor = request.user.get_username()

    def sheet() -> acts.Sheet:
        plan = verb(job_id=job_id, actor=actor, dry_run=True)
        if is_drained:
            title, button = f"Drain {process}", f"Give up {plan.shards} shards"
        else:
            title, button = f"Undrain {process}", "Let it take its share again"
        return acts.Sheet(title=title, button=button, effects=plan.effects)

    def act(reason: str) -> str:
        verb(job_id=job_id, actor=actor, reason=reason)
        if is_drained:
            return f"The {process} gives up its shards within seconds and stands by."
        return f"The {process} takes its share of the shards again."

    return acts.answer_sheet(
        request, reading, sheet=sheet, act=act, back=reverse("dashboard:job_list")
    )
