"""Transactional groups in a tick: begun, ended, waiting for their next attempt, begun anew, given up."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from scheduler_app.rules import callbacks, group_retry
from scheduler_app.rules.group_retry import Act, Cause, GroupAttemptFacts, GroupState
from scheduler_app.rules.states import TaskState
from scheduler_app.rules.ties import Unit, UnitState
from scheduler_app.transitions import group_attempt as moves
from scheduler_app.transitions.callback import GroupCallbacks, NewCallbacks, issue_for_groups
from scheduler_app.transitions.clear import Cleared, NewGroupAttempt, clear_task_instances

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    import psycopg

    from scheduler_app.rules.group_retry import GroupDecision
    from scheduler_app.rules.run_outcome import RunDecision
    from scheduler_app.scheduler.run_views import RunView

NAMED_MAX = 3
_UNTOUCHED = frozenset({TaskState.NONE, TaskState.REMOVED, TaskState.RESTARTING})
_BAD = frozenset({TaskState.FAILED, TaskState.UPSTREAM_FAILED})


@dataclass(slots=True, kw_only=True)
class Taken:
    """What the step did and what it asks for."""

    withheld: set[int] = field(default_factory=set)  # task instances that must not be let go now
    again: set[int] = field(default_factory=set)  # look at these runs at the next tick
    moved_runs: set[int] = field(default_factory=set)
    retry_in_s: dict[int, float] = field(default_factory=dict)  # run -> seconds
    has_callbacks: bool = False  # some were issued: to be published


@dataclass(slots=True, kw_only=True)
class _Group:
    """One transactional group of one run, as the tick sees it."""

    view: RunView
    unit: Unit
    state: UnitState
    states: Mapping[int, TaskState]  # of its task instances, with the marks of this tick
    has_begun: bool
    attempt: GroupAttemptFacts | None
    barred: str = ""

    @property
    def key(self) -> tuple[int, str]:
        return (self.view.run_id, self.unit.group_id)

    def named(self, *wanted: TaskState) -> list[str]:
        """The tasks with an instance in one of these states."""
        found = [self.view.instances[i].task_id for i, s in self.states.items() if s in wanted]
        return list(dict.fromkeys(found))

    def failure(self) -> str:
        """Which of its tasks failed, as a sentence."""
        failed = self.named(TaskState.FAILED) or self.named(TaskState.UPSTREAM_FAILED)
        more = len(failed) - NAMED_MAX
        return (
            ", ".join(failed[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "") + " failed."
        )


def given_up(view: RunView) -> frozenset[str]:
    """The groups of the run that are not tried again, as last read."""
    return frozenset(
        group_id for group_id, one in view.groups.items() if one.state == GroupState.FAILED
    )


def read(connection: psycopg.Connection[Any], views: Sequence[RunView]) -> None:
    """Each view of a flow with transactional groups knows their current attempts."""
    by_run = {view.run_id: view for view in views if view.version.ties.units}
    if not by_run:
        return
    for view in by_run.values():
        view.groups = {}
    for row in moves.current(connection, run_ids=list(by_run)):
        by_run[row.run_id].groups[row.group_id] = GroupAttemptFacts(
            number=row.number,
            budget_start=row.budget_start,
            state=row.state,
            retry_at=row.retry_at,
        )


def take_step(
    connection: psycopg.Connection[Any],
    *,
    decided: Sequence[tuple[RunView, RunDecision]],
    now: datetime,
) -> Taken:
    """What follows for each transactional group of these runs is written.

    The caller holds the runs and has written the marks. Asked again, nothing is written twice.
    """
    taken = Taken()
    if not decided:
        return taken
    found = [
        _group(view, unit, decision)
        for view, decision in decided
        for unit in view.version.ties.units.values()
    ]
    _bar(connection, found)
    asked = found
    # Begun and ended in one tick: at most begin, then how it ended, then nothing more.
    for _ in range(3):
        decisions = [(one, _decide(one, now)) for one in asked]
        _write(connection, decisions, taken)
        asked = [one for one, decision in decisions if decision.act is Act.BEGIN]
        if not asked:
            break
    for one in found:
        if _withholds(one):
            taken.withheld.update(one.states)
    return taken


def _group(view: RunView, unit: Unit, decision: RunDecision) -> _Group:
    members = frozenset(unit.members)
    states = {
        ti_id: decision.marks.get((one.task_id, one.map_index), one.state)
        for ti_id, one in view.instances.items()
        if one.task_id in members
    }
    lets_go = any(task_id in members for task_id, _ in decision.ready)
    return _Group(
        view=view,
        unit=unit,
        state=decision.units[unit.group_id],
        states=states,
        has_begun=lets_go or any(state is not TaskState.NONE for state in states.values()),
        attempt=view.groups.get(unit.group_id),
        barred=_useless(view, unit, states),
    )


def _useless(view: RunView, unit: Unit, states: Mapping[int, TaskState]) -> str:
    """Why another attempt would come to the same, if one would: what the group waits for failed."""
    members = frozenset(unit.members)
    given_up = {view.instances[i].task_id for i, s in states.items() if s == "upstream_failed"}
    outside = {
        above
        for task_id in given_up
        for above in view.version.upstream[task_id]
        if above not in members
    }
    bad = {one.task_id for one in view.instances.values() if one.state in _BAD}
    if outside & bad or (given_up and TaskState.FAILED not in states.values()):
        return "What it waits for failed."
    return ""


def _bar(connection: psycopg.Connection[Any], found: Sequence[_Group]) -> None:
    """What a person made fail is not tried again: groups that this is true of are barred."""
    for one in found:
        is_asked = one.state in (UnitState.FAILED, UnitState.FAILING)
        if one.barred or not is_asked or (one.attempt and one.attempt.state == GroupState.FAILED):
            continue
        for member in moves.lock_members(
            connection, run_id=one.view.run_id, task_ids=one.unit.members
        ):
            if member.state == TaskState.FAILED and (member.marked_by or member.stop_reason):
                one.barred = (
                    f"{member.marked_by} marked {member.task_id} failed."
                    if member.marked_by
                    else f"{member.task_id} was asked to end: {member.stop_reason}"
                )
            elif member.held_by is not None:
                one.state = UnitState.PENDING  # what a freeze holds is not decided about


def _decide(one: _Group, now: datetime) -> GroupDecision:
    return group_retry.decide(
        unit=one.state,
        has_begun=one.has_begun,
        attempt=one.attempt,
        retry=one.unit.retry,
        failure=one.failure(),
        barred=one.barred,
        now=now,
    )


def _withholds(one: _Group) -> bool:
    """Whether nothing of the group may start: it is about to be begun anew."""
    if one.attempt is None or one.state not in (UnitState.FAILING, UnitState.FAILED):
        return False
    return one.attempt.state == GroupState.UP_FOR_RETRY


def _write(
    connection: psycopg.Connection[Any],
    decisions: Sequence[tuple[_Group, GroupDecision]],
    taken: Taken,
) -> None:
    begins, states, called = [], [], []
    for one, decision in decisions:
        run_id, group_id = one.key
        called += _calls(one, decision)
        if decision.in_s is not None:
            taken.retry_in_s[run_id] = min(
                decision.in_s, taken.retry_in_s.get(run_id, decision.in_s)
            )
        match decision.act:
            case Act.NOTHING:
                continue
            case Act.RETRY:
                _begin_anew(connection, one, decision)
                taken.withheld.update(one.states)
        if decision.act in (Act.BEGIN, Act.RETRY):
            one.attempt = _next(one.attempt, decision.cause)
            begins.append(
                moves.Begin(
                    run_id=run_id,
                    group_id=group_id,
                    number=one.attempt.number,
                    budget_start=one.attempt.budget_start,
                    cause=decision.cause,
                )
            )
        else:
            assert one.attempt is not None
            state = _STATES[decision.act]
            one.attempt = replace(one.attempt, state=state, retry_at=decision.retry_at)
            states.append(
                moves.Set(
                    run_id=run_id,
                    group_id=group_id,
                    number=one.attempt.number,
                    state=state,
                    reason=decision.reason,
                    retry_at=decision.retry_at,
                )
            )
        if decision.act in (Act.RETRY, Act.GIVE_UP, Act.SUCCEED):
            taken.again.add(run_id)
        taken.moved_runs.add(run_id)
    moves.begin(connection, attempts=begins)
    moves.write(connection, states=states)
    issue_for_groups(connection, moved=called)
    taken.has_callbacks |= bool(called)


def _calls(one: _Group, decision: GroupDecision) -> list[GroupCallbacks]:
    """What the move of the group's attempt calls for; asked before the move is known to the group.

    Nothing, if it follows from what a person did, or from what it waits for, which has said so.
    """
    before = one.attempt
    of_group = one.view.version.group_callbacks.get(one.unit.group_id)
    if before is None or not of_group:
        return []
    by_hand = before.state == (
        GroupState.FAILED if decision.act is Act.SUCCEED else GroupState.SUCCESS
    )
    if by_hand or (decision.act is Act.GIVE_UP and one.barred):
        return []
    state = _STATES.get(decision.act)
    if decision.act is Act.RETRY and before.state != GroupState.UP_FOR_RETRY:
        state = GroupState.UP_FOR_RETRY  # without a time of waiting, which would have said so
    due = () if state is None else callbacks.due(of_group, state)
    if state is None or not due:
        return []
    return [
        GroupCallbacks(
            run_id=one.view.run_id,
            group_id=one.unit.group_id,
            number=before.number,
            token=one.view.token,
            queue=one.view.version.queue,
            new=NewCallbacks.of(due, state=state, reason=decision.reason or None),
        )
    ]


_STATES = {
    Act.WAIT: GroupState.UP_FOR_RETRY,
    Act.SUCCEED: GroupState.SUCCESS,
    Act.GIVE_UP: GroupState.FAILED,
}


def _next(before: GroupAttemptFacts | None, cause: Cause) -> GroupAttemptFacts:
    if before is None:
        return GroupAttemptFacts(number=1, budget_start=0, state=GroupState.RUNNING)
    return GroupAttemptFacts(
        number=before.number + 1,
        budget_start=before.number if cause is Cause.CLEAR else before.budget_start,
        state=GroupState.RUNNING,
    )


def _begin_anew(connection: psycopg.Connection[Any], one: _Group, decision: GroupDecision) -> None:
    """Every task instance of the group is none again, or will be when its process has stopped."""
    before = one.attempt
    assert before is not None
    tasks = {task.task_id: task for task in one.view.version.definition.tasks}
    locked = moves.lock_members(connection, run_id=one.view.run_id, task_ids=one.unit.members)
    clear_task_instances(
        connection,
        cleared=[
            Cleared(
                ti_id=member.id,
                state=member.state,
                attempt_id=member.attempt_id,
                task=tasks[member.task_id],
            )
            for member in locked
            if member.state not in _UNTOUCHED
        ],
        by=NewGroupAttempt(
            group_id=one.unit.group_id,
            number=before.number + 1,
            told=replace(before, number=before.number + 1).told(one.unit.retry),
            reason=decision.reason,
        ),
    )
