"""Every list of the product by its name, with the filter that it is asked by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scheduler_app.queries import (
    alerts,
    attempts,
    audit,
    automatic_actions,
    backfills,
    cases,
    connections,
    executor_events,
    filters,
    flow_versions,
    flows,
    freezes,
    ghost_audits,
    ghosts,
    guards,
    incidents,
    inquiries,
    jobs,
    key_limits,
    lease_events,
    leases,
    lens,
    newest,
    pools,
    records,
    reviews,
    run_attempts,
    runs,
    take_over_items,
    take_overs,
    task_instances,
    triggers,
    variable_changes,
    variables,
)

if TYPE_CHECKING:
    from scheduler_app.queries.list_filter import ListFilter

NOUNS: Final[dict[str, tuple[lens.Noun[Any], type[ListFilter]]]] = {
    noun.name: (noun, asked)
    for noun, asked in (
        (flows.NOUN, filters.FlowFilter),
        (flow_versions.NOUN, filters.FlowVersionFilter),
        (runs.NOUN, filters.RunFilter),
        (run_attempts.NOUN, filters.RunAttemptFilter),
        (task_instances.NOUN, filters.TaskInstanceFilter),
        (attempts.NOUN, filters.AttemptFilter),
        (executor_events.NOUN, filters.EventFilter),
        (leases.NOUN, filters.LeaseFilter),
        (lease_events.NOUN, filters.LeaseEventFilter),
        (take_overs.NOUN, filters.TakeOverFilter),
        (take_over_items.NOUN, filters.TakeOverItemFilter),
        (inquiries.NOUN, filters.InquiryFilter),
        (jobs.NOUN, filters.JobFilter),
        (freezes.NOUN, filters.FreezeFilter),
        (triggers.NOUN, filters.TriggerFilter),
        (pools.NOUN, filters.PoolFilter),
        (key_limits.NOUN, filters.KeyLimitFilter),
        (connections.NOUN, filters.ConnectionFilter),
        (variables.NOUN, filters.VariableFilter),
        (variable_changes.NOUN, filters.VariableChangeFilter),
        (cases.NOUN, filters.CaseFilter),
        (reviews.NOUN, filters.ReviewFilter),
        (backfills.NOUN, filters.BackfillFilter),
        (backfills.DATES, filters.BackfillDateFilter),
        (guards.NOUN, filters.GuardFilter),
        (automatic_actions.NOUN, filters.AutomaticActionFilter),
        (audit.NOUN, filters.AuditFilter),
        (incidents.NOUN, filters.IncidentFilter),
        (alerts.NOUN, filters.AlertFilter),
        (ghosts.NOUN, filters.GhostFilter),
        (ghost_audits.NOUN, filters.GhostAuditFilter),
        (records.NOUN, filters.RecordFilter),
    )
}


def is_in_order(kind: type[ListFilter], column: str) -> bool:
    """Whether the list that is asked by this filter may be long, and is had in this order all the same."""
    return any(
        newest.is_in_order(noun.model, column) for noun, asked in NOUNS.values() if asked is kind
    )
