"""How much is open now, by state: each read through an index over what is active."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.db import connection
from django.db.models import Count, Value

from scheduler_app.models import Lease, Run, TaskInstance
from scheduler_app.queries import lens, shown

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
    found: dict[str, dict[str, int]] = {"runs": {}, "task_instances": {}, "leases": {}}
    statement = _statement(scope)
    with connection.cursor() as cursor:
        cursor.execute(statement.sql, statement.parameters)
        for name, state, number in statement.values(cursor.fetchall()):
            found[name][str(state)] = number
    return Now(**found)


@lru_cache(maxsize=lens.KNOWN_MAX)
def _statement(scope: Scope) -> lens.Statement:
    """One statement for all of them, made once for each scope."""
    runs = scope.owned(Run.objects.filter(is_active=True, filter_code__isnull=True), "flow_id")
    task_instances = scope.owned(
        TaskInstance.objects.filter(is_open=True, filter_code__isnull=True), "run__flow_id"
    )
    parts = (
        _by("runs", runs, shown.RUN_SHOWN),
        _by("task_instances", task_instances, shown.TASK_SHOWN),
        _by("leases", scope.shared(Lease.objects.all()), shown.LEASE_SHOWN),
    )
    return lens.compiled(parts[0].union(*parts[1:], all=True))


def _by(name: str, rows: QuerySet[Any], by: Combinable) -> QuerySet[Any]:
    named = rows.order_by().annotate(list=Value(name), state_now=by)
    counted: QuerySet[Any] = named.values_list("list", "state_now").annotate(n=Count("*"))
    return counted
