"""What a run's task instances may do now, and how the run ends: one pure function of their states."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from scheduler_app.rules import graph, mapping, readiness
from scheduler_app.rules import ties as ties_module
from scheduler_app.rules.definition import TriggerRule
from scheduler_app.rules.picking import Picking, worse
from scheduler_app.rules.readiness import Decision, UpstreamCounts
from scheduler_app.rules.states import RunState, TaskState
from scheduler_app.rules.ties import Ties, UnitState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from scheduler_app.rules.mapping import MappedTask
    from scheduler_app.rules.ties import Unit

Key = tuple[str, int]  # task id, map index

SUCCESS: Final = "success"
TASK_FAILURE: Final = "task_failure"
ALL_TASKS_DEADLOCKED: Final = "all_tasks_deadlocked"

NAMED_MAX: Final = 3  # task ids in a reason
NAME_CHARACTERS_MAX: Final = 50  # of each; a reason fits into 250 characters


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceState:
    """One task instance of the run as it is now."""

    task_id: str
    map_index: int
    state: TaskState
    held: bool = False  # by a freeze: nothing follows for it, or from it, before the thaw


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDecision:
    """What follows from the states of a run's task instances."""

    state: RunState  # running while anything is unfinished once ``marks`` are written
    code: str  # success, task_failure, all_tasks_deadlocked; empty while running
    reason: str  # the same as a sentence; empty while running
    marks: dict[Key, TaskState] = field(default_factory=dict)  # terminal states to write now
    ready: frozenset[Key] = frozenset()  # in ``none``, and their rule lets them start
    # Mapped tasks whose summary may be expanded, once the length is known; upstream first.
    expandable: tuple[str, ...] = ()
    deciding_tasks: tuple[str, ...] = ()  # leaves: their instances decide the outcome
    units: dict[str, UnitState] = field(default_factory=dict)  # of transactional groups


def decide_run(
    *,
    upstream: Mapping[str, Collection[str]],
    trigger_rules: Mapping[str, str],
    instances: Sequence[InstanceState],
    ties: Ties = ties_module.NONE,
    choices: Mapping[Key, object] | None = None,
    given_up: Collection[str] = (),
    mapped: Mapping[str, MappedTask] = mapping.NO_MAPPING,
) -> RunDecision:
    """Marks, ready instances and the outcome, in one walk along the graph.

    ``upstream`` and ``trigger_rules`` are the definition's, a rule that is not named being
    ``all_success``; they are walked in their own order when that is topological, as a stored
    definition's is. Only instances in ``none`` are ever marked or ready: what was let go once, is
    queued, runs, waits or is held is left alone. Marks cascade: a task sees what its upstream is marked as
    in the same walk. Asked again with the marks written, the same decision comes without marks.

    ``ties`` are the definition's too. ``choices`` holds what the instances of tasks that pick have
    picked; one that is not in it bars nobody. ``given_up`` names the transactional groups that are not
    tried again: one with a failed task that is not in it keeps the run running until that is decided.

    ``mapped`` holds the tasks that are expanded. Of one that has not been, the summary is never ready:
    where its rule lets it start, or its group has been expanded above it, it is ``expandable``.

    Raises ``DefinitionError`` when tasks wait for each other.
    """
    board = _Board(upstream, instances, ties, given_up, mapped, choices or {})
    walked = _walk(board, trigger_rules)
    deciding = _deciding_tasks(board, ties.beside)
    units = {group_id: board.unit_state(unit) for group_id, unit in ties.units.items()}
    board.is_open_to_question = UnitState.FAILED in units.values()
    stuck = board.undecided_keys()
    goes_on = bool(walked.ready or walked.expandable) or board.is_anything_under_way()
    if stuck and not goes_on:
        marks = {**walked.marks, **dict.fromkeys(stuck, TaskState.UPSTREAM_FAILED)}
        return RunDecision(
            state=RunState.FAILED,
            code=ALL_TASKS_DEADLOCKED,
            reason=f"Nothing can start or end any more: {_named(k[0] for k in stuck)} would wait"
            " for ever.",
            marks=marks,
            deciding_tasks=deciding,
            units=units,
        )
    if stuck or goes_on:
        return RunDecision(
            state=RunState.RUNNING,
            code="",
            reason="",
            marks=walked.marks,
            ready=walked.ready,
            expandable=tuple(walked.expandable),
            deciding_tasks=deciding,
            units=units,
        )
    # The last work before a teardown that can fail the run decides too: it is not forgiven.
    last_work = _deciding_tasks(board, ties.beside | ties.teardowns) if ties.teardowns else ()
    bad = [one for one in dict.fromkeys((*deciding, *last_work)) if board.is_bad(one)]
    return RunDecision(
        state=RunState.FAILED if bad else RunState.SUCCESS,
        code=TASK_FAILURE if bad else SUCCESS,
        reason=_failure(board, bad) if bad else "Every task that decides the run ended well.",
        marks=walked.marks,
        deciding_tasks=deciding,
        units=units,
    )


def _failure(board: _Board, bad: Sequence[str]) -> str:
    """Which tasks failed by themselves; the deciding ones may only have been given up behind them."""
    causes = [task_id for task_id in board.tallies if board.has_failed(task_id)]
    if not causes:
        return f"{_named(bad)} could not run."
    return f"{_named(causes)} failed."


@dataclass(slots=True)
class _Walked:
    marks: dict[Key, TaskState] = field(default_factory=dict)
    ready: frozenset[Key] = frozenset()
    expandable: list[str] = field(default_factory=list)


_TOTAL: Final = 0  # places of a tally: [total, success, failed, skipped, upstream_failed, removed]
_PLACES: Final = {
    TaskState.SUCCESS: 1,
    TaskState.FAILED: 2,
    TaskState.SKIPPED: 3,
    TaskState.UPSTREAM_FAILED: 4,
    TaskState.REMOVED: 5,
}
_MARKS: Final = {
    Decision.SKIP: TaskState.SKIPPED,
    Decision.UPSTREAM_FAILED: TaskState.UPSTREAM_FAILED,
}
# A task that has no instance in this run will never end: whoever waits for it must not start.
_ABSENT: Final = (1, 0, 0, 0, 0, 0)


class _Board:
    """The instances of a run counted by task, kept up to date as marks are made."""

    def __init__(
        self,
        upstream: Mapping[str, Collection[str]],
        instances: Sequence[InstanceState],
        ties: Ties,
        given_up: Collection[str],
        mapped: Mapping[str, MappedTask],
        choices: Mapping[Key, object],
    ) -> None:
        self.mapped = mapped
        self.choices = choices
        # By task, the states of those instances that others look at one by one: of inputs of mapped tasks,
        # of members of mapped groups, and of tasks that pick.
        self.looked_at: dict[str, dict[int, TaskState]] = {
            task_id: {}
            for one in mapped.values()
            for task_id in (*one.inputs, *one.siblings, *([one.task_id] if one.group else ()))
        }
        self.looked_at |= {picker: {} for picker in ties.pickers}
        self._picking = Picking(ties, upstream)
        self._by_any: dict[
            str, Decision
        ] = {}  # by task: what those outside its mapped group picked
        self.ties = ties
        self.given_up = frozenset(given_up)
        self.is_open_to_question = False  # whether a transactional group may be tried again
        self.upstream = upstream
        self.tallies: dict[str, list[int]] = {}
        self.undecided: dict[str, list[int]] = {}  # task -> map indexes of instances in none
        self.strangers: list[Key] = []  # in none, their task is not in the definition
        self._under_way = 0
        none, looked_at = TaskState.NONE, self.looked_at
        for one in instances:
            task_id, state = one.task_id, one.state
            tally = self.tallies.get(task_id)
            if tally is None:
                tally = self.tallies[task_id] = [0, 0, 0, 0, 0, 0]
            tally[_TOTAL] += 1
            if task_id in looked_at:
                looked_at[task_id][one.map_index] = none if one.held else state
            if state is none and not one.held:
                if task_id in upstream:
                    self.undecided.setdefault(task_id, []).append(one.map_index)
                else:
                    self.strangers.append((task_id, one.map_index))
            elif not one.held and (place := _PLACES.get(state)):
                tally[place] += 1
            else:
                self._under_way += 1

    def mark(self, task_id: str, state: TaskState) -> list[Key]:
        """Every undecided instance of the task counts as ended in this state; their keys."""
        return self.mark_some(task_id, self.undecided.pop(task_id), state)

    def mark_some(self, task_id: str, indexes: Sequence[int], state: TaskState) -> list[Key]:
        """These instances of the task, which are not undecided any more, count as ended so; their keys."""
        self.tallies[task_id][_PLACES[state]] += len(indexes)
        if task_id in self.looked_at:
            self.looked_at[task_id].update(dict.fromkeys(indexes, state))
        return [(task_id, index) for index in indexes]

    def upstream_counts(self, task_id: str, index: int = mapping.SUMMARY) -> tuple[int, ...]:
        """The tallies of its direct upstream, added up; without the setups of a teardown.

        With ``index`` as the instance of a mapped group with this map index sees them.
        """
        above = self.upstream[task_id]
        if self.ties is not ties_module.NONE or index >= 0:
            own = self.ties.own_setups.get(task_id, ())
            return self.seen(task_id, [one for one in above if one not in own], index)
        return added([self.tallies.get(one, _ABSENT) for one in above])

    def is_expanded(self, task_id: str) -> bool:
        """Whether no summary is left of the task, which is one of those that are looked at."""
        states = self.looked_at[task_id]
        return bool(states) and states.get(mapping.SUMMARY) in (None, TaskState.REMOVED)

    def of_index(self, task_id: str, above: str, index: int) -> Sequence[int]:
        """The tally of a task above, as the instance with this map index sees it: of its own, in its group."""
        own, other = self.mapped.get(task_id), self.mapped.get(above)
        if index < 0 or not own or not other or not own.group or own.group != other.group:
            return self.tallies.get(above, _ABSENT)
        state = self.looked_at[above].get(index)
        if state is None:
            return self.tallies.get(above, _ABSENT)
        tally = [1, 0, 0, 0, 0, 0]
        if place := _PLACES.get(state):
            tally[place] = 1
        return tally

    def seen(
        self, task_id: str, above: Iterable[str], index: int = mapping.SUMMARY
    ) -> tuple[int, ...]:
        """The tallies of these tasks as this one sees them, added up."""
        unit_of = self.ties.unit_of
        own = unit_of.get(task_id)
        tallies = []
        for one in above:
            tally = self.of_index(task_id, one, index)
            unit = unit_of.get(one)
            if unit is not None and unit != own:
                tally = _from_outside(tally, self.unit_state(self.ties.units[unit]))
            tallies.append(tally)
        return added(tallies)

    def unit_state(self, unit: Unit) -> UnitState:
        """What the transactional group is to the tasks outside it."""
        total, success, failed, skipped, upstream_failed, removed = added(
            [self.tallies.get(one, _ABSENT) for one in unit.members]
        )
        has_ended = success + failed + skipped + upstream_failed + removed == total
        is_bad = bool(failed + upstream_failed) and any(
            self._has_bad(one) for one in unit.members if one not in unit.lenient
        )
        if not has_ended:
            return UnitState.FAILING if is_bad else UnitState.PENDING
        if not is_bad:
            return UnitState.SUCCESS
        return UnitState.GIVEN_UP if unit.group_id in self.given_up else UnitState.FAILED

    def picked(self, task_id: str, index: int = mapping.SUMMARY) -> Decision:
        """What the tasks that pick say of the instance, or of all of the task."""
        if task_id not in self.ties.picked_by:
            return Decision.READY
        by_any = self._by_any.get(task_id)
        if by_any is None:
            by_any = self._by_any[task_id] = self._picking.by_any(self, task_id)
        return worse(by_any, self._picking.by_index(self, task_id, index))

    def tally(self, task_id: str, picker: str) -> Sequence[int]:
        """All instances of the task that picks, as this one sees them."""
        return self.seen(task_id, (picker,))

    def states_of(self, picker: str) -> Mapping[int, TaskState]:
        """The same by map index."""
        return self.looked_at[picker]

    def undecided_keys(self) -> list[Key]:
        """Instances in ``none`` that the walk left alone."""
        return [(task_id, index) for task_id, found in self.undecided.items() for index in found]

    def is_anything_under_way(self) -> bool:
        """Whether an instance was let go and has not ended, or is held: then its end counts later."""
        return self._under_way > 0 or self.is_open_to_question

    def is_bad(self, task_id: str) -> bool:
        """Whether an instance of the task failed or was given up, or its transactional group was."""
        unit = self.ties.unit_of.get(task_id)
        if unit is not None and self.unit_state(self.ties.units[unit]) is UnitState.GIVEN_UP:
            return True
        return self._has_bad(task_id)

    def _has_bad(self, task_id: str) -> bool:
        tally = self.tallies.get(task_id, _ABSENT)
        return bool(tally[_PLACES[TaskState.FAILED]] or tally[_PLACES[TaskState.UPSTREAM_FAILED]])

    def has_failed(self, task_id: str) -> bool:
        """Whether an instance of the task failed by itself."""
        return bool(self.tallies[task_id][_PLACES[TaskState.FAILED]])

    def is_gone(self, task_id: str) -> bool:
        """Whether nothing of the task is left in this run that could decide anything."""
        tally = self.tallies.get(task_id)
        return tally is None or tally[_TOTAL] == tally[_PLACES[TaskState.REMOVED]]


def _from_outside(tally: Sequence[int], state: UnitState) -> Sequence[int]:
    """How often a task of a transactional group ended in which way, for whoever is outside it."""
    if state is UnitState.SUCCESS:
        return tally
    total, success, failed, skipped, upstream_failed, removed = tally
    if state is UnitState.GIVEN_UP:  # what succeeded in it does not count
        return (total, 0, failed, skipped, upstream_failed + success, removed)
    return (max(total, 1), 0, 0, 0, 0, 0)


def _have_ended(tally: Sequence[int]) -> bool:
    total, *ended = tally
    return sum(ended) == total


def added(tallies: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Tallies added up."""
    if len(tallies) == 1:
        return tuple(tallies[0])
    return tuple(map(sum, zip(*tallies, strict=True))) or (0,) * 6


def _walk(board: _Board, trigger_rules: Mapping[str, str]) -> _Walked:
    """Every undecided task is marked, ready, or left undecided, upstream first."""
    walked = _Walked(marks=dict.fromkeys(board.strangers, TaskState.REMOVED))
    if not board.undecided:
        return walked
    ready: list[Key] = []
    decided: dict[tuple[str, tuple[int, ...]], Decision] = {}
    is_plain = board.ties is ties_module.NONE
    for task_id in board.ties.order or _in_order(board.upstream):
        if task_id not in board.undecided:
            continue
        rule = trigger_rules.get(task_id, TriggerRule.ALL_SUCCESS)
        if rule not in readiness.KNOWN_RULES:
            continue  # of a newer version: nothing here can say when it may start
        if board.mapped and task_id in board.mapped:
            _walk_mapped(board, walked, ready, task_id, rule)
            continue
        asked = (rule, board.upstream_counts(task_id))
        decision = decided.get(asked) if is_plain else _tied(board, task_id, asked)
        if decision is None:
            decision = decided[asked] = readiness.decide(rule, as_counts(asked[1]))
        if decision is Decision.READY:
            ready.extend((task_id, index) for index in board.undecided.pop(task_id))
        elif decision is not Decision.WAIT:
            state = _MARKS[decision]
            walked.marks.update(dict.fromkeys(board.mark(task_id, state), state))
    walked.ready = frozenset(ready)
    return walked


def _walk_mapped(
    board: _Board,
    walked: _Walked,
    ready: list[Key],
    task_id: str,
    rule: str,
) -> None:
    """The undecided instances of a mapped task are marked, ready, expandable or left undecided."""
    own = board.mapped[task_id]
    if mapping.SUMMARY in board.undecided[task_id] and not _walk_summary(board, walked, own, rule):
        return
    indexes = [i for i in board.undecided[task_id] if i != mapping.SUMMARY]
    if not indexes:
        return
    if _looks_at_own_index(board, own):
        by_decision = _by_own_index(board, own, indexes, rule)
    else:
        counts = board.upstream_counts(task_id)
        by_decision = {_tied(board, task_id, (rule, counts)): indexes}
    waiting = by_decision.pop(Decision.WAIT, [])
    left = [i for i in board.undecided[task_id] if i == mapping.SUMMARY] + waiting
    board.undecided[task_id] = left
    if not left:
        del board.undecided[task_id]
    ready.extend((task_id, index) for index in by_decision.pop(Decision.READY, ()))
    for decision, found in by_decision.items():
        state = _MARKS[decision]
        walked.marks.update(dict.fromkeys(board.mark_some(task_id, found, state), state))


def _looks_at_own_index(board: _Board, own: MappedTask) -> bool:
    ties = board.ties
    above = (
        *own.siblings,
        *ties.scopes.get(own.task_id, ()),
        *ties.setups.get(own.task_id, ()),
        *ties.own_setups.get(own.task_id, ()),
        *ties.picked_by_index.get(own.task_id, ()),
    )
    return bool(own.group) and any(
        one in board.mapped and board.mapped[one].group == own.group for one in above
    )


def _by_own_index(
    board: _Board,
    own: MappedTask,
    indexes: Sequence[int],
    rule: str,
) -> dict[Decision, list[int]]:
    """The decision on each instance of a mapped group, by what is above it at its own index."""
    ties, task_id = board.ties, own.task_id
    is_plain = not any(task_id in of for of in (ties.setups, ties.own_setups, ties.scopes))
    is_picked = task_id in ties.picked_by
    known: dict[tuple[int, ...], Decision] = {}  # by counts, where nothing else plays a part
    found: dict[Decision, list[int]] = {}
    for index in indexes:
        decision = board.picked(task_id, index) if is_picked else Decision.READY
        if decision is Decision.READY:
            counts = board.upstream_counts(task_id, index)
            ruled = known.get(counts) if is_plain else None
            if ruled is None:
                ruled = known[counts] = _ruled(board, task_id, (rule, counts), index)
            decision = ruled
        found.setdefault(decision, []).append(index)
    return found


def _walk_summary(board: _Board, walked: _Walked, own: MappedTask, rule: str) -> bool:
    """The summary is decided; whether the other instances of the task are still to be asked about."""
    task_id = own.task_id
    gate = mapping.gate(
        [
            state
            for one in own.inputs
            if (state := board.looked_at[one].get(mapping.SUMMARY)) is not None
        ]
    )
    if gate is mapping.Gate.BLOCK:
        return False
    if gate is not mapping.Gate.PASS:
        decision = Decision.SKIP if gate is mapping.Gate.SKIP else Decision.UPSTREAM_FAILED
    elif own.siblings and all(
        board.is_expanded(one) or one in walked.expandable for one in own.siblings
    ):
        # Each instance follows its own index: what others of the group came to says nothing of it.
        decision = Decision.READY
    else:
        decision = _tied(board, task_id, (rule, board.upstream_counts(task_id)))
    if decision is Decision.READY:
        walked.expandable.append(task_id)
        return True
    if decision is Decision.WAIT:
        return True
    state = _MARKS[decision]
    walked.marks.update(dict.fromkeys(board.mark(task_id, state), state))
    return False


def _tied(
    board: _Board,
    task_id: str,
    asked: tuple[str, tuple[int, ...]],
    index: int = mapping.SUMMARY,
) -> Decision:
    """What picks, setups, the trigger rule and the scope of a teardown say, in that order."""
    picked = board.picked(task_id, index)
    return picked if picked is not Decision.READY else _ruled(board, task_id, asked, index)


def _ruled(
    board: _Board,
    task_id: str,
    asked: tuple[str, tuple[int, ...]],
    index: int = mapping.SUMMARY,
) -> Decision:
    rule, counts = asked
    return ruled(board.ties, task_id, rule, counts, lambda above: board.seen(task_id, above, index))


def ruled(
    ties: Ties,
    task_id: str,
    rule: str,
    counts: Sequence[int],
    seen: Callable[[Collection[str]], Sequence[int]],
) -> Decision:
    """What setups, the trigger rule and the scope of a teardown say.

    ``counts`` are those of its direct upstream, without the setups of a teardown; ``seen`` gives the same of
    any tasks.
    """
    if rule != TriggerRule.ALWAYS and (above := ties.setups.get(task_id)):
        decision = readiness.decide_setups(as_counts(seen(above)))
        if decision is not Decision.READY:
            return decision
    setups = ties.own_setups.get(task_id, ())
    decision = readiness.decide(rule, as_counts(counts), as_counts(seen(setups)))
    scope = ties.scopes.get(task_id, ())
    if decision is Decision.READY and scope and not _have_ended(seen(scope)):
        return Decision.WAIT
    return decision


def _in_order(upstream: Mapping[str, Collection[str]]) -> Iterable[str]:
    """The tasks, upstream first: in the order they come in where that is one."""
    seen: set[str] = set()
    for task_id, above in upstream.items():
        if not seen.issuperset(above):
            return graph.topological_order(upstream)
        seen.add(task_id)
    return upstream


def as_counts(tally: Sequence[int]) -> UpstreamCounts:
    """The tally as trigger rules read it."""
    total, success, failed, skipped, upstream_failed, removed = tally
    return UpstreamCounts(
        total=total,
        success=success,
        failed=failed,
        skipped=skipped,
        upstream_failed=upstream_failed,
        removed=removed,
    )


def _deciding_tasks(board: _Board, beside: Collection[str]) -> tuple[str, ...]:
    """The leaves of the graph without teardowns and compensations; with those alone, theirs.

    Where a leaf is removed, so that nothing of it can decide, the last tasks before it decide too:
    a failure must not be forgotten because what came after it left the definition.
    """
    work = {t: above for t, above in board.upstream.items() if t not in beside} or board.upstream
    deciding = graph.leaves(work)
    if any(board.is_gone(task_id) for task_id in work):
        left = {t: above for t, above in work.items() if not board.is_gone(t)}
        deciding |= graph.leaves(left)
    return tuple(sorted(deciding))


def _named(task_ids: Iterable[str]) -> str:
    """The first few ids, clipped, and how many more there are."""
    ids = list(dict.fromkeys(task_ids))
    shown = [
        i if len(i) <= NAME_CHARACTERS_MAX else f"{i[: NAME_CHARACTERS_MAX - 1]}…"
        for i in ids[:NAMED_MAX]
    ]
    more = len(ids) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
