"""Groups of tasks of one run: what is in them, and the attempts of those that are one unit."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler_app.models import GroupAttempt, Run
from scheduler_app.queries import flow_versions, task_instances
from scheduler_app.rules import ties
from scheduler_app.rules.group_retry import GroupAttemptFacts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from scheduler_app.queries.runs import RunRow
    from scheduler_app.queries.scope import Scope
    from scheduler_app.queries.task_instances import Cell
    from scheduler_app.rules.definition import FlowDefinition, GroupDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAttemptRow:
    """One go at a transactional group. Times aware UTC."""

    number: int
    cause: str  # begun, retry, clear
    state: str
    reason: str
    is_current: bool
    started_at: datetime
    ended_at: datetime | None
    retry_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """One group of a run. ``state`` and what follows it are null for a group that is no unit."""

    group_id: str
    parent: str | None
    doc: str
    task_ids: tuple[str, ...]  # of the groups in it too
    states: Mapping[str, int]  # how many of its task instances are in which state
    state: str | None = None  # of its newest attempt; null too before the first
    reason: str | None = None
    max_attempts: int | None = None
    retry_at: datetime | None = None
    told: str = ""  # "attempt 2 of 3", of the present budget
    attempts: int = 0  # all of them, those before a clear too
    history: tuple[GroupAttemptRow, ...] = ()  # newest first


def of_run(scope: Scope, run: RunRow) -> tuple[GroupRow, ...]:
    """Every group of the version that the run executes, outer ones before those in them."""
    definition = flow_versions.one(scope, run.version_id).graph()
    cells = task_instances.cells(scope, [run.id])[run.id] if definition.groups else ()
    return of_cells(scope, run.id, definition, cells)


def of_cells(
    scope: Scope, run_id: int, definition: FlowDefinition, cells: Sequence[Cell]
) -> tuple[GroupRow, ...]:
    """The same where the version and the task instances of the run have been read already."""
    if not definition.groups:
        return ()
    states: dict[str, Counter[str]] = defaultdict(Counter)
    for cell in cells:
        if cell.filter_code is None:
            states[cell.task_id][cell.state] += cell.number
    history: dict[str, list[GroupAttemptRow]] = defaultdict(list)
    budgets: dict[str, int] = {}
    visible = scope.owned(Run.objects.filter(pk=run_id), "flow_id")
    for row in GroupAttempt.objects.filter(run__in=visible).order_by("group_id", "-number"):
        budgets.setdefault(row.group_id, row.budget_start)
        history[row.group_id].append(
            GroupAttemptRow(
                number=row.number,
                cause=row.cause,
                state=row.state,
                reason=row.reason,
                is_current=row.is_current,
                started_at=row.started_at,
                ended_at=row.ended_at,
                retry_at=row.retry_at,
            )
        )
    return tuple(
        _row(definition, group, states, history[group.group_id], budgets.get(group.group_id, 0))
        for group in definition.groups
    )


def _row(
    definition: FlowDefinition,
    group: GroupDefinition,
    states: Mapping[str, Counter[str]],
    history: list[GroupAttemptRow],
    budget_start: int,
) -> GroupRow:
    task_ids = ties.members(definition, group.group_id)
    newest = history[0] if history else None
    told = ""
    if newest is not None and group.retry is not None:
        told = GroupAttemptFacts(
            number=newest.number, budget_start=budget_start, state=newest.state
        ).told(group.retry)
    return GroupRow(
        group_id=group.group_id,
        parent=group.parent or None,
        doc=group.doc,
        task_ids=task_ids,
        states=dict(sum((states[one] for one in task_ids if one in states), Counter[str]())),
        state=None if newest is None else newest.state,
        reason=None if newest is None else newest.reason,
        max_attempts=None if group.retry is None else group.retry.max_attempts,
        retry_at=None if newest is None else newest.retry_at,
        told=told,
        attempts=len(history),
        history=tuple(history),
    )
