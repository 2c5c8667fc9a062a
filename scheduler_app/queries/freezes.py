"""Freezes: what they hold or held, who froze it, why and until when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from django.db.models import CharField, Q, Value
from django.db.models.functions import Cast, Concat

from scheduler_app.models import Freeze, Run, TaskInstance
from scheduler_app.queries import lens, shown
from scheduler_app.rules.errors import NotAllowed
from scheduler_app.rules.freezing import ScopeKind, scope_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import FreezeFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeRow:
    """One live freeze."""

    id: int
    scope_kind: str
    scope_id: str
    scope_name: str  # as sentences name it
    flow_id: str | None  # null: it reaches further than one flow
    mode: str  # drain, hard
    actor: str
    reason: str
    created_at: datetime
    until_at: datetime | None
    run: int | None = None  # of a run, or the run of a task or task instance
    ti: int | None = None
    task_id: str | None = None  # of a task of a run


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFreeze:
    """One freeze, live or over. Times aware UTC."""

    id: int
    scope_kind: str
    scope_id: str
    state: str  # live, ended
    mode: str  # drain, hard
    actor: str
    reason: str
    created_at: datetime
    until: datetime | None
    ended_at: datetime | None


def _rows(scope: Scope) -> QuerySet[Freeze]:
    rows = Freeze.objects.annotate(filter_code=lens.NEVER_FILTERED)
    if scope.flow_ids is None:
        return rows if scope.sees_anything else rows.none()
    mine = [str(flow_id) for flow_id in scope.flow_ids]
    runs = Run.objects.filter(flow_id__in=mine)
    tis = TaskInstance.objects.filter(run_id__in=runs.values("id"))
    number = Cast("id", CharField())
    return rows.filter(
        Q(scope_kind__in=(ScopeKind.ALL.value, ScopeKind.SHARD.value))
        | Q(scope_kind=ScopeKind.FLOW.value, scope_id__in=mine)
        | Q(scope_kind=ScopeKind.RUN.value, scope_id__in=runs.values(n=number))
        | Q(scope_kind=ScopeKind.TASK_INSTANCE.value, scope_id__in=tis.values(n=number))
        | Q(scope_kind=ScopeKind.TASK.value, scope_id__in=tis.values(n=_OF_TASK))
    )


_OF_TASK: Final = Concat(Cast("run_id", CharField()), Value(":"), "task_id")

NOUN: Final = lens.Noun(
    name="freezes",
    model=Freeze,
    row=ListedFreeze,
    rows=_rows,
    columns={"state": shown.FREEZE_SHOWN, "until": "until_at"},
)


def page(asked: FreezeFilter, scope: Scope) -> lens.Page[ListedFreeze]:
    """One page of freezes."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, freeze: int) -> ListedFreeze:
    """The freeze with this number. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(id=freeze), f"freeze {freeze}")


def live(scope: Scope) -> tuple[FreezeRow, ...]:
    """The live freezes that touch what the scope sees, oldest first."""
    rows = list(Freeze.objects.filter(ended_at__isnull=True).order_by("id"))
    if not rows:
        return ()
    run_ids = [
        scope_of(row.scope_kind, row.scope_id).number or 0
        for row in rows
        if row.scope_kind in (ScopeKind.RUN, ScopeKind.TASK)
    ]
    ti_ids = [int(row.scope_id) for row in rows if row.scope_kind == ScopeKind.TASK_INSTANCE]
    runs = Run.objects.in_bulk(run_ids)
    tis = TaskInstance.objects.select_related("run").in_bulk(ti_ids)
    found = [_row(row, runs, tis) for row in rows]
    return tuple(
        row
        for row in found
        if row.flow_id is None or scope.flow_ids is None or row.flow_id in scope.flow_ids
    )


def touching(
    rows: Sequence[FreezeRow],
    *,
    flow_id: str | None,
    shard: int | None,
    run: int | None = None,
    task_id: str | None = None,
    ti: int | None = None,
) -> tuple[FreezeRow, ...]:
    """Those of the live freezes that hold this flow, run or task instance, or something in it."""

    def touches(row: FreezeRow) -> bool:
        if row.flow_id is None:
            return row.scope_kind == ScopeKind.ALL or row.scope_id == str(shard)
        if ti is not None and row.ti is not None:
            return row.ti == ti
        if task_id is not None and row.task_id is not None:
            return (row.run, row.task_id) == (run, task_id)
        if run is not None and row.run is not None:
            return row.run == run
        return row.flow_id == flow_id

    return tuple(filter(touches, rows))


def check_wide(scope: Scope) -> None:
    """Raises ``NotAllowed`` unless the account may see every flow."""
    if scope.flow_ids is not None:
        raise NotAllowed("Only an account that sees every flow may freeze or thaw beyond one flow.")


def _row(row: Freeze, runs: dict[int, Run], tis: dict[int, TaskInstance]) -> FreezeRow:
    flow_id: str | None = None
    name, run_id, ti_id, task_id = "everything", None, None, None
    match ScopeKind(row.scope_kind):
        case ScopeKind.SHARD:
            name = f"shard {row.scope_id}"
        case ScopeKind.FLOW:
            flow_id = row.scope_id
            name = f"flow {row.scope_id}"
        case ScopeKind.RUN:
            run_id = int(row.scope_id)
            run = runs.get(run_id)
            flow_id = "" if run is None else str(run.flow_id)
            name = f"run {row.scope_id if run is None else run.run_key} of {flow_id}"
        case ScopeKind.TASK:
            scope = scope_of(row.scope_kind, row.scope_id)
            run_id, task_id = scope.number, scope.task_id
            of_task = runs.get(run_id or 0)
            flow_id = "" if of_task is None else str(of_task.flow_id)
            name = scope.name if of_task is None else f"task {task_id} of {of_task.run_key}"
        case ScopeKind.TASK_INSTANCE:
            ti_id = int(row.scope_id)
            ti = tis.get(ti_id)
            flow_id = "" if ti is None else str(ti.run.flow_id)
            run_id = None if ti is None else ti.run_id
            name = (
                f"task {row.scope_id}" if ti is None else f"task {ti.task_id} of {ti.run.run_key}"
            )
    return FreezeRow(
        id=row.pk,
        scope_kind=row.scope_kind,
        scope_id=row.scope_id,
        scope_name=name,
        flow_id=flow_id,
        mode=row.mode,
        actor=row.actor,
        reason=row.reason,
        created_at=row.created_at,
        until_at=row.until_at,
        run=run_id,
        ti=ti_id,
        task_id=task_id,
    )
