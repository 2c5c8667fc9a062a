"""Numbers for the metrics page: counters that every process adds to, and what is open now."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.db.models import Count, F, Sum

from scheduler_app.models import (
    Attempt,
    Counter,
    ExecutorEvent,
    Incident,
    Job,
    Lease,
    Run,
    TaskInstance,
)
from scheduler_app.queries import shown

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.db.models.expressions import Combinable


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Counters by name, and gauges by what they are counted by."""

    counters: dict[str, int]
    runs_active: dict[str, int] = field(default_factory=dict)  # by state
    task_instances_open: dict[str, int] = field(default_factory=dict)  # by state
    attempts_live: dict[str, int] = field(default_factory=dict)  # by state
    jobs_alive: dict[str, int] = field(default_factory=dict)  # by kind
    leases: dict[str, int] = field(default_factory=dict)  # by state
    executor_events_pending: int = 0
    incidents_open: int = 0


def numbers() -> Numbers:
    """Every number, each read through an index over what is active, never over history."""
    counters = Counter.objects.values_list("name").annotate(total=Sum("value"))
    return Numbers(
        counters=dict(counters.order_by("name")),
        runs_active=_by(
            Run.objects.filter(is_active=True, filter_code__isnull=True), shown.RUN_SHOWN
        ),
        task_instances_open=_by(
            TaskInstance.objects.filter(is_open=True, filter_code__isnull=True), shown.TASK_SHOWN
        ),
        attempts_live=_by(Attempt.objects.filter(is_live=True), F("state")),
        jobs_alive=_by(
            # ended_at once more, as the index has it
            Job.objects.filter(shown.JOB_ALIVE, ended_at__isnull=True),
            F("kind"),
        ),
        leases=_by(Lease.objects.all(), shown.LEASE_SHOWN),
        executor_events_pending=ExecutorEvent.objects.filter(verdict="pending").count(),
        incidents_open=Incident.objects.filter(resolved_at__isnull=True).count(),
    )


def _by(rows: QuerySet[Any], by: Combinable) -> dict[str, int]:
    counted = rows.order_by().values_list(by).annotate(n=Count("*"))
    return {str(value): number for value, number in counted}
