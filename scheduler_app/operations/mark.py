"""Mark task instances, or a run, by hand: they are what a person says, whatever their code came to."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.hints.notices import Notices
from scheduler_app.models import FlowVersion, Run
from scheduler_app.operations.reaching import by_run, with_dates
from scheduler_app.operations.reasons import check_reason
from scheduler_app.operations.triggered import what_becomes
from scheduler_app.rules import callbacks as calling
from scheduler_app.rules import mark as rules
from scheduler_app.rules import run_outcome
from scheduler_app.rules.definition import FlowDefinition, TaskDefinition, from_dict
from scheduler_app.rules.errors import Conflict, InvalidInput, NotAllowed, NotFound
from scheduler_app.rules.mapping import mapped_groups
from scheduler_app.rules.roles import Role
from scheduler_app.rules.states import RUN_TERMINAL, TASK_TERMINAL, RunState, TaskState
from scheduler_app.rules.ties import ties_of
from scheduler_app.transitions import clear as clears
from scheduler_app.transitions import mark as moves
from scheduler_app.transitions.audit import record_audit
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.run import lock_run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

AUDITED_MAX: Final = 500  # task instances named in an audit entry

_notices = Notices(settings.CACHE_URL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far a mark goes from the task instances that are named."""

    include_upstream: bool = False
    include_downstream: bool = False
    include_past: bool = False
    include_future: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One task instance and what becomes of it, or why it is left alone."""

    id: int
    run_id: int
    task_id: str
    map_index: int
    state: str  # before
    rule: str
    effect: str  # a sentence
    becomes: str | None  # null: it is left alone

    @property
    def name(self) -> str:
        """The task, with its map index where it has one."""
        return self.task_id if self.map_index < 0 else f"{self.task_id} [{self.map_index}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedRun:
    """One run that the mark is about."""

    id: int
    flow_id: str
    run_key: str
    state: str  # before
    becomes: str  # after
    effect: str  # a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRun:
    """One of several runs in which nothing is marked, and why."""

    id: int
    why: str  # a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkPlan:
    """What marking does, or would do."""

    state: str
    runs: tuple[MarkedRun, ...]
    refused: tuple[RefusedRun, ...]  # of several runs; where one alone is asked for, that raises
    included: tuple[Subject, ...]
    excluded: tuple[Subject, ...]
    callbacks: bool  # are called, since they were asked for
    dry_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What is common to every run of one act."""

    actor: str
    reason: str
    callbacks: bool
    dry_run: bool
    note: str | None = None


def mark_runs(
    *,
    run_ids: Sequence[int],
    state: str,
    actor: str,
    reason: str = "",
    callbacks: bool = False,
    note: str | None = None,
    dry_run: bool = False,
) -> MarkPlan:
    """Each of these runs is marked, in a transaction of its own: see ``mark_run``.

    A run that cannot be marked keeps no other from it: it is told with the reason. Raises
    ``InvalidInput``, and what ``mark_run`` raises where one run alone is named.
    """
    wanted = sorted(set(run_ids))
    if not wanted:
        raise InvalidInput("Name at least one run.", field="runs")
    plans, refused = [], []
    for run_id in wanted:
        try:
            plans.append(
                mark_run(
                    run_id=run_id,
                    state=state,
                    actor=actor,
                    reason=reason,
                    callbacks=callbacks,
                    note=note,
                    dry_run=dry_run,
                )
            )
        except (Conflict, NotAllowed, NotFound) as error:
            if len(wanted) == 1:
                raise
            refused.append(RefusedRun(id=run_id, why=str(error)))
    return MarkPlan(
        state=rules.run_target(state).value,
        runs=tuple(run for plan in plans for run in plan.runs),
        refused=tuple(refused),
        included=tuple(one for plan in plans for one in plan.included),
        excluded=tuple(one for plan in plans for one in plan.excluded),
        callbacks=callbacks,
        dry_run=dry_run,
    )


def mark_run(
    *,
    run_id: int,
    state: str,
    actor: str,
    reason: str = "",
    callbacks: bool = False,
    note: str | None = None,
    dry_run: bool = False,
) -> MarkPlan:
    """The run ends as success or failed because a person says so, and ``run.mark`` says that it did.

    As success: what has not ended, failed or could not run counts as success. As failed: what had begun
    fails, what had not is skipped. What runs is stopped first; the run ends when the last has. What had
    ended otherwise keeps what it came to. Nothing calls back unless ``callbacks`` asks for it, and no
    policy tries the run again. A dry run changes nothing, needs no reason and is not audited; a mark of
    what is so already changes nothing. Raises ``NotFound``, ``InvalidInput``, ``Conflict`` for a run that
    is set aside, ``NotAllowed`` for a frozen one.
    """
    target = rules.run_target(state)
    asked = _asked(actor, reason, callbacks=callbacks, note=note, dry_run=dry_run)
    with transaction.atomic():
        seen = _look(run_id, lock=not dry_run)
        selection = rules.select_of_run(
            seen.candidates,
            target=target,
            teardowns={t.task_id for t in seen.definition.tasks if t.role == Role.TEARDOWN},
        )
        becomes, effect = _end_of(seen.run, selection, target)
        # A run that failed by itself is marked as failed all the same: then no policy tries it again.
        is_so = not selection.included and (
            seen.mark == target
            or (seen.mark is None and seen.run["state"] == target == RunState.SUCCESS)
        )
        if not dry_run and not is_so:
            by = _by(asked)
            moved = _mark(seen, selection, by)
            moves.mark_run(connection.connection, run_id=run_id, state=target, by=by)
            has_ended = moves.end_marked_run(connection.connection, run_id=run_id)
            _note(run_id, asked)
            if callbacks and (has_ended or RunState(seen.run["state"]) in RUN_TERMINAL):
                _call_for_run(seen, target, by)
            _audit(seen, selection, moved, asked, kind="run", object_id=run_id, state=target)
            _tell(run_id, moved)
    return MarkPlan(
        state=target.value,
        runs=(_told_run(seen.run, becomes, effect),),
        refused=(),
        included=_told_in_full(run_id, selection.included),
        excluded=_subjects(run_id, selection.excluded),
        callbacks=callbacks,
        dry_run=dry_run,
    )


def mark_task_instances(
    *,
    ti_ids: Sequence[int],
    state: str,
    actor: str,
    reach: Reach | None = None,
    reason: str = "",
    callbacks: bool = False,
    note: str | None = None,
    dry_run: bool = False,
) -> MarkPlan:
    """These task instances are success, failed or skipped because a person says so.

    What runs is stopped first, and is that then, whatever it reports. What had been given up downstream
    of a success or a skip is looked at again, so that its run goes on; a run that had ended and in which
    nothing goes on ends anew by the states that its task instances have. ``mark`` of each says who did it.
    One transaction and one audit entry a run; of several runs, one that is refused keeps no other from it.
    See ``mark_run``; raises ``NotAllowed`` too where a freeze holds one of those that were named.
    """
    target = rules.task_target(state)
    asked = _asked(actor, reason, callbacks=callbacks, note=note, dry_run=dry_run)
    how = reach or Reach()
    named = by_run(ti_ids)
    runs: list[MarkedRun] = []
    refused: list[RefusedRun] = []
    included: list[Subject] = []
    excluded: list[Subject] = []
    wider = with_dates(named, past=how.include_past, future=how.include_future)
    for run_id, own in wider.items():
        try:
            with transaction.atomic():
                marked = _mark_in(run_id, own, set(named.get(run_id, ())), target, how, asked)
        except (Conflict, NotAllowed) as error:
            if len(wider) == 1:
                raise
            refused.append(RefusedRun(id=run_id, why=str(error)))
            continue
        runs.append(marked[0])
        included += _told_in_full(run_id, marked[1].included)
        excluded += _subjects(run_id, marked[1].excluded)
    return MarkPlan(
        state=target.value,
        runs=tuple(runs),
        refused=tuple(refused),
        included=tuple(included),
        excluded=tuple(excluded),
        callbacks=callbacks,
        dry_run=dry_run,
    )


def _mark_in(
    run_id: int,
    own: Sequence[int],
    named: set[int],
    target: TaskState,
    how: Reach,
    asked: _Asked,
) -> tuple[MarkedRun, rules.Selection]:
    """These task instances of one run are marked, or it is only told what would follow."""
    seen = _look(run_id, lock=not asked.dry_run)
    _refuse_held(seen, named)
    selection = rules.select(
        seen.candidates,
        upstream=seen.upstream,
        asked=own,
        target=target,
        include_upstream=how.include_upstream,
        include_downstream=how.include_downstream,
        groups=mapped_groups(seen.definition),
    )
    settled = _settled(seen, selection)
    if not asked.dry_run and selection.included:
        by = _by(asked)
        moved = _mark(seen, selection, by)
        _let_go(seen, selection, by)
        if settled is not None and settled[0] in RUN_TERMINAL:
            moves.settle_run(
                connection.connection, run_id=run_id, state=settled[0], reason=settled[1]
            )
        _note(run_id, asked)
        _audit(seen, selection, moved, asked, kind="task_instance", object_id=own[0], state=target)
        _tell(run_id, moved)
    becomes = RunState(seen.run["state"]) if settled is None else settled[0]
    effect = "It goes on by its rules." if settled is None else settled[1]
    if settled is None and RunState(seen.run["state"]) in RUN_TERMINAL:
        effect = f"It has ended as {becomes}, and stays so."
    return _told_run(seen.run, becomes, effect), selection


def _asked(actor: str, reason: str, *, callbacks: bool, note: str | None, dry_run: bool) -> _Asked:
    why = "" if dry_run else check_reason(reason)
    return _Asked(actor=actor, reason=why, callbacks=callbacks, note=note, dry_run=dry_run)


def _by(asked: _Asked) -> moves.Mark:
    return moves.Mark(id=uuid7(), actor=asked.actor, reason=asked.reason, callbacks=asked.callbacks)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """One run as the mark finds it."""

    run: Mapping[str, Any]
    mark: str | None  # how a person said that the run ends
    definition: FlowDefinition
    rows: Mapping[int, Mapping[str, Any]]

    @property
    def upstream(self) -> dict[str, tuple[str, ...]]:
        return {task.task_id: task.upstream for task in self.definition.tasks}

    @property
    def candidates(self) -> list[rules.Candidate]:
        return [
            rules.Candidate(
                id=row["id"],
                task_id=row["task_id"],
                map_index=row["map_index"],
                state=row["state"],
                held_by=row["held_by"],
                mark=row["marked"],
            )
            for row in self.rows.values()
        ]

    def task(self, task_id: str) -> TaskDefinition | None:
        return next((one for one in self.definition.tasks if one.task_id == task_id), None)


def _look(run_id: int, *, lock: bool) -> _Seen:
    """The run and its task instances, locked if asked for."""
    if lock:
        lock_run(connection.connection, run_id=run_id)
    row = Run.objects.select_related("flow", "version").filter(pk=run_id).first()
    if row is None:
        message = f"there is no run {run_id}"
        raise NotFound(message, field="run")
    if row.filter_code is not None:
        raise Conflict(
            f"Run {row.run_key} is set aside ({row.filter_code}): nothing of it counts any more."
        )
    if row.frozen_at is not None or row.flow.frozen_at is not None:
        raise NotAllowed(f"Run {row.run_key} is frozen: thaw it before you mark in it.")
    version: FlowVersion = row.version
    found = moves.lock_instances(connection.connection, run_id=run_id, lock=lock)
    return _Seen(
        run={
            "id": row.pk,
            "flow_id": row.flow_id,
            "run_key": row.run_key,
            "state": row.state,
            "run_attempt": row.run_attempt,
        },
        mark=None if row.mark is None else str(row.mark["state"]),
        definition=from_dict(version.definition),
        rows={one["id"]: one for one in found},
    )


def _refuse_held(seen: _Seen, named: set[int]) -> None:
    for ti_id in sorted(named):
        row = seen.rows.get(ti_id)
        if row is not None and row["held_by"] is not None:
            raise NotAllowed(
                f"Task {row['task_id']}: freeze {row['held_by']} holds it: thaw it before you mark it."
            )


def _end_of(
    run: Mapping[str, Any], selection: rules.Selection, target: RunState
) -> tuple[RunState, str]:
    """The run's state after its mark, and a sentence."""
    if RunState(run["state"]) in RUN_TERMINAL:
        if run["state"] == target:
            return target, f"It has ended as {target}."
        return target, f"It ended as {run['state']}, and counts as {target} from now on."
    stopping = [one for one in selection.included if one.state in rules.STOPPED_FIRST]
    held = [one for one in selection.excluded if one.rule == rules.Rule.FROZEN]
    if held:
        return RunState(run["state"]), f"It ends as {target} once what is frozen in it was thawed."
    if stopping or any(one.rule == rules.Rule.TEARDOWN for one in selection.excluded):
        return RunState(run["state"]), f"It ends as {target} when the last of it has ended."
    return target, f"It ends as {target} now."


def _settled(seen: _Seen, selection: rules.Selection) -> tuple[RunState, str] | None:
    """What becomes of a run that had ended, and why; ``None`` where it goes on, or is as it was."""
    state = RunState(seen.run["state"])
    if state not in RUN_TERMINAL or not selection.included:
        return None
    if any(one.becomes == TaskState.NONE for one in selection.included):
        return RunState.QUEUED, "It is queued again, since tasks of it are looked at again."
    if seen.mark is not None:
        return None  # a person said how it ended
    becomes = {one.id: one.becomes for one in selection.included}
    instances = [
        run_outcome.InstanceState(
            task_id=row["task_id"],
            map_index=row["map_index"],
            state=TaskState(becomes.get(row["id"]) or row["state"]),
        )
        for row in seen.rows.values()
    ]
    if any(one.state not in TASK_TERMINAL for one in instances):
        return None
    decision = run_outcome.decide_run(
        upstream=seen.upstream,
        trigger_rules={task.task_id: task.trigger_rule for task in seen.definition.tasks},
        instances=instances,
        ties=ties_of(seen.definition),
        # The run had ended: no group of it is tried again by itself.
        given_up=[group.group_id for group in seen.definition.groups if group.retry is not None],
    )
    if decision.state is state:
        return None
    return decision.state, f"By what its tasks are now it ended as {decision.state}."


def _mark(seen: _Seen, selection: rules.Selection, by: moves.Mark) -> dict[int, bool]:
    """By id, whether each that moved runs still."""
    wanted = [one for one in selection.included if one.becomes != TaskState.NONE]
    moved = moves.mark_by_hand(
        connection.connection,
        marks=[(one.id, one.state, str(one.becomes)) for one in wanted],
        by=by,
    )
    if by.callbacks:
        states: dict[int | None, str] = {
            one.id: str(one.becomes) for one in wanted if one.id in moved
        }
        moves.issue_callbacks(
            connection.connection,
            run_id=seen.run["id"],
            calls={
                one.id: calling.due(task.callbacks, TaskState(str(one.becomes)))
                for one in wanted
                if one.id in moved and (task := seen.task(one.task_id)) is not None
            },
            states=states,
            queue="default",
            by=by,
        )
    return moved


def _call_for_run(seen: _Seen, target: RunState, by: moves.Mark) -> None:
    tasks = seen.definition.tasks
    moves.issue_callbacks(
        connection.connection,
        run_id=seen.run["id"],
        calls={None: calling.due(seen.definition.callbacks, target)},
        states={None: target.value},
        queue=tasks[0].queue if tasks else "default",
        by=by,
    )


def _let_go(seen: _Seen, selection: rules.Selection, by: moves.Mark) -> None:
    """What had been given up is looked at again, in its run, which is open again."""
    wanted = [one for one in selection.included if one.becomes == TaskState.NONE]
    if not wanted:
        return
    clear = clears.Clear(id=by.id, actor=by.actor, reason=by.reason, new_run_attempt=None)
    clears.clear_task_instances(
        connection.connection,
        cleared=[
            clears.Cleared(
                ti_id=one.id,
                state=one.state,
                attempt_id=seen.rows[one.id]["attempt_id"],
                task=seen.task(one.task_id) or TaskDefinition(task_id=one.task_id),
            )
            for one in wanted
        ],
        by=clear,
    )
    clears.reopen_run(connection.connection, run_id=seen.run["id"], by=clear)


def _note(run_id: int, asked: _Asked) -> None:
    if asked.note is not None:
        clears.note_run(connection.connection, run_id=run_id, note=asked.note)


def _audit(
    seen: _Seen,
    selection: rules.Selection,
    moved: Mapping[int, bool],
    asked: _Asked,
    *,
    kind: str,
    object_id: int,
    state: str,
) -> None:
    after = Run.objects.get(pk=seen.run["id"])
    becomes = {
        one.id: "stopping" if moved.get(one.id) else str(one.becomes) for one in selection.included
    }
    record_audit(
        connection.connection,
        actor=asked.actor,
        action="mark",
        object_kind=kind,
        object_id=str(object_id),
        flow_id=seen.run["flow_id"],
        reason=asked.reason,
        before={
            "run_state": seen.run["state"],
            **_told({one.id: one.state for one in selection.included}),
        },
        after={
            "marked": state,
            "run_state": after.state,
            "callbacks": asked.callbacks,
            **_told(becomes),
        },
    )


def _told(states: Mapping[int, str]) -> dict[str, Any]:
    told: dict[str, Any] = {"by_state": dict(Counter(states.values()))}
    if len(states) <= AUDITED_MAX:
        told["task_instances"] = {str(ti_id): state for ti_id, state in states.items()}
    return told


def _tell(run_id: int, moved: Mapping[int, bool]) -> None:
    topics = ["runs", "home", f"run:{run_id}", *(f"ti:{i}" for i in list(moved)[:AUDITED_MAX])]
    transaction.on_commit(lambda: _notices.both(runs=[run_id], topics=topics))


def _told_run(run: Mapping[str, Any], becomes: RunState, effect: str) -> MarkedRun:
    return MarkedRun(
        id=run["id"],
        flow_id=run["flow_id"],
        run_key=run["run_key"],
        state=run["state"],
        becomes=becomes.value,
        effect=effect,
    )


def _subjects(run_id: int, found: Sequence[rules.Choice]) -> tuple[Subject, ...]:
    return tuple(Subject(run_id=run_id, **asdict(one)) for one in found)


def _told_in_full(run_id: int, found: Sequence[rules.Choice]) -> tuple[Subject, ...]:
    """The same with what becomes of the runs that they triggered."""
    well = [one.id for one in found if one.becomes == TaskState.SUCCESS]
    others = [one.id for one in found if one.becomes != TaskState.SUCCESS]
    triggered = {**what_becomes(well, succeed=True), **what_becomes(others)}
    return _subjects(
        run_id,
        [
            replace(one, effect=f"{one.effect} {triggered[one.id]}") if one.id in triggered else one
            for one in found
        ],
    )
