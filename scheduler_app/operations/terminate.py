"""Terminate a task instance, or every unfinished one of a run: it ends as failed, without a retry."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.hints.notices import Notices
from scheduler_app.models import Attempt, TaskInstance
from scheduler_app.operations.reaching import by_run
from scheduler_app.operations.reasons import check_reason
from scheduler_app.operations.triggered import what_becomes
from scheduler_app.rules.errors import Conflict, NotAllowed, NotFound
from scheduler_app.rules.states import RUN_TERMINAL, RunState, TaskState
from scheduler_app.transitions.audit import record_audit
from scheduler_app.transitions.run import end_queued_run, lock_run
from scheduler_app.transitions.run_retry import bar_retry
from scheduler_app.transitions.task_instance import lock_open, spared_teardowns, terminate

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from uuid import UUID

    from scheduler_app.transitions.task_instance import OpenInstance

AUDITED_MAX: Final = (
    500  # task instances named in an audit entry; of more their number stands there
)

_SPARED: Final = (
    "It takes away what a setup made, before the run ends; terminate it by itself to stop it too."
)

_notices = Notices(settings.CACHE_URL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One task instance and what becomes of it, or why it is left alone."""

    id: int
    task_id: str
    map_index: int
    state: str  # before
    effect: str  # a sentence

    @property
    def name(self) -> str:
        """The task, with its map index where it has one."""
        return self.task_id if self.map_index < 0 else f"{self.task_id} [{self.map_index}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminationPlan:
    """What terminating does, or would do."""

    run_id: int
    included: tuple[Subject, ...]
    excluded: tuple[Subject, ...]
    dry_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRun:
    """One of several runs in which nothing is terminated, and why."""

    id: int
    why: str  # a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminations:
    """What terminating task instances of any runs does, or would do: a plan for each run."""

    plans: tuple[TerminationPlan, ...]
    refused: tuple[RefusedRun, ...]
    dry_run: bool

    @property
    def included(self) -> tuple[Subject, ...]:
        """Those that end, in all runs."""
        return tuple(one for plan in self.plans for one in plan.included)

    @property
    def excluded(self) -> tuple[Subject, ...]:
        """Those that are left alone, in all runs."""
        return tuple(one for plan in self.plans for one in plan.excluded)


def terminate_run(
    *, run_id: int, actor: str, reason: str = "", dry_run: bool = False
) -> TerminationPlan:
    """Every unfinished task instance of the run is asked to end, and the run ends as failed.

    What has not started never starts; what runs is stopped by its worker and fails then. Teardowns that
    have something to take away still run, by their rule, before the run ends. A dry run changes
    nothing, needs no reason and is not audited; asking again changes nothing more. Raises ``NotFound``,
    ``InvalidInput``, ``Conflict`` for a run that has ended, ``NotAllowed`` for a frozen one.
    """
    why = "" if dry_run else check_reason(reason)
    with transaction.atomic():
        run = _locked(run_id)
        found = lock_open(connection.connection, run_id=run_id)
        spared = spared_teardowns(connection.connection, run_id=run_id)
        plan = _plan(run, found, spared=spared, dry_run=dry_run)
        if not dry_run and plan.included:
            _act(plan, run, why=f"{actor} terminated the run: {why}")
            _audit(plan, run, actor=actor, reason=why, kind="run", object_id=run_id)
    return plan


def terminate_task_instance(
    *, ti_id: int, actor: str, reason: str = "", dry_run: bool = False
) -> TerminationPlan:
    """The task instance is asked to end: see ``terminate_run``. Its run goes on with the rest."""
    why = "" if dry_run else check_reason(reason)
    ti = TaskInstance.objects.filter(pk=ti_id).first()
    if ti is None:
        message = f"there is no task instance {ti_id}"
        raise NotFound(message, field="ti")
    with transaction.atomic():
        run = _locked(ti.run_id)
        found = lock_open(connection.connection, run_id=ti.run_id, ti_ids=[ti_id])
        if not found:
            ti.refresh_from_db()
            raise Conflict(f"Task {ti.task_id} has ended as {ti.state}; nothing is left to stop.")
        plan = _plan(run, found, dry_run=dry_run)
        if found[0].held_by is not None:
            raise NotAllowed(f"Task {ti.task_id}: {plan.excluded[0].effect}")
        if not dry_run and plan.included:
            _act(plan, run, why=f"{actor} terminated it: {why}")
            _audit(plan, run, actor=actor, reason=why, kind="task_instance", object_id=ti_id)
    return plan


def terminate_task_instances(
    *, ti_ids: Sequence[int], actor: str, reason: str = "", dry_run: bool = False
) -> Terminations:
    """These task instances are asked to end, one transaction and one audit entry a run.

    What has ended, is frozen or was asked before is left alone and says so; of several runs, one that
    is refused keeps no other from it. Raises as ``terminate_run`` where they are of one run.
    """
    why = "" if dry_run else check_reason(reason)
    named = by_run(ti_ids)
    plans, refused = [], []
    for run_id, own in named.items():
        try:
            with transaction.atomic():
                plans.append(_terminate_in(run_id, own, actor=actor, why=why, dry_run=dry_run))
        except (Conflict, NotAllowed) as error:
            if len(named) == 1:
                raise
            refused.append(RefusedRun(id=run_id, why=str(error)))
    return Terminations(plans=tuple(plans), refused=tuple(refused), dry_run=dry_run)


def _terminate_in(
    run_id: int, own: Sequence[int], *, actor: str, why: str, dry_run: bool
) -> TerminationPlan:
    run = _locked(run_id)
    found = lock_open(connection.connection, run_id=run_id, ti_ids=list(own))
    plan = _plan(run, found, dry_run=dry_run)
    over = set(own) - {one.id for one in found}
    ended = TaskInstance.objects.filter(pk__in=over).order_by("id")
    plan = replace(
        plan,
        excluded=(
            *plan.excluded,
            *(
                Subject(
                    id=ti.pk,
                    task_id=ti.task_id,
                    map_index=ti.map_index,
                    state=ti.state,
                    effect=f"It has ended as {ti.state}.",
                )
                for ti in ended
            ),
        ),
    )
    if not dry_run and plan.included:
        _act(plan, run, why=f"{actor} terminated it: {why}")
        first = plan.included[0].id
        _audit(plan, run, actor=actor, reason=why, kind="task_instance", object_id=first)
    return plan


def _locked(run_id: int) -> dict[str, Any]:
    run = lock_run(connection.connection, run_id=run_id)
    if run is None:
        message = f"there is no run {run_id}"
        raise NotFound(message, field="run")
    if RunState(run["state"]) in RUN_TERMINAL:
        raise Conflict(
            f"Run {run['run_key']} has ended as {run['state']}; nothing is left to stop."
        )
    if run["is_frozen"]:
        raise NotAllowed(f"Run {run['run_key']} is frozen: thaw it before you terminate in it.")
    return run


def _plan(
    run: Mapping[str, Any],
    found: Sequence[OpenInstance],
    *,
    spared: Collection[str] = (),
    dry_run: bool,
) -> TerminationPlan:
    processes = _processes([one.attempt_id for one in found if one.attempt_id is not None])
    triggered = what_becomes([one.id for one in found])
    included, excluded = [], []
    for one in found:
        if one.held_by is not None:
            excluded.append(_subject(one, f"Freeze {one.held_by} holds it: thaw it first."))
        elif one.is_asked_to_stop:
            excluded.append(_subject(one, "It was asked to end before, and is about to."))
        elif one.task_id in spared:
            excluded.append(_subject(one, _SPARED))
        else:
            told = f"{_effect(one, processes)} {triggered.get(one.id, '')}"
            included.append(_subject(one, told.strip()))
    return TerminationPlan(
        run_id=run["id"], included=tuple(included), excluded=tuple(excluded), dry_run=dry_run
    )


def _subject(one: OpenInstance, effect: str) -> Subject:
    return Subject(
        id=one.id, task_id=one.task_id, map_index=one.map_index, state=one.state, effect=effect
    )


def _processes(attempt_ids: Sequence[UUID]) -> dict[UUID, str]:
    rows = Attempt.objects.filter(pk__in=attempt_ids, is_live=True, hostname__isnull=False)
    return {
        pk: f"{hostname}:{pid}" for pk, hostname, pid in rows.values_list("id", "hostname", "pid")
    }


def _effect(one: OpenInstance, processes: Mapping[UUID, str]) -> str:
    match TaskState(one.state):
        case TaskState.RUNNING | TaskState.RESTARTING:
            where = processes.get(one.attempt_id) if one.attempt_id else None
            return f"It is stopped on {where or 'its worker'} and fails then, without a retry."
        case TaskState.QUEUED:
            return "It fails now; its message starts nothing any more."
        case TaskState.DEFERRED:
            return "It fails now; its trigger is cancelled."
        case TaskState.UP_FOR_RETRY | TaskState.UP_FOR_RESCHEDULE:
            return "It fails now, without the execution that was to come."
    return "It fails now and never starts."


def _act(plan: TerminationPlan, run: Mapping[str, Any], *, why: str) -> None:
    ids = [one.id for one in plan.included]
    terminate(connection.connection, ti_ids=ids, reason=why)
    # What a person ended, no policy begins again.
    bar_retry(connection.connection, run_id=run["id"], why=why)
    if run["state"] == RunState.QUEUED:
        end_queued_run(connection.connection, run_id=run["id"], reason=why)
    topics = ["runs", "home", f"run:{run['id']}", *(f"ti:{ti_id}" for ti_id in ids[:AUDITED_MAX])]
    transaction.on_commit(lambda: _notices.both(runs=[run["id"]], topics=topics))


def _audit(
    plan: TerminationPlan,
    run: Mapping[str, Any],
    *,
    actor: str,
    reason: str,
    kind: str,
    object_id: int,
) -> None:
    ids = [one.id for one in plan.included]
    after = TaskInstance.objects.filter(pk__in=ids).values_list("id", "state")
    record_audit(
        connection.connection,
        actor=actor,
        action="terminate",
        object_kind=kind,
        object_id=str(object_id),
        flow_id=run["flow_id"],
        reason=reason,
        before=_told({one.id: one.state for one in plan.included}),
        after=_told(dict(after)),
    )


def _told(states: Mapping[int, str]) -> dict[str, Any]:
    told: dict[str, Any] = {"by_state": dict(Counter(states.values()))}
    if len(states) <= AUDITED_MAX:
        told["task_instances"] = {str(ti_id): state for ti_id, state in states.items()}
    return told
