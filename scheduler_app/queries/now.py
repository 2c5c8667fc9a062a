"""How much is open now, by state: each read through an index over what is active."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db.models import Count

from scheduler_app.models import Lease, Run, TaskInstance
from scheduler_app.queries import shown

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.db.models.expressions import Combinable

    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """Current rows by the state that they show."""

    runs: dict[str, int]  # active ones
    task_instances: dict[str, int]  # unfinished ones
    leases: dict[str, int]


def now(scope: Scope) -> Now:
    """What is open in the reader's scope."""
    runs = scope.owned(Run.objects.filter(is_active=True, filter_code__isnull=True), "flow_id")
    task_instances = scope.owned(
        TaskInstance.objects.filter(is_open=True, filter_code__isnull=True), "run__flow_id"
    )
    return Now(
        runs=_by(runs, shown.RUN_SHOWN),
        task_instances=_by(task_instances, shown.TASK_SHOWN),
        leases=_by(scope.shared(Lease.objects.all()), shown.LEASE_SHOWN),
    )


def _by(rows: QuerySet[Any], by: Combinable) -> dict[str, int]:
    counted = rows.order_by().values_list(by).annotate(n=Count("*"))
    return {str(value): number for value, number in counted}
