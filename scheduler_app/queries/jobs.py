"""Jobs: the incarnations of processes. One that ended or fell silent is filtered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Case, CharField, F, Q, Value, When
from django.db.models.functions import Coalesce, JSONObject

from scheduler_app.models import Job
from scheduler_app.queries import lens, shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import JobFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow(lens.Standing):
    """One process from its start to its end."""

    id: UUID
    kind: str
    name: str
    hostname: str
    pid: int
    state: str  # running, ended, dead
    alive: bool  # it beat less than 2.1 intervals ago, by the database's clock
    started_at: datetime
    heartbeat_at: datetime
    progress_at: datetime
    ended_at: datetime | None
    stop_requested_at: datetime | None
    stop_requested_by: str  # empty: nobody
    stop_reason: str
    drain_requested_at: datetime | None
    drain_requested_by: str  # empty: nobody
    drain_reason: str
    clock_ahead_s: float | None  # of its host, of the database's clock; null: not measured yet
    clock_within_s: float | None  # what that may be off by
    detail: Mapping[str, Any]


def _rows(scope: Scope) -> QuerySet[Job]:
    gone = Case(
        When(ended_at__isnull=False, then=Value("ended_incarnation")),
        When(state="dead", then=Value("dead_incarnation")),
        output_field=CharField(),
    )
    gone_at = Coalesce("ended_at", "heartbeat_at")
    rows = Job.objects.annotate(
        filter_code=gone,
        filtered_at=gone_at,
        filter_detail=JSONObject(hostname=F("hostname"), pid=F("pid"), at=gone_at),
    )
    return scope.shared(rows)


NOUN: Final = lens.Noun(
    name="jobs",
    model=Job,
    row=JobRow,
    rows=_rows,
    columns={
        "alive": shown.JOB_ALIVE,
        "superseded_by": Value(None, output_field=CharField()),
    },
)


def page(asked: JobFilter, scope: Scope) -> lens.Page[JobRow]:
    """One page of jobs."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, job_id: UUID) -> JobRow:
    """The job with this id. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(id=job_id), f"job {job_id}")
