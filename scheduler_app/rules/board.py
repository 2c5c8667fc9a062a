"""The readiness of a run kept in counters: a change costs what hangs on it, whatever the run's size.

``run_outcome.decide_run`` looks at every instance; it is the law. A board comes to the same decisions
by looking only at what changed since the last one. Mapped tasks are on it, before and while they are
expanded too; in mapped groups index by index. So are tasks that pick, setups and teardowns; groups that
are one unit are not.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.rules import graph, mapping, readiness, run_outcome
from scheduler_app.rules import ties as ties_module
from scheduler_app.rules.definition import TriggerRule
from scheduler_app.rules.picking import Picking, worse
from scheduler_app.rules.readiness import Decision
from scheduler_app.rules.run_outcome import InstanceState, Key, RunDecision
from scheduler_app.rules.states import RunState, TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence

    from scheduler_app.rules.mapping import MappedTask
    from scheduler_app.rules.ties import Ties

LINE_MAX: Final = 250  # instances of one line that are looked at; others when these have gone

_TOTAL: Final = 0  # places of a tally, as in run_outcome
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
_GATED: Final = {
    mapping.Gate.PASS: None,
    mapping.Gate.BLOCK: Decision.WAIT,
    mapping.Gate.SKIP: Decision.SKIP,
    mapping.Gate.UPSTREAM_FAILED: Decision.UPSTREAM_FAILED,
}


class Graph:
    """What every run of one version of a flow has in common. Raises ``DefinitionError`` for a circle."""

    def __init__(
        self,
        *,
        upstream: Mapping[str, tuple[str, ...]],
        trigger_rules: Mapping[str, str],
        priorities: Mapping[str, int] | None = None,
        lines: Mapping[str, Hashable] | None = None,
        mapped: Mapping[str, MappedTask] = mapping.NO_MAPPING,
        ties: Ties = ties_module.NONE,
    ) -> None:
        """``lines``: tasks whose instances wait for the same room, so that the most urgent will do.

        A task that is not in it stands in a line of its own, where one that waits says nothing of the next.
        """
        self.upstream = upstream
        self.trigger_rules = trigger_rules
        self.mapped = mapped
        self.priorities = priorities or {}
        self.lines = {task_id: (lines or {}).get(task_id, task_id) for task_id in upstream}
        self.alike = frozenset(lines or ())  # of which one instance is as good as another
        self.order = graph.topological_order(upstream)
        self.place = {task_id: place for place, task_id in enumerate(self.order)}
        self.downstream = graph.downstream_of(upstream)
        # Where a task stands in its line: the most urgent first, then upstream first.
        self.rank = {
            task_id: (-self.priorities.get(task_id, 0), place)
            for task_id, place in self.place.items()
        }
        assert can_be_held(ties), "a board knows no groups that are one unit"
        self.ties = ties
        self.picking = Picking(ties, upstream)
        # Of those that setups and scopes have a say about: what that is, beyond what is right before them.
        self.tied = {
            task_id: (*ties.setups.get(task_id, ()), *ties.scopes.get(task_id, ()))
            for task_id in upstream
            if task_id in ties.setups or task_id in ties.own_setups or task_id in ties.scopes
        }
        looked_at = {
            task_id: {*above, *self.tied.get(task_id, ()), *ties.picked_by.get(task_id, ())}
            for task_id, above in upstream.items()
        }
        groups = {one.task_id: one.group for one in mapped.values() if one.group}
        together = {
            task_id: frozenset(one for one in looked_at[task_id] if groups.get(one) == group)
            for task_id, group in groups.items()
        }
        # The tasks whose instances look at their own index of others in their mapped group: at what.
        self.at_index = {task_id: others for task_id, others in together.items() if others}
        # What else is right before them: they look at all of it.
        self.beside = {
            task_id: [one for one in upstream[task_id] if one not in others]
            for task_id, others in self.at_index.items()
        }
        self.index_below = _turned(self.at_index)
        self.whole_below = _turned(
            {task_id: looked_at[task_id] - others for task_id, others in self.at_index.items()}
        )
        inputs = {task_id: mapped[task_id].inputs for task_id in self.at_index}
        for task_id, others in inputs.items():
            looked_at[task_id] |= others
        self.below = _turned(looked_at)
        # Those of which others look at more than is counted for what comes right after them.
        self.counted = {
            *self.index_below,
            *self.whole_below,
            *ties.pickers,
            *_turned(inputs),
            *_turned({task_id: looked_at[task_id] for task_id in self.tied}),
        }
        self.noted = self.counted | self.at_index.keys()


def can_be_held(ties: Ties) -> bool:
    """Whether boards come to the right decisions for runs of a flow with these ties."""
    return not ties.units


def _turned(looked_at: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """By task that is looked at, those that do."""
    found: dict[str, list[str]] = {}
    for task_id, others in looked_at.items():
        for one in others:
            found.setdefault(one, []).append(task_id)
    return found


class _Indexes:
    """Map indexes of one task, of which the least are named at a cost of their own number."""

    def __init__(self) -> None:
        self._members: set[int] = set()
        self._line: list[int] = []  # the members in order, with some that have gone
        self._begin = 0  # of the line, below which all have gone

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[int]:
        return iter(self._members)

    def __contains__(self, index: object) -> bool:
        return index in self._members

    def add(self, index: int) -> None:
        """It is one of them."""
        if index in self._members:
            return
        self._members.add(index)
        place = bisect.bisect_left(self._line, index)
        if place == len(self._line) or self._line[place] != index:
            self._line.insert(place, index)
        self._begin = min(self._begin, place)

    def discard(self, index: int) -> None:
        """It is none of them. Its place in the line goes when all before it have gone."""
        self._members.discard(index)
        if not self._members:
            self._line, self._begin = [], 0

    def first(self, number: int) -> list[int]:
        """The least of them in order, no more than ``number``."""
        line, members = self._line, self._members
        while self._begin < len(line) and line[self._begin] not in members:
            self._begin += 1
        if self._begin > len(line) // 2:
            del line[: self._begin]
            self._begin = 0
        rest = itertools.islice(line, self._begin, None)
        return list(itertools.islice((one for one in rest if one in members), number))


class Board:
    """The instances of one run, counted by task as those below see them.

    ``put`` tells of each instance and of each change; ``decide`` takes its own marks for written.
    """

    def __init__(self, of: Graph) -> None:
        self._of = of
        self._known: dict[Key, tuple[TaskState, bool]] = {}
        self._numbers: dict[str, int] = {}  # instances by task
        # Of the direct upstream of each task. A task without an instance counts as one that never
        # ends: whoever waits for it must not start.
        self._above = {
            task_id: [len(set(above)), 0, 0, 0, 0, 0] for task_id, above in of.upstream.items()
        }
        self._undecided: dict[str, _Indexes] = {}  # in ``none`` and not held, without summaries
        self._summaries: set[str] = set()  # mapped tasks whose summary is so
        self._expandable: set[str] = set()  # those of them that may be expanded
        self._strangers: set[Key] = set()  # in ``none``, of no task of the definition
        # By line, the ranks of the tasks whose undecided instances may start, in order.
        self._ready: dict[Hashable, list[tuple[int, int]]] = {}
        self._are_ready: set[str] = set()  # those tasks
        # By line and priority, how many were named before and wait with a note of why.
        self._noted: dict[Hashable, Counter[int]] = {}
        self._under_way = 0
        self._changed = set(of.upstream)  # tasks to be looked at
        # Of tasks that others look at by themselves: a tally, as above; and of those that pick, the states
        # and what they picked.
        self._own = {task_id: [1, 0, 0, 0, 0, 0] for task_id in of.counted}
        self._states: dict[str, dict[int, TaskState]] = {one: {} for one in of.ties.pickers}
        self.choices: dict[Key, object] = {}
        # Of tasks that look at their own index: those indexes to be looked at, whether all are, and
        # which may start.
        self._stale: dict[str, set[int]] = {task_id: set() for task_id in of.at_index}
        self._whole = set(of.at_index)
        self._may_start = {task_id: _Indexes() for task_id in of.at_index}
        # By task, those that look at all of it, since it has not all of their indexes.
        self._watchers: dict[str, set[str]] = {}

    def put(self, task_id: str, map_index: int, state: TaskState, *, held: bool) -> None:
        """The instance is in this state now."""
        key, now = (task_id, map_index), (state, held)
        before = self._known.get(key)
        if before == now:
            return
        if before is None:
            number = self._numbers[task_id] = self._numbers.get(task_id, 0) + 1
            if number > 1:
                self._count(task_id, _TOTAL, 1)
        else:
            self._account(key, before, -1)
        self._known[key] = now
        self._account(key, now, 1)
        self._note(task_id, map_index)

    def pick(self, task_id: str, map_index: int, choice: object) -> None:
        """The instance, which has succeeded, picked this."""
        self.choices[task_id, map_index] = choice
        self._note(task_id, map_index)

    def forget_pick(self, task_id: str, map_index: int) -> None:
        """What the instance may have picked does not count: it was marked by hand."""
        if self.choices.pop((task_id, map_index), None) is not None:
            self._note(task_id, map_index)

    def drop(self, task_id: str, map_index: int) -> None:
        """There is no such instance any more: a summary that became the first of its task's instances."""
        before = self._known.pop((task_id, map_index), None)
        if before is None:
            return
        self._account((task_id, map_index), before, -1)
        self._numbers[task_id] -= 1
        if self._numbers[task_id]:
            self._count(task_id, _TOTAL, -1)
        self._states.get(task_id, {}).pop(map_index, None)
        self._note(task_id, map_index)

    def _note(self, task_id: str, map_index: int) -> None:
        """The instance is not what it was: whatever looks at it is to be looked at."""
        of = self._of
        self._changed.add(task_id)
        if task_id not in of.noted:
            return
        if task_id in self._stale:
            self._stale[task_id].add(map_index)
        for below in of.index_below.get(task_id, ()):
            self._stale[below].add(map_index)
        for below in (*of.whole_below.get(task_id, ()), *self._watchers.pop(task_id, ())):
            self._whole.add(below)
        if task_id in of.counted:
            self._changed.update(of.below.get(task_id, ()))

    def decide(self) -> RunDecision:
        """What follows from the states now, as ``decide_run`` has it.

        Of a line so many are named that, with those that are scheduled already, the ``LINE_MAX`` most urgent
        are known to whoever dispatches.
        """
        marks: dict[Key, TaskState] = dict.fromkeys(self._strangers, TaskState.REMOVED)
        for task_id, map_index in marks:
            self.put(task_id, map_index, TaskState.REMOVED, held=False)
        self._walk(marks)
        if self._are_ready or self._under_way or self._expandable:
            return RunDecision(
                state=RunState.RUNNING,
                code="",
                reason="",
                marks=marks,
                ready=self._named_ready(),
                expandable=tuple(sorted(self._expandable, key=self._of.place.__getitem__)),
            )
        whole = run_outcome.decide_run(
            upstream=self._of.upstream,
            trigger_rules=self._of.trigger_rules,
            instances=[
                InstanceState(task_id=task_id, map_index=map_index, state=state, held=held)
                for (task_id, map_index), (state, held) in self._known.items()
            ],
            mapped=self._of.mapped,
            ties=self._of.ties,
            choices=self.choices,
        )
        return replace(whole, marks={**marks, **whole.marks})

    def _walk(self, marks: dict[Key, TaskState]) -> None:
        """Every task that may be decided differently now is looked at, upstream first."""
        place = self._of.place
        waiting = sorted({place[task_id] for task_id in self._changed if task_id in place})
        seen = set(waiting)
        while waiting:
            task_id = self._of.order[heapq.heappop(waiting)]
            if task_id in self._of.at_index:
                has_moved = self._look_by_index(task_id, marks)
            else:
                has_moved = self._look(task_id, marks)
            for below in self._of.below.get(task_id, ()) if has_moved else ():
                if place[below] not in seen:
                    seen.add(place[below])
                    heapq.heappush(waiting, place[below])
        self._changed.clear()

    def _look(self, task_id: str, marks: dict[Key, TaskState]) -> bool:
        """The task is decided, all instances alike; whether that says something to those below."""
        decision = self._decision(task_id)
        is_ready = decision is Decision.READY
        self._stand_in_line(task_id, whether=is_ready and bool(self._undecided.get(task_id)))
        has_moved = self._expect(task_id, whether=is_ready and task_id in self._summaries)
        if decision in (Decision.READY, Decision.WAIT):
            return has_moved
        self._mark(task_id, self._open_indexes(task_id), _MARKS[decision], marks)
        return True

    def _look_by_index(self, task_id: str, marks: dict[Key, TaskState]) -> bool:
        """As ``_look``, for a task of a mapped group: each of its instances is decided by itself."""
        rule = self._of.trigger_rules.get(task_id, TriggerRule.ALL_SUCCESS)
        if rule not in readiness.KNOWN_RULES:
            return False
        has_moved = False
        if task_id in self._summaries:
            gated = self._gated(task_id)
            decision = self._of_summary(task_id, rule) if gated is None else gated
            has_moved = self._expect(task_id, whether=decision is Decision.READY)
            if decision in _MARKS:
                self._mark(task_id, self._open_indexes(task_id), _MARKS[decision], marks)
                has_moved = True
            elif gated is not None:  # nothing of it is asked about meanwhile
                self._stand_in_line(task_id, whether=False)
                return has_moved
        else:
            has_moved = self._expect(task_id, whether=False)
        undecided: Collection[int] = self._undecided.get(task_id, ())
        stale = [*undecided] if task_id in self._whole else sorted(self._stale[task_id])
        has_moved |= self._decide_some(task_id, rule, stale, marks)
        self._whole.discard(task_id)
        self._stale[task_id].clear()
        self._stand_in_line(task_id, whether=bool(self._may_start[task_id]))
        return has_moved

    def _decide_some(
        self, task_id: str, rule: str, indexes: Iterable[int], marks: dict[Key, TaskState]
    ) -> bool:
        """Those of the instances that are undecided are decided; whether one of them was marked."""
        undecided, may_start = self._undecided.get(task_id), self._may_start[task_id]
        if not undecided:
            return False
        is_tied, siblings = task_id in self._of.tied, self._of.mapped[task_id].siblings
        beside = run_outcome.added([self._own[one] for one in self._of.beside[task_id]])
        by_any = self._of.picking.by_any(self, task_id)
        known: dict[tuple[int, ...], Decision] = {}
        marked: dict[TaskState, list[int]] = {}
        for index in indexes:
            if index not in undecided:
                continue
            decision = worse(by_any, self._picked_at(task_id, index))
            if decision is Decision.READY and is_tied:
                decision = self._ruled(task_id, rule, index)
            elif decision is Decision.READY:
                counts = self._counts_at(task_id, index, beside, siblings)
                ruled = known.get(counts)
                if ruled is None:
                    ruled = known[counts] = readiness.decide(rule, run_outcome.as_counts(counts))
                decision = ruled
            if decision is Decision.READY:
                may_start.add(index)
                continue
            may_start.discard(index)
            if decision in _MARKS:
                marked.setdefault(_MARKS[decision], []).append(index)
        for state, found in marked.items():
            self._mark(task_id, found, state, marks)
        return bool(marked)

    def _mark(
        self,
        task_id: str,
        indexes: Iterable[int],
        state: TaskState,
        marks: dict[Key, TaskState],
    ) -> None:
        for map_index in indexes:
            marks[task_id, map_index] = state
            self.put(task_id, map_index, state, held=False)

    def _expect(self, task_id: str, *, whether: bool) -> bool:
        """Whether the summary may be expanded; whether that is new."""
        if (task_id in self._expandable) is whether:
            return False
        _belongs(self._expandable, task_id, whether)
        return True

    def _of_summary(self, task_id: str, rule: str) -> Decision:
        siblings = self._of.mapped[task_id].siblings
        if siblings and all(self._is_expanded(one) or one in self._expandable for one in siblings):
            # Each instance follows its own index: what others of the group came to says nothing of it.
            return Decision.READY
        picked = self._of.picking.by_any(self, task_id)
        return picked if picked is not Decision.READY else self._ruled(task_id, rule)

    def _ruled(self, task_id: str, rule: str, index: int = mapping.SUMMARY) -> Decision:
        """What setups, the trigger rule and the scope of a teardown say, of one index or of all."""
        of, ties = self._of, self._of.ties
        if task_id not in of.tied:
            return readiness.decide(rule, run_outcome.as_counts(self._above[task_id]))

        def seen(above: Collection[str]) -> tuple[int, ...]:
            if index == mapping.SUMMARY:
                return run_outcome.added([self._own[one] for one in above])
            own = of.at_index[task_id].intersection(above)
            beside = run_outcome.added([self._own[one] for one in above if one not in own])
            return self._counts_at(task_id, index, beside, own)

        own_setups = ties.own_setups.get(task_id, ())
        counts = seen([one for one in of.upstream[task_id] if one not in own_setups])
        return run_outcome.ruled(ties, task_id, rule, counts, seen)

    def _is_expanded(self, task_id: str) -> bool:
        summary = self._known.get((task_id, mapping.SUMMARY))
        has_summary = summary is not None and summary != (TaskState.REMOVED, False)
        return bool(self._numbers.get(task_id)) and not has_summary

    def _picked_at(self, task_id: str, index: int) -> Decision:
        """What those that pick in its mapped group say to the instance."""
        for picker in self._of.ties.picked_by_index.get(task_id, ()):
            if index not in self._states[picker]:
                self._watchers.setdefault(picker, set()).add(task_id)
        return self._of.picking.by_index(self, task_id, index)

    def _counts_at(
        self, task_id: str, index: int, beside: tuple[int, ...], together: Iterable[str]
    ) -> tuple[int, ...]:
        """What the instance sees of its own index of those in its group, and of what is beside them."""
        found = [*beside]
        for one in together:
            known = self._known.get((one, index))
            if known is None:
                self._watchers.setdefault(one, set()).add(task_id)
                found = [*run_outcome.added([found, self._own[one]])]
                continue
            found[_TOTAL] += 1
            state, held = known
            if not held and (place := _PLACES.get(state)):
                found[place] += 1
        return tuple(found)

    def tally(self, task_id: str, picker: str) -> Sequence[int]:
        """All instances of the task that picks; every other one sees the same."""
        del task_id
        return self._own[picker]

    def states_of(self, picker: str) -> Mapping[int, TaskState]:
        """The same by map index."""
        return self._states[picker]

    def _open_indexes(self, task_id: str) -> list[int]:
        indexes = [*self._undecided.get(task_id, ())]
        return [mapping.SUMMARY, *indexes] if task_id in self._summaries else indexes

    def _decision(self, task_id: str) -> Decision:
        """What becomes of the instances of the task that are in ``none``; there may be none."""
        if task_id not in self._summaries and not self._undecided.get(task_id):
            return Decision.WAIT
        rule = self._of.trigger_rules.get(task_id, TriggerRule.ALL_SUCCESS)
        if rule not in readiness.KNOWN_RULES:
            return Decision.WAIT  # of a newer version: nothing here can say when it may start
        if task_id in self._summaries and (gated := self._gated(task_id)) is not None:
            return gated
        if task_id in self._of.ties.picked_by:
            picked = self._of.picking.by_any(self, task_id)
            if picked is not Decision.READY:
                return picked
        if task_id in self._of.tied:
            return self._ruled(task_id, rule)
        return readiness.decide(rule, run_outcome.as_counts(self._above[task_id]))

    def _gated(self, task_id: str) -> Decision | None:
        """What the inputs of a mapped task say of it before its rule is asked; null: nothing."""
        known = [self._known.get((one, mapping.SUMMARY)) for one in self._of.mapped[task_id].inputs]
        states = [TaskState.NONE if held else state for state, held in filter(None, known)]
        return _GATED[mapping.gate(states)]

    def _stand_in_line(self, task_id: str, *, whether: bool) -> None:
        if (task_id in self._are_ready) is whether:
            return
        line, rank = self._ready.setdefault(self._of.lines[task_id], []), self._of.rank[task_id]
        if whether:
            self._are_ready.add(task_id)
            bisect.insort(line, rank)
        else:
            self._are_ready.discard(task_id)
            del line[bisect.bisect_left(line, rank)]

    def _named_ready(self) -> frozenset[Key]:
        named: list[Key] = []
        for name, line in self._ready.items():
            noted: Counter[int] = self._noted.get(name) or Counter()
            mine = 0
            for rank, place in line:
                as_urgent = sum(number for priority, number in noted.items() if priority >= -rank)
                left = LINE_MAX - mine - as_urgent
                if left <= 0:
                    break
                task_id = self._of.order[place]
                by_index = self._may_start.get(task_id)
                first = (self._undecided[task_id] if by_index is None else by_index).first(left)
                named += [(task_id, index) for index in first]
                mine += len(first)
        return frozenset(named)

    def _account(self, key: Key, instance: tuple[TaskState, bool], by: int) -> None:
        (task_id, map_index), (state, held) = key, instance
        if by > 0 and task_id in self._states:
            self._states[task_id][map_index] = TaskState.NONE if held else state
        if state is TaskState.NONE and not held:
            if task_id not in self._of.upstream:
                _belongs(self._strangers, key, by > 0)
            elif map_index == mapping.SUMMARY and task_id in self._of.mapped:
                _belongs(self._summaries, task_id, by > 0)
            elif by > 0:
                self._undecided.setdefault(task_id, _Indexes()).add(map_index)
            else:
                self._undecided[task_id].discard(map_index)
                if task_id in self._may_start:
                    self._may_start[task_id].discard(map_index)
        elif not held and (place := _PLACES.get(state)):
            self._count(task_id, place, by)
        else:
            self._under_way += by
            if state is TaskState.SCHEDULED and not held and task_id in self._of.alike:
                noted = self._noted.setdefault(self._of.lines[task_id], Counter())
                noted[self._of.priorities.get(task_id, 0)] += by

    def _count(self, task_id: str, place: int, by: int) -> None:
        if task_id in self._own:
            self._own[task_id][place] += by
        for below in self._of.downstream.get(task_id, ()):
            self._above[below][place] += by
            self._changed.add(below)


def _belongs(members: set[Any], one: object, whether: bool) -> None:
    (members.add if whether else members.discard)(one)
