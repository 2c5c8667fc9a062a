"""A slow, obvious model of what a run may do next, any flow to try it with, and what decides in its place.

Nothing of ``rules/`` is asked here but its words. What decides a run by itself or keeps counters as states
change: both are a ``Decider``, and are compared with the model by ``test_readiness_properties.py``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Protocol

from hypothesis import strategies as st

from scheduler_app.rules import run_outcome
from scheduler_app.rules.board import Board, Graph
from scheduler_app.rules.definition import (
    FlowDefinition,
    GroupDefinition,
    GroupRetry,
    TaskDefinition,
    TriggerRule,
)
from scheduler_app.rules.mapping import Argument, Kind, MapOver, Source, mapped_tasks
from scheduler_app.rules.roles import Picks, Role
from scheduler_app.rules.run_outcome import InstanceState, Key, RunDecision
from scheduler_app.rules.states import TaskState
from scheduler_app.rules.ties import cycle_through_unit, ties_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    Cells = Mapping[Key, InstanceState]

GOING = "going"  # what a task sees of whatever has not ended, or is held
ENDS = ("success", "failed", "skipped", "upstream_failed")  # that what is under way may come to
UNKNOWN = "of_tomorrow"  # a rule of a newer version
RULES = [rule for rule in TriggerRule if rule != TriggerRule.ALL_DONE_SETUP_SUCCESS]
STARTS_EARLY = {"always", "one_success", "one_failed", "one_done"}
OVER = MapOver(
    arguments=(Argument(name="one", source=Source(kind=Kind.LITERAL, items=(1, 2, 3))),),
)
# What groups there are, with what each is in: units, plain ones, and ``m``, which is mapped.
GROUPS: list[dict[str, str]] = [
    {},
    {"u": ""},
    {"u": "", "v": ""},
    {"u": "", "p": ""},
    {"m": ""},
    {"m": "", "p": "m"},
    {"m": "", "p": "m"},
    {"u": "", "m": "u"},
]


class Decider(Protocol):
    """What decides a run of one flow."""

    def tell(self, instances: Sequence[InstanceState]) -> None:
        """These are so now; all others are as they were."""

    def decide(self, *, choices: Mapping[Key, object], given_up: Collection[str]) -> RunDecision:
        """What follows."""


class OfTheWholeRun:
    """The product's rule, which looks at every instance each time."""

    def __init__(self, flow: FlowDefinition) -> None:
        self._upstream = {task.task_id: task.upstream for task in flow.tasks}
        self._rules = {task.task_id: task.trigger_rule for task in flow.tasks}
        self._ties = ties_of(flow)
        self._mapped = mapped_tasks(flow)
        self._cells: dict[Key, InstanceState] = {}

    def tell(self, instances: Sequence[InstanceState]) -> None:
        self._cells.update({(one.task_id, one.map_index): one for one in instances})

    def decide(self, *, choices: Mapping[Key, object], given_up: Collection[str]) -> RunDecision:
        return run_outcome.decide_run(
            upstream=self._upstream,
            trigger_rules=self._rules,
            instances=list(self._cells.values()),
            ties=self._ties,
            choices=choices,
            given_up=given_up,
            mapped=self._mapped,
        )


class OnABoard:
    """The counters that are kept of a flow without units; they hear of what changed."""

    def __init__(self, flow: FlowDefinition) -> None:
        self._board = Board(
            Graph(
                upstream={task.task_id: task.upstream for task in flow.tasks},
                trigger_rules={task.task_id: task.trigger_rule for task in flow.tasks},
                mapped=mapped_tasks(flow),
                ties=ties_of(flow),
            )
        )
        self._choices: Mapping[Key, object] = {}

    def tell(self, instances: Sequence[InstanceState]) -> None:
        for one in instances:
            self._board.put(one.task_id, one.map_index, one.state, held=one.held)

    def decide(self, *, choices: Mapping[Key, object], given_up: Collection[str]) -> RunDecision:
        assert not given_up
        for key in self._choices.keys() - choices.keys():
            self._board.forget_pick(*key)
        for key, choice in choices.items():
            if key not in self._choices or self._choices[key] != choice:
                self._board.pick(*key, choice)
        self._choices = dict(choices)
        return self._board.decide()


def without_units(flow: FlowDefinition) -> FlowDefinition:
    """The flow in which no group is one unit."""
    return replace(flow, groups=tuple(replace(group, retry=None) for group in flow.groups))


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What the model says of a run."""

    state: str  # running, success, failed
    is_deadlocked: bool
    marks: dict[Key, str]
    ready: frozenset[Key]
    units: dict[str, str]


@st.composite
def flows(draw: st.DrawFn) -> FlowDefinition:
    """A flow in topological order, with setups, teardowns, branches, gates and groups as they fall."""
    parents = draw(st.sampled_from(GROUPS))
    groups = ["", *parents]
    tasks: list[TaskDefinition] = []
    for number in range(draw(st.integers(1, 9))):
        above = [one.task_id for one in tasks]
        upstream = draw(st.sets(st.sampled_from(above), max_size=3)) if above else set()
        role = draw(st.sampled_from([*[Role.WORK] * 4, Role.SETUP, Role.TEARDOWN]))
        rule = draw(st.sampled_from([*[TriggerRule.ALL_SUCCESS] * 6, *RULES, UNKNOWN]))
        picks = draw(st.sampled_from([*[Picks.NOTHING] * 4, *Picks]))
        is_teardown = role == Role.TEARDOWN
        group = draw(st.sampled_from(groups))
        is_mapped = group not in ("m", "p") and draw(st.integers(0, 7)) == 0
        tasks.append(
            TaskDefinition(
                task_id=f"t{number}",
                upstream=tuple(sorted(upstream)),
                group=group,
                mapped=OVER if is_mapped else None,
                role=role,
                trigger_rule=TriggerRule.ALL_DONE_SETUP_SUCCESS if is_teardown else rule,
                picks=picks if role == Role.WORK else Picks.NOTHING,
                fails_run=is_teardown and draw(st.booleans()),
            )
        )
    flow = FlowDefinition(
        flow_id="f",
        tasks=tuple(tasks),
        groups=tuple(
            GroupDefinition(
                group_id=group,
                parent=parent,
                retry=GroupRetry(max_attempts=2) if group in ("u", "v") else None,
                mapped=OVER if group == "m" else None,
            )
            for group, parent in parents.items()
        ),
    )
    if cycle_through_unit(flow) is None:
        return flow
    # Such a flow is refused where it is written; the same without units is not.
    plain = tuple(replace(one, retry=None) for one in flow.groups)
    return FlowDefinition(flow_id="f", tasks=flow.tasks, groups=plain)


class Model:
    """The rules read out one by one, for one task at a time, from the states alone."""

    def __init__(self, flow: FlowDefinition) -> None:
        self.tasks = {task.task_id: task for task in flow.tasks}
        self.groups = {group.group_id: inside(flow, group.group_id) for group in flow.groups}
        self.units = {
            group.group_id: self.groups[group.group_id]
            for group in flow.groups
            if group.retry is not None
        }
        self.in_mapped_group = {
            task_id
            for group in flow.groups
            if group.mapped is not None
            for task_id in self.groups[group.group_id]
        }
        self.cells: dict[Key, InstanceState] = {}
        self.choices: Mapping[Key, object] = {}
        self.given_up: Collection[str] = ()

    def decide(
        self, cells: Cells, *, choices: Mapping[Key, object], given_up: Collection[str]
    ) -> Said:
        """What follows from these states."""
        self.cells, self.choices, self.given_up = dict(cells), choices, given_up
        strangers = [key for key in cells if self.is_open(key) and key[0] not in self.tasks]
        for key in strangers:
            self.write(key, "removed")
        while wanted := self.to_mark():
            for key, state in wanted.items():
                self.write(key, state)
        units = {unit: self.unit_state(unit) for unit in self.units}
        ready = [
            key
            for task_id in self.tasks
            for key in self.undecided(task_id)
            if self.says(key) == "ready"
        ]
        waiting = [key for key in cells if self.is_open(key) and key not in ready]
        is_under_way = "failed" in units.values() or any(
            one.held or one.state not in (*ENDS, "removed", "none") for one in self.cells.values()
        )
        is_deadlocked = bool(waiting) and not ready and not is_under_way
        for key in waiting if is_deadlocked else ():
            self.write(key, "upstream_failed")
        return Said(
            state=self.outcome(is_deadlocked, is_running=bool(ready) or is_under_way),
            is_deadlocked=is_deadlocked,
            marks={
                key: str(one.state)
                for key, one in self.cells.items()
                if one.state != cells[key].state
            },
            ready=frozenset(ready),
            units=units,
        )

    def outcome(self, is_deadlocked: bool, *, is_running: bool) -> str:
        if is_deadlocked:
            return "failed"
        if is_running:
            return "running"
        aside = {
            one.task_id
            for one in self.tasks.values()
            if one.role == Role.TEARDOWN and not one.fails_run
        }
        teardowns = {one.task_id for one in self.tasks.values() if one.role == Role.TEARDOWN}
        deciding = self.last_of(aside) | (self.last_of(teardowns) if teardowns else set())
        return "failed" if any(self.is_bad(one) for one in deciding) else "success"

    def last_of(self, aside: set[str]) -> set[str]:
        """The tasks that nothing comes after; and before what is removed, what is left."""
        work = set(self.tasks) - aside or set(self.tasks)
        there = {one for one in work if any(s != "removed" for s in self.states(one))}
        return self.without_successor(work) | self.without_successor(there)

    def without_successor(self, tasks: set[str]) -> set[str]:
        return {
            one for one in tasks if not any(one in self.tasks[other].upstream for other in tasks)
        }

    def is_bad(self, task_id: str) -> bool:
        unit = self.unit_of(task_id)
        has_bad = {"failed", "upstream_failed"} & set(self.states(task_id))
        return bool(has_bad) or (unit is not None and self.unit_state(unit) == "given_up")

    # What a task says.

    def to_mark(self) -> dict[Key, str]:
        """Those of one task that are skipped or given up, and look at none which is itself to be marked."""
        marks: dict[str, dict[Key, str]] = {}
        for task_id in self.tasks:
            said = {key: self.says(key) for key in self.undecided(task_id)}
            if found := {k: state for k, state in said.items() if state not in ("wait", "ready")}:
                marks[task_id] = found
        for task_id, found in marks.items():
            if not marks.keys() & self.looked_at(task_id):
                return found
        return {}

    def says(self, key: Key) -> str:
        """wait, ready, skipped or upstream_failed."""
        task_id = key[0]
        task = self.tasks[task_id]
        if task.trigger_rule == UNKNOWN:
            return "wait"
        if any(self.is_barred(key, picker) for picker in self.pickers_of(task_id)):
            return "skipped"
        if any(GOING in self.seen(key, picker) for picker in self.pickers_of(task_id)):
            return "wait"
        if task.role == Role.TEARDOWN:
            return self.teardown_says(key)
        if task.trigger_rule != "always":
            needed = [
                state
                for one in self.ancestors(task_id) - set(task.upstream)
                if self.tasks[one].role == Role.SETUP and self.is_for(one, task_id)
                for state in self.seen(key, one)
            ]
            said = self.by_rule("all_success", needed)
            if said != "ready":
                return said
        above = [state for one in task.upstream for state in self.seen(key, one)]
        return self.by_rule(task.trigger_rule, above)

    def teardown_says(self, key: Key) -> str:
        task_id = key[0]
        upstream = self.tasks[task_id].upstream
        setups = [one for one in upstream if self.tasks[one].role == Role.SETUP]
        scope = {
            one
            for one in self.ancestors(task_id)
            if any(setup in self.ancestors(one) for setup in setups)
        }
        made = [state for one in setups for state in self.seen(key, one)]
        before = [s for one in upstream if one not in setups for s in self.seen(key, one)]
        if GOING in (*made, *before):
            return "wait"
        left = [state for state in made if state != "removed"]
        if left and "success" not in left:
            return "upstream_failed" if {"failed", "upstream_failed"} & set(left) else "skipped"
        between = [state for one in scope for state in self.seen(key, one)]
        return "wait" if GOING in between else "ready"

    def by_rule(self, rule: str, states: list[str]) -> str:
        """What the rule says for every end that what is going may come to; wait, where they differ."""
        going = states.count(GOING)
        ended = [state for state in states if state != GOING]
        said = {
            self.at_the_end(rule, [*ended, *more])
            for more in combinations_with_replacement(ENDS, going)
        }
        if len(said) > 1 or (going and said == {"ready"} and rule not in STARTS_EARLY):
            return "wait"
        (only,) = said
        return only

    def at_the_end(self, rule: str, states: list[str]) -> str:
        """What the rule says once everything before the task has ended."""
        if not states:
            return "ready"
        n = Counter(states)
        bad = n["failed"] + n["upstream_failed"]
        stopped = "upstream_failed" if bad else "skipped" if n["skipped"] else "upstream_failed"
        return {
            "always": "ready",
            "all_success": stopped if bad or n["skipped"] else "ready",
            "all_failed": "skipped" if n["success"] or n["skipped"] else "ready",
            "all_done": "ready",
            "all_done_min_one_success": (
                "skipped" if n["skipped"] else "ready" if n["success"] else "upstream_failed"
            ),
            "all_skipped": "skipped" if n["success"] or bad else "ready",
            "one_success": "ready" if n["success"] else stopped,
            "one_failed": "ready" if bad else "skipped",
            "one_done": "ready" if n["success"] or n["failed"] else "skipped",
            "none_failed": "upstream_failed" if bad else "ready",
            "none_failed_min_one_success": "ready" if n["success"] and not bad else stopped,
            "none_skipped": "skipped" if n["skipped"] else "ready",
        }[rule]

    def pickers_of(self, task_id: str) -> list[str]:
        """The branches and gates that may skip the task: those right before it, and some gates further up.

        Of these none that is mapped, unless both are in the mapped group.
        """
        if self.tasks[task_id].role == Role.TEARDOWN:
            return []
        return [
            one
            for one in self.ancestors(task_id)
            if (self.tasks[one].picks and one in self.tasks[task_id].upstream)
            or (
                self.tasks[one].picks == Picks.GATE_ALL
                and (self.are_together(one, task_id) or not self.is_mapped(one))
            )
        ]

    def is_barred(self, key: Key, picker: str) -> bool:
        """Whether the branches and gates that ended well, and are asked, all did not let this one through."""
        if self.are_together(key[0], picker):
            asked = [(picker, key[1])] if (picker, key[1]) in self.cells else []
        else:
            asked = [one for one in self.cells if one[0] == picker]
        seen = self.seen(key, picker)
        if GOING in seen or {"failed", "upstream_failed"} & set(seen):
            return False
        said = [one for one in asked if self.cells[one].state == "success"]
        return bool(said) and all(self.leaves_out(key[0], one) for one in said)

    def leaves_out(self, task_id: str, picker: Key) -> bool:
        if picker not in self.choices:
            return False
        choice = self.choices[picker]
        if self.tasks[picker[0]].picks != Picks.BRANCH:
            return not choice
        assert isinstance(choice, list)
        chosen = {one for one in choice if one not in self.groups}
        for group in self.groups.keys() & set(choice):
            of = self.groups[group]
            chosen |= {one for one in of if not set(of) & set(self.tasks[one].upstream)}
        return task_id not in chosen and not chosen & self.ancestors(task_id)

    # What there is to see.

    def is_mapped(self, task_id: str) -> bool:
        return task_id in self.in_mapped_group or self.tasks[task_id].mapped is not None

    def are_together(self, one: str, other: str) -> bool:
        """Whether both are in the mapped group: there is one at most."""
        return {one, other} <= self.in_mapped_group

    def seen(self, key: Key, other: str) -> list[str]:
        """The states of the other task's instances as this one sees them: in a mapped group, of its index."""
        task_id, index = key
        if self.are_together(task_id, other) and (other, index) in self.cells:
            return [self.state_of((other, index))]
        unit = self.unit_of(other)
        states = [str(one) for one in self.states(other)] or [GOING]
        if unit is None or unit == self.unit_of(task_id):
            return states
        match self.unit_state(unit):
            case "success":
                return states
            case "given_up":
                return ["upstream_failed" if one == "success" else one for one in states]
        return [GOING for _ in states]

    def unit_state(self, unit: str) -> str:
        states = {one: self.states(one) or [GOING] for one in self.units[unit]}
        is_over = not any(GOING in found for found in states.values())
        is_bad = any(
            {"failed", "upstream_failed"} & set(found)
            for one, found in states.items()
            if self.tasks[one].role != Role.TEARDOWN or self.tasks[one].fails_run
        )
        if not is_over:
            return "failing" if is_bad else "pending"
        return ("given_up" if unit in self.given_up else "failed") if is_bad else "success"

    def states(self, task_id: str) -> list[str]:
        return [self.state_of(key) for key in self.cells if key[0] == task_id]

    def state_of(self, key: Key) -> str:
        one = self.cells[key]
        return str(one.state) if one.state in (*ENDS, "removed") and not one.held else GOING

    def undecided(self, task_id: str) -> list[Key]:
        return [key for key in self.cells if key[0] == task_id and self.is_open(key)]

    def is_open(self, key: Key) -> bool:
        return self.cells[key].state == "none" and not self.cells[key].held

    def write(self, key: Key, state: str) -> None:
        self.cells[key] = InstanceState(
            task_id=key[0], map_index=key[1], state=TaskState(state), held=self.cells[key].held
        )

    # The graph.

    def unit_of(self, task_id: str) -> str | None:
        return next((unit for unit, inside in self.units.items() if task_id in inside), None)

    def ancestors(self, task_id: str) -> set[str]:
        found: set[str] = set()
        for above in self.tasks[task_id].upstream:
            found |= {above} | self.ancestors(above)
        return found

    def looked_at(self, task_id: str) -> set[str]:
        """Every task whose state this one may depend on: whoever sees one of a unit sees all of it."""
        found: set[str] = set()
        todo = [task_id]
        while todo:
            one = todo.pop()
            more = set(self.tasks[one].upstream)
            for above in self.tasks[one].upstream:
                unit = self.unit_of(above)
                if unit is not None and unit != self.unit_of(one):
                    more |= set(self.units[unit])
            todo += more - found
            found |= more
        return found

    def is_for(self, setup: str, task_id: str) -> bool:
        """Whether the setup is one that the task needs: it has no teardown, or one after the task."""
        teardowns = [
            one
            for one, task in self.tasks.items()
            if task.role == Role.TEARDOWN and setup in task.upstream
        ]
        return not teardowns or any(task_id in self.ancestors(one) for one in teardowns)


def inside(flow: FlowDefinition, group_id: str) -> list[str]:
    """The tasks of the group, and of those in it."""
    groups = {group_id, *(one.group_id for one in flow.groups if one.parent == group_id)}
    groups |= {one.group_id for one in flow.groups if one.parent in groups}
    return [task.task_id for task in flow.tasks if task.group in groups]


def instances_of(flow: FlowDefinition, counts: Sequence[int]) -> list[InstanceState]:
    """Every task's instances in ``none``, so many of each; one that picks has one, unless it is mapped.

    What is in the mapped group has as many as the first count says, or one.
    """
    in_group = {
        task_id
        for group in flow.groups
        if group.mapped is not None
        for task_id in inside(flow, group.group_id)
    }
    found = []
    for task, count in zip(flow.tasks, counts, strict=True):
        if task.task_id in in_group:
            indexes = range(max(counts[0], 1))
        elif task.mapped is not None:
            indexes = range(max(count, 1))
        else:
            indexes = range(count) if count != 1 and not task.picks else range(-1, 0)
        found += [
            InstanceState(task_id=task.task_id, map_index=index, state=TaskState.NONE)
            for index in indexes
        ]
    return found
