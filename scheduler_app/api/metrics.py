"""Metrics in the exposition format of Prometheus: counters of the whole stack, and what is open now."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from scheduler_app.queries import metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

HELP: Final = {
    "scheduler_executor_events_processed_total": "Executor events that were judged.",
    "scheduler_tasks_killed_externally_total": "Attempts whose process ended without a report.",
    "scheduler_attempts_issued_total": "Attempts that were dispatched.",
    "scheduler_attempts_lost_total": "Attempts whose worker fell silent.",
    "scheduler_orphaned_tasks_adopted_total": "Running attempts that a new leader found and kept.",
    "scheduler_orphaned_tasks_cleared_total": "Tasks that no executor had and that were scheduled again.",
    "scheduler_deliveries_refused_total": "Deliveries that ran nothing.",
    "scheduler_fenced_writes_total": "Writes that were refused since the lease was lost.",
    "scheduler_take_overs_total": "Shards that a new leader went over.",
    "scheduler_demotions_total": "Leases whose holder stopped deciding by itself.",
    "scheduler_turns_refused_total": "Turns of a scheduler that the database refused, begun anew.",
    "scheduler_runs_created_total": "Runs that were created.",
    "scheduler_run_retries_total": "Run attempts that a policy, or a person in its place, began.",
    "scheduler_automatic_actions_held_total": "Automatic actions that a guard left for a person.",
    "scheduler_alerts_sent_total": "Alerts that their receivers took.",
    "scheduler_alerts_failed_total": "Alerts that were given up.",
}


@require_safe
def exposition(request: HttpRequest) -> HttpResponse:
    """Every number, read from the database, so that each process's share is counted. No login."""
    del request
    registry = CollectorRegistry()
    try:
        registry.register(_Numbers(metrics.numbers()))
    except DatabaseError:
        return HttpResponse(
            "# the database does not answer\n",
            content_type=CONTENT_TYPE_PLAIN_0_0_4,
            status=HTTPStatus.SERVICE_UNAVAILABLE,
        )
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_PLAIN_0_0_4)


class _Numbers(Collector):
    def __init__(self, numbers: metrics.Numbers) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[Metric]:
        numbers = self._numbers
        for name, value in numbers.counters.items():
            help_text = HELP.get(name, "Counted by every process of the stack.")
            # Given no time of creation, it writes no _created line.
            yield CounterMetricFamily(name, help_text, value=value)
        yield _by(
            "scheduler_runs_active", "Runs that have not ended.", "state", numbers.runs_active
        )
        yield _by(
            "scheduler_task_instances_open",
            "Task instances that have not ended.",
            "state",
            numbers.task_instances_open,
        )
        yield _by(
            "scheduler_attempts_live",
            "Attempts that have not ended.",
            "state",
            numbers.attempts_live,
        )
        yield _by("scheduler_jobs_alive", "Processes that beat.", "kind", numbers.jobs_alive)
        yield _by("scheduler_leases", "Leases of shards.", "state", numbers.leases)
        yield GaugeMetricFamily(
            "scheduler_executor_events_pending",
            "Executor events that wait for a verdict.",
            value=numbers.executor_events_pending,
        )
        yield GaugeMetricFamily(
            "scheduler_incidents_open", "Open incidents.", value=numbers.incidents_open
        )


def _by(name: str, help_text: str, label: str, values: dict[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help_text, labels=[label])
    for value, number in sorted(values.items()):
        family.add_metric([value], number)
    return family
