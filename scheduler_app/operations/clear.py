"""Clear a run, or task instances of it: first a plan that says what would follow, then the act."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.hints.notices import Notices
from scheduler_app.models import Flow, FlowVersion, Run
from scheduler_app.operations.guards import Action, admit, hold_flow_of
from scheduler_app.operations.reaching import by_run
from scheduler_app.operations.reasons import check_reason
from scheduler_app.operations.triggered import what_becomes
from scheduler_app.rules import clear as rules
from scheduler_app.rules.definition import FlowDefinition, TaskDefinition, from_dict
from scheduler_app.rules.errors import Conflict, HeldForReview, InvalidInput, NotAllowed, NotFound
from scheduler_app.rules.guards import ActionKind, Size
from scheduler_app.rules.states import TASK_TERMINAL, RunState, TaskState
from scheduler_app.transitions import clear as moves
from scheduler_app.transitions import undo_clear as undo
from scheduler_app.transitions.audit import record_audit
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.run import lock_run
from scheduler_app.transitions.run_retry import count_retry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

AUDITED_MAX: Final = 500  # task instances named in an audit entry
NOTE_CHARACTERS_MAX: Final = 1000
DIFFERENCES_MAX: Final = 100  # named in a refusal
UNDONE_MAX: Final = 5_000  # task instances whose rows are kept for an undo
# Unfinished states without a process, a message or a trigger that a clear would end.
PUT_BACK: Final = frozenset({TaskState.UP_FOR_RETRY, TaskState.UP_FOR_RESCHEDULE})

_notices = Notices(settings.CACHE_URL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearPlan:
    """What a clear does, or would do. Times aware UTC."""

    plan_id: UUID
    hash: str
    expires_at: datetime
    run_id: int
    version: int  # number of the version that will execute
    new_run_attempt: int | None  # that begins; null: none does
    run_key: str
    can_be_undone: bool  # while nothing of it has started
    options: rules.Options
    included: tuple[rules.Choice, ...]
    excluded: tuple[rules.Choice, ...]
    worst_case_executions: int
    dry_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """The world as a clear finds it."""

    run: Mapping[str, Any]
    definition: FlowDefinition
    version_id: int
    version: int
    rows: Mapping[int, Mapping[str, Any]]
    selection: rules.Selection
    new_run_attempt: int | None
    hash: str


def clear_run(
    *,
    run_id: int,
    actor: str,
    options: rules.Options | None = None,
    reason: str = "",
    note: str | None = None,
    dry_run: bool = True,
    plan_id: UUID | None = None,
    automated: bool = False,
) -> ClearPlan:
    """The task instances of the run begin anew, the run with them, as a run attempt of its own.

    What runs is stopped first. A run that had ended is queued again. A dry run, the default, needs no
    reason, is not audited, and keeps the plan for ``rules.clear.PLAN_VALID_S`` seconds. With
    ``plan_id`` that plan is carried out, under its own options, if it still holds. An empty selection
    changes nothing. Raises ``NotFound``, ``InvalidInput``, ``NotAllowed`` for a frozen run, and
    ``Conflict`` for a run that is set aside and for a plan that no longer holds: ``difference`` says
    for each task instance what was planned and what is.

    ``automated``: a service asks, not a person. Then the guards of the flow may hold it: it waits in
    the review queue, and ``HeldForReview`` says under which number.
    """
    return _clear(
        run_id=run_id,
        ti_ids=None,
        actor=actor,
        options=options or rules.Options(),
        reason=reason,
        note=note,
        dry_run=dry_run,
        plan_id=plan_id,
        automated=automated,
    )


def clear_task_instances(
    *,
    ti_ids: Sequence[int],
    actor: str,
    options: rules.Options | None = None,
    reason: str = "",
    note: str | None = None,
    dry_run: bool = True,
    plan_id: UUID | None = None,
    automated: bool = False,
) -> ClearPlan:
    """These task instances of one run begin anew, with the relatives that are asked for.

    See ``clear_run``; but the run goes on in the run attempt that it is in. Raises ``NotAllowed`` too
    where a freeze holds one of those that were named.
    """
    wanted = sorted(set(ti_ids))
    found = by_run(wanted)
    if len(found) > 1:
        raise InvalidInput(
            "The task instances are of several runs: clear them as a batch.",
            field="task_instances",
        )
    return _clear(
        run_id=next(iter(found)),
        ti_ids=wanted,
        actor=actor,
        options=options or rules.Options(),
        reason=reason,
        note=note,
        dry_run=dry_run,
        plan_id=plan_id,
        automated=automated,
    )


def begin_again(
    *,
    run_id: int,
    actor: str,
    options: rules.Options,
    reason: str,
    dry_run: bool,
    plan_id: UUID | None,
    automated: bool,
) -> ClearPlan:
    """The run begins its next run attempt as its policy would: see ``operations.retry_run``."""
    return _clear(
        run_id=run_id,
        ti_ids=None,
        actor=actor,
        options=options,
        reason=reason,
        note=None,
        dry_run=dry_run,
        plan_id=plan_id,
        automated=automated,
        kind=ActionKind.RUN_RETRY,
    )


def _clear(
    *,
    run_id: int,
    ti_ids: Sequence[int] | None,
    actor: str,
    options: rules.Options,
    reason: str,
    note: str | None,
    dry_run: bool,
    plan_id: UUID | None,
    automated: bool = False,
    kind: ActionKind = ActionKind.CLEAR,
) -> ClearPlan:
    rules.check_options(options)
    check_note(note)
    if dry_run:
        if plan_id is not None:
            raise InvalidInput(
                "A plan is carried out with dry_run false; leave plan_id out to make a new one.",
                field="plan_id",
            )
        return plan_of(run_id=run_id, ti_ids=ti_ids, actor=actor, options=options)
    why = check_reason(reason)
    options = _decided(run_id, options)
    with transaction.atomic():
        if automated:
            hold_flow_of(run_id)
        kept = None if plan_id is None else _kept(plan_id, run_id, ti_ids)
        if kept is not None:
            options = rules.Options(**kept["options"])
        seen = _look(run_id, ti_ids, options, lock=True)
        if kind is ActionKind.RUN_RETRY:
            check_failed(seen.run["run_key"], seen.run["state"])
        if kept is not None:
            _hold_to(kept, seen)
            assert plan_id is not None
            plan = _plan(plan_id, kept["expires_at"], seen, options, dry_run=False)
        else:
            plan = _planned(uuid7(), seen, ti_ids, options, actor=actor, dry_run=False)
        held = _carry_out(
            plan, seen, ti_ids, actor=actor, reason=why, note=note, automated=automated, kind=kind
        )
    if held is not None:
        raise held  # not before: the review that it names is kept
    return plan


def plan_of(
    *,
    run_id: int,
    ti_ids: Sequence[int] | None,
    actor: str,
    options: rules.Options,
    batch_id: UUID | None = None,
) -> ClearPlan:
    """What clearing the run, or these of it, would do; it is kept, as a part of the batch if there is one."""
    options = _decided(run_id, options)
    with transaction.atomic():
        seen = _look(run_id, ti_ids, options, lock=False)
        return _planned(
            uuid7(), seen, ti_ids, options, actor=actor, dry_run=True, batch_id=batch_id
        )


def difference_now(plan_id: UUID) -> list[dict[str, Any]] | None:
    """What is not as the plan says any more; ``None`` while it holds. Nothing is locked or written.

    Raises what making a plan raises.
    """
    kept = moves.read_plan(connection.connection, plan_id=plan_id)
    if kept is None:
        raise NotFound(f"There is no plan {plan_id}.", field="plan_id")
    seen = _look(kept["run_id"], kept["ti_ids"], rules.Options(**kept["options"]), lock=False)
    if kept["hash"] == seen.hash:
        return None
    return rules.difference(kept["content"], seen.selection)[:DIFFERENCES_MAX]


def carry_out_part(
    plan_id: UUID, *, actor: str, reason: str, note: str | None, automated: bool = False
) -> ClearPlan:
    """A plan of a batch that was begun is carried out, if it still holds, however old it is.

    A transaction of its own. Raises as ``clear_run``.
    """
    with transaction.atomic():
        kept = moves.read_plan(connection.connection, plan_id=plan_id)
        if kept is None:
            raise NotFound(f"There is no plan {plan_id}.", field="plan_id")
        if automated:
            hold_flow_of(kept["run_id"])
        options, ti_ids = rules.Options(**kept["options"]), kept["ti_ids"]
        seen = _look(kept["run_id"], ti_ids, options, lock=True)
        _hold_to(kept, seen)
        plan = _plan(plan_id, kept["expires_at"], seen, options, dry_run=False)
        held = _carry_out(
            plan,
            seen,
            ti_ids,
            actor=actor,
            reason=reason,
            note=note,
            automated=automated,
            kind=ActionKind.CLEAR,
        )
    if held is not None:
        raise held  # not before: the review that it names is kept
    return plan


def _carry_out(
    plan: ClearPlan,
    seen: _Seen,
    ti_ids: Sequence[int] | None,
    *,
    actor: str,
    reason: str,
    note: str | None,
    automated: bool,
    kind: ActionKind,
) -> HeldForReview | None:
    """The plan is used and what it includes begins anew; or a guard holds it, as is told."""
    if automated and plan.included:
        action = _action(plan, seen, ti_ids, kind=kind, note=note)
        held = admit(action, actor=actor, reason=reason)
        if held is not None:
            return held
    if not moves.use_plan(connection.connection, plan_id=plan.plan_id):
        raise Conflict(f"Plan {plan.plan_id} was carried out before: make a new one.")
    if plan.included:
        if kind is ActionKind.RUN_RETRY:
            _count_retry(seen)
        by = moves.Clear(
            id=plan.plan_id,
            actor=actor,
            reason=reason,
            new_run_attempt=plan.new_run_attempt,
            cause=kind.value,
            is_afresh=kind is ActionKind.CLEAR and ti_ids is None and not automated,
        )
        _act(plan, seen, ti_ids, by=by, note=note)
    return None


def _count_retry(seen: _Seen) -> None:
    """The run attempt counts as one of its policy where the run waits for it; past that, a person's."""
    run, policy = seen.run, seen.definition.run_retry
    if policy is not None and run["retry_at"] is not None:
        count_retry(
            connection.connection,
            run_id=run["id"],
            seen=run["retry_count"],
            cap=policy.max_attempts - 1,
        )


def _action(
    plan: ClearPlan,
    seen: _Seen,
    ti_ids: Sequence[int] | None,
    *,
    kind: ActionKind,
    note: str | None,
) -> Action:
    request: dict[str, Any] = {"run_attempt": seen.run["run_attempt"]}
    if kind is ActionKind.CLEAR:
        request = {
            "task_instances": None if ti_ids is None else list(ti_ids),
            "options": asdict(plan.options),
            "note": note,
        }
    return Action(
        kind=kind,
        run_id=plan.run_id,
        run_key=seen.run["run_key"],
        flow_id=seen.run["flow_id"],
        defined=seen.definition.guards,
        size=Size(runs=1, task_instances=len(plan.included)),
        request=request,
    )


def check_failed(run_key: str, state: str) -> None:
    """Raises ``Conflict`` unless the run has failed."""
    if state != RunState.FAILED:
        raise Conflict(f"Run {run_key} is {state}: only a failed run is retried. Clear it instead.")


def _look(
    run_id: int, ti_ids: Sequence[int] | None, options: rules.Options, *, lock: bool
) -> _Seen:
    """The run and its task instances, locked if asked for, and what the rules say of them."""
    run = _run(run_id, lock=lock)
    if run["filter_code"] is not None:
        raise Conflict(
            f"Run {run['run_key']} is set aside ({run['filter_code']}): nothing of it starts any more."
        )
    if run["is_frozen"]:
        raise NotAllowed(f"Run {run['run_key']} is frozen: thaw it before you clear in it.")
    version = _version(run, options)
    definition = from_dict(version.definition)
    read = moves.lock_instances if lock else moves.read_instances
    rows = {row["id"]: row for row in read(connection.connection, run_id=run_id)}
    if ti_ids is not None:
        _refuse_held([rows[ti_id] for ti_id in ti_ids if ti_id in rows])
    selection = rules.select(
        [_candidate(row) for row in rows.values()],
        upstream={task.task_id: task.upstream for task in definition.tasks},
        retries={task.task_id: task.retries for task in definition.tasks},
        definition=definition,
        asked=ti_ids,
        options=options,
    )
    begins = ti_ids is None and bool(selection.included)
    new_run_attempt = run["run_attempt"] + 1 if begins else None
    about = {
        "run": run_id,
        "run_state": run["state"],
        "run_attempt": run["run_attempt"],
        "version": version.pk,
        "task_instances": None if ti_ids is None else list(ti_ids),
        "options": asdict(options),
    }
    return _Seen(
        run=run,
        definition=definition,
        version_id=version.pk,
        version=version.number,
        rows=rows,
        selection=selection,
        new_run_attempt=new_run_attempt,
        hash=rules.fingerprint(about, selection),
    )


def _run(run_id: int, *, lock: bool) -> Mapping[str, Any]:
    run: dict[str, Any] | None = None
    if lock:
        run = lock_run(connection.connection, run_id=run_id)
    elif row := Run.objects.select_related("flow").filter(pk=run_id).first():
        run = {
            "id": row.pk,
            "flow_id": row.flow_id,
            "run_key": row.run_key,
            "state": row.state,
            "run_attempt": row.run_attempt,
            "version_id": row.version_id,
            "filter_code": row.filter_code,
            "is_frozen": row.frozen_at is not None or row.flow.frozen_at is not None,
        }
    if run is None:
        message = f"there is no run {run_id}"
        raise NotFound(message, field="run")
    return run


def _version(run: Mapping[str, Any], options: rules.Options) -> FlowVersion:
    version_id = run["version_id"]
    if options.moves_version:
        newest = Flow.objects.values_list("current_version_id", flat=True).get(pk=run["flow_id"])
        version_id = newest or version_id
    return FlowVersion.objects.get(pk=version_id)


def _decided(run_id: int, options: rules.Options) -> rules.Options:
    """The options with the version decided, by the newest version of the flow where nobody said."""
    if options.run_on_latest_version is not None:
        return options
    found = Run.objects.filter(pk=run_id).values_list(
        "flow__current_version__definition", flat=True
    )
    newest = found.first()
    return replace(
        options,
        run_on_latest_version=rules.runs_on_latest_version(
            None,
            of_flow=from_dict(newest).run_on_latest_version if newest else None,
            of_installation=settings.RUN_ON_LATEST_VERSION,
        ),
    )


def _candidate(row: Mapping[str, Any]) -> rules.Candidate:
    return rules.Candidate(
        id=row["id"],
        task_id=row["task_id"],
        map_index=row["map_index"],
        state=row["state"],
        try_number=row["try_number"],
        attempt_id=None if row["attempt_id"] is None else str(row["attempt_id"]),
        held_by=row["held_by"],
        is_asked_to_stop=row["is_asked_to_stop"],
    )


def _refuse_held(named: Sequence[Mapping[str, Any]]) -> None:
    for row in named:
        if row["held_by"] is not None:
            raise NotAllowed(
                f"Task {row['task_id']}: freeze {row['held_by']} holds it: thaw it before you clear it."
            )


def _planned(
    plan_id: UUID,
    seen: _Seen,
    ti_ids: Sequence[int] | None,
    options: rules.Options,
    *,
    actor: str,
    dry_run: bool,
    batch_id: UUID | None = None,
) -> ClearPlan:
    kept = moves.keep_plan(
        connection.connection,
        plan_id=plan_id,
        run_id=seen.run["id"],
        ti_ids=ti_ids,
        options=asdict(options),
        fingerprint=seen.hash,
        content=rules.facts(seen.selection),
        actor=actor,
        valid_s=rules.PLAN_VALID_S,
        batch_id=batch_id,
    )
    return _plan(plan_id, kept["expires_at"], seen, options, dry_run=dry_run)


def _plan(
    plan_id: UUID,
    expires_at: datetime,
    seen: _Seen,
    options: rules.Options,
    *,
    dry_run: bool,
) -> ClearPlan:
    return ClearPlan(
        plan_id=plan_id,
        hash=seen.hash,
        expires_at=expires_at,
        run_id=seen.run["id"],
        version=seen.version,
        new_run_attempt=seen.new_run_attempt,
        run_key=seen.run["run_key"],
        can_be_undone=_can_be_undone(seen),
        options=options,
        included=_told_in_full(seen.selection.included),
        excluded=seen.selection.excluded,
        worst_case_executions=seen.selection.worst_case_executions,
        dry_run=dry_run,
    )


def _told_in_full(included: tuple[rules.Choice, ...]) -> tuple[rules.Choice, ...]:
    """With what becomes of the runs that they triggered; a plan holds whether those end meanwhile or not."""
    triggered = what_becomes([one.id for one in included if one.id is not None])
    return tuple(
        replace(one, effect=f"{one.effect} {triggered[one.id]}") if one.id in triggered else one
        for one in included
    )


def _can_be_undone(seen: _Seen) -> bool:
    """Whether nothing that it takes is under way, and the run stays in its version."""
    taken = seen.selection.included
    return (
        0 < len(taken) <= UNDONE_MAX
        and seen.version_id == seen.run["version_id"]
        and all(_rests(TaskState(one.state), one.attempt_id) for one in taken)
    )


def _rests(state: TaskState, attempt_id: str | None) -> bool:
    """Whether nothing of it is under way that putting it back would not bring back."""
    is_let_go = state is TaskState.SCHEDULED and attempt_id is None
    return is_let_go or state in TASK_TERMINAL or state in PUT_BACK


def _kept(plan_id: UUID, run_id: int, ti_ids: Sequence[int] | None) -> dict[str, Any]:
    """The plan that is to be carried out. Raises ``NotFound`` and ``Conflict``."""
    kept = moves.read_plan(connection.connection, plan_id=plan_id)
    named = None if ti_ids is None else list(ti_ids)
    if kept is None or kept["run_id"] != run_id or kept["ti_ids"] != named:
        raise NotFound(f"There is no plan {plan_id} for this.", field="plan_id")
    if kept["used_at"] is not None:
        raise Conflict(f"Plan {plan_id} was carried out before: make a new one.")
    if kept["is_expired"]:
        raise Conflict(f"Plan {plan_id} has expired: make a new one.")
    return kept


def _hold_to(kept: Mapping[str, Any], seen: _Seen) -> None:
    """Raises ``Conflict`` with the difference unless the plan is what would be done now."""
    if kept["hash"] == seen.hash:
        return
    differences = rules.difference(kept["content"], seen.selection)
    told = f"{len(differences)} task instances are not as they were"
    if not differences:
        told = f"run {seen.run['run_key']} is {seen.run['state']} now, or executes another version"
    raise Conflict(
        f"The plan no longer holds: {told}. Look at a new one.",
        difference=differences[:DIFFERENCES_MAX],
        hash=seen.hash,
    )


def _act(
    plan: ClearPlan,
    seen: _Seen,
    ti_ids: Sequence[int] | None,
    *,
    by: moves.Clear,
    note: str | None,
) -> None:
    if plan.can_be_undone:
        undo.keep_rows(
            connection.connection,
            plan_id=plan.plan_id,
            run_id=plan.run_id,
            ti_ids=[one.id for one in plan.included if one.id is not None],
        )
    now = moves.clear_task_instances(
        connection.connection,
        cleared=[
            moves.Cleared(
                ti_id=one.id,
                state=one.state,
                attempt_id=seen.rows[one.id]["attempt_id"],
                task=_task(seen, one),
            )
            for one in plan.included
            if one.id is not None
        ],
        by=by,
    )
    if not plan.options.keep_checkpoints:
        moves.put_checkpoints_away(connection.connection, ti_ids=list(now), by=by)
    if seen.version_id != seen.run["version_id"]:
        moves.move_to_version(
            connection.connection,
            run_id=plan.run_id,
            version_id=seen.version_id,
            number=seen.version,
            tasks=seen.definition.tasks,
        )
    moves.reopen_run(connection.connection, run_id=plan.run_id, by=by)
    if note is not None:
        moves.note_run(connection.connection, run_id=plan.run_id, note=note)
    is_run = ti_ids is None
    record_audit(
        connection.connection,
        actor=by.actor,
        action="clear" if by.cause == ActionKind.CLEAR else "retry",
        object_kind="run" if is_run else "task_instance",
        object_id=str(plan.run_id if ti_ids is None else ti_ids[0]),
        flow_id=seen.run["flow_id"],
        reason=by.reason,
        before={
            "run_state": seen.run["state"],
            **_told({one.id: one.state for one in plan.included if one.id is not None}),
        },
        after={
            **_told(now),
            "plan": str(plan.plan_id),
            "options": asdict(plan.options),
            "version": plan.version,
            "new_run_attempt": plan.new_run_attempt,
            "worst_case_executions": plan.worst_case_executions,
        },
    )
    topics = ["runs", "home", f"run:{plan.run_id}", *(f"ti:{i}" for i in list(now)[:AUDITED_MAX])]
    transaction.on_commit(lambda: _notices.both(runs=[plan.run_id], topics=topics))


def _task(seen: _Seen, one: rules.Choice) -> TaskDefinition:
    """As the version says that will execute; one that it does not have is as it was, without retries."""
    for task in seen.definition.tasks:
        if task.task_id == one.task_id:
            return task
    row = seen.rows[one.id or 0]
    return TaskDefinition(
        task_id=one.task_id,
        pool=row["pool"],
        pool_slots=row["pool_slots"],
        queue=row["queue"],
        priority=row["priority"],
    )


def _told(states: Mapping[int, str]) -> dict[str, Any]:
    told: dict[str, Any] = {"by_state": dict(Counter(states.values()))}
    if len(states) <= AUDITED_MAX:
        told["task_instances"] = {str(ti_id): state for ti_id, state in states.items()}
    return told


def check_note(note: str | None) -> None:
    """Raises ``InvalidInput`` for a note that is too long."""
    if note is not None and len(note) > NOTE_CHARACTERS_MAX:
        raise InvalidInput(
            f"The note has {len(note)} characters; at most {NOTE_CHARACTERS_MAX} are kept.",
            field="note",
        )
