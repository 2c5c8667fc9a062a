"""Whatever the flow, and whatever becomes of its tasks in whatever order: decided as the slow model says.

A story is a flow, its instances and a source of chance: what is ready starts or does not, what runs goes on or
ends, a person marks, clears, holds and lets go, a unit is tried again or given up; and only now and then it is
looked at. What keeps counters instead of looking at the whole run belongs into ``DECIDERS``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_app.rules import run_outcome
from scheduler_app.rules.roles import Picks
from scheduler_app.rules.run_outcome import InstanceState
from scheduler_app.rules.states import TASK_MOVES, TASK_TERMINAL, TaskState
from tests.unit.rules.slow_model import (
    Decider,
    Model,
    OfTheWholeRun,
    OnABoard,
    flows,
    inside,
    instances_of,
    without_units,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler_app.rules.definition import FlowDefinition
    from scheduler_app.rules.run_outcome import Key, RunDecision
    from tests.unit.rules.slow_model import Said

DECIDERS: list[Callable[[FlowDefinition], Decider]] = [OfTheWholeRun, OnABoard]
LOOKS = 25
COUNTS = st.lists(st.sampled_from([1, 1, 1, 1, 2, 2, 3, 0]), min_size=9, max_size=9)
# Not drawn number by number: what is drawn so is small and much alike.
CHANCES = st.integers(0, 2**64).map(Random)
GOING_ON = {
    TaskState.QUEUED: (TaskState.RUNNING, TaskState.SCHEDULED),
    TaskState.SCHEDULED: (TaskState.QUEUED,),
    TaskState.RUNNING: (
        *[TaskState.SUCCESS] * 6,
        *[TaskState.FAILED] * 3,
        *[TaskState.SKIPPED] * 3,
        TaskState.DEFERRED,
        TaskState.UP_FOR_RETRY,
        TaskState.UP_FOR_RESCHEDULE,
        TaskState.RESTARTING,
    ),
    TaskState.DEFERRED: (TaskState.SCHEDULED, TaskState.FAILED),
    TaskState.UP_FOR_RETRY: (TaskState.QUEUED,),
    TaskState.UP_FOR_RESCHEDULE: (TaskState.QUEUED,),
    TaskState.RESTARTING: (TaskState.NONE, TaskState.UP_FOR_RETRY),
}


class Story:
    """One run as it goes on."""

    def __init__(self, flow: FlowDefinition, counts: list[int], chance: Random) -> None:
        self.flow, self.chance = flow, chance
        first = instances_of(flow, counts[: len(flow.tasks)])
        if chance.random() < 0.1:
            first.append(InstanceState(task_id="stranger", map_index=-1, state=TaskState.NONE))
        self.cells = {(one.task_id, one.map_index): one for one in first}
        several = [key for key in sorted(self.cells) if key[1] >= 0]
        if several and chance.random() < 0.1:
            del self.cells[chance.choice(several)]  # not added yet, or cut off
        self.pickers = {task.task_id: Picks(task.picks) for task in flow.tasks if task.picks}
        self.results: dict[Key, object] = {}
        self.given_up: set[str] = set()
        self.units = {
            group.group_id: set(inside(flow, group.group_id))
            for group in flow.groups
            if group.retry is not None
        }

    def choices(self) -> dict[Key, object]:
        return {
            key: value
            for key, value in self.results.items()
            if self.cells[key].state == TaskState.SUCCESS
        }

    def put(self, key: Key, state: TaskState) -> None:
        """The instance is in this state; a task that picks has picked when it succeeds by itself."""
        task_id = key[0]
        was = self.cells[key]
        if task_id in self.pickers:
            self.results.pop(key, None)
            if was.state == TaskState.RUNNING and state == TaskState.SUCCESS:
                self.results[key] = self.pick(task_id)
        self.cells[key] = replace(was, state=state)

    def pick(self, task_id: str) -> object:
        if self.pickers[task_id] is not Picks.BRANCH:
            return self.chance.random() < 0.5
        below = [task.task_id for task in self.flow.tasks if task_id in task.upstream]
        names = below + [group.group_id for group in self.flow.groups]
        return [name for name in names if self.chance.random() < 0.4]

    def go_on(self, said: Said) -> None:
        """One thing happens."""
        chance = self.chance
        going = [k for k, one in self.cells.items() if one.state in GOING_ON and not one.held]
        ready = sorted(k for k in said.ready if self.cells[k].state == TaskState.NONE)
        what = chance.random()
        if ready and what < 0.4:
            self.put(chance.choice(ready), TaskState.QUEUED)
        elif going and what < 0.9:
            key = chance.choice(going)
            self.put(key, chance.choice(GOING_ON[self.cells[key].state]))
        elif what < 0.95:
            self.by_hand()
        else:
            self.decide_unit(said)

    def by_hand(self) -> None:
        chance = self.chance
        key = chance.choice(sorted(self.cells)) if self.cells else None
        match chance.choice(("clear", "mark", "hold", "let go")):
            case _ if key is None:
                return
            case "clear":
                for one in sorted(self.cells):
                    if self.cells[one].state in TASK_TERMINAL and chance.random() < 0.5:
                        self.put(one, TaskState.NONE)
                self.given_up.clear()
            case "mark":
                self.put(key, chance.choice(sorted(TASK_MOVES[self.cells[key].state])))
            case "hold":
                self.cells[key] = replace(self.cells[key], held=True)
            case _:
                self.cells = {k: replace(one, held=False) for k, one in self.cells.items()}

    def decide_unit(self, said: Said) -> None:
        failed = sorted(unit for unit, state in said.units.items() if state == "failed")
        for unit in failed:
            if self.chance.random() < 0.5:
                self.given_up.add(unit)
                continue
            for key in sorted(self.cells):
                if key[0] in self.units[unit] and self.cells[key].state in TASK_TERMINAL:
                    self.put(key, TaskState.NONE)


@pytest.mark.parametrize("decider", DECIDERS)
@settings(max_examples=400)
@given(data=st.data())
def test_whatever_happens_in_whatever_order_it_decides_what_the_slow_model_decides(
    decider: Callable[[FlowDefinition], Decider], data: st.DataObject
) -> None:
    flow, counts = data.draw(flows()), data.draw(COUNTS)
    if decider is OnABoard:
        flow = without_units(flow)
    story = Story(flow, counts, data.draw(CHANCES))
    asked, model = decider(flow), Model(flow)
    asked.tell(list(story.cells.values()))
    for _ in range(LOOKS):
        choices, given_up = story.choices(), frozenset(story.given_up)
        said = model.decide(story.cells, choices=choices, given_up=given_up)
        _is_as_said(asked.decide(choices=choices, given_up=given_up), said)
        before = dict(story.cells)
        for key, state in said.marks.items():
            story.put(key, TaskState(state))
        for _ in range(story.chance.choice((0, 1, 1, 2, 3))):
            story.go_on(said)
        asked.tell([one for key, one in story.cells.items() if one is not before[key]])


def _is_as_said(decision: RunDecision, said: Said) -> None:
    assert decision.state == said.state
    assert (decision.code == run_outcome.ALL_TASKS_DEADLOCKED) == said.is_deadlocked
    assert decision.marks == said.marks
    assert decision.ready == said.ready
    assert decision.units == said.units


@settings(max_examples=400)
@given(data=st.data())
def test_neither_the_order_of_finishing_nor_how_often_one_looks_changes_what_becomes_of_a_run(
    data: st.DataObject,
) -> None:
    """Every task would end in its own way if it ran: so ends the run, whenever it is looked at."""
    flow = data.draw(flows())
    counts = data.draw(COUNTS)[: len(flow.tasks)]
    ends: dict[Any, TaskState] = {}
    picks: dict[Key, object] = {}
    fates = data.draw(CHANCES)
    for one in instances_of(flow, counts):
        fate = ("success", "success", "failed", "skipped")
        ends[one.task_id, one.map_index] = TaskState(fates.choice(fate))
        below = [task.task_id for task in flow.tasks if one.task_id in task.upstream]
        chosen: object = [task_id for task_id in below if fates.random() < 0.5]
        is_branch = flow.task(one.task_id).picks == Picks.BRANCH
        picks[one.task_id, one.map_index] = chosen if is_branch else fates.random() < 0.5
    chances = [data.draw(CHANCES) for _ in range(3)]
    plays = [_play(flow, counts, ends, picks, chance) for chance in chances]
    assert plays[0] == plays[1] == plays[2]


def _play(
    flow: FlowDefinition,
    counts: list[int],
    ends: dict[Key, TaskState],
    picks: dict[Key, object],
    chance: Random,
) -> tuple[str, dict[Key, TaskState]]:
    """How the run and its instances end; a unit that failed is given up."""
    decider = OfTheWholeRun(flow)
    cells = {(one.task_id, one.map_index): one for one in instances_of(flow, counts)}
    pickers = {task.task_id for task in flow.tasks if task.picks}
    for _ in range(100):
        decider.tell(list(cells.values()))
        decision = decider.decide(
            choices={
                key: picks[key]
                for key, one in cells.items()
                if key[0] in pickers and one.state == TaskState.SUCCESS
            },
            given_up={one.group_id for one in flow.groups},
        )
        for key, state in decision.marks.items():
            cells[key] = replace(cells[key], state=state)
        if decision.state != "running":
            return str(decision.state), {key: one.state for key, one in cells.items()}
        limit = chance.randint(1, 8)
        for key in sorted(decision.ready, key=lambda _: chance.random())[:limit]:
            cells[key] = replace(cells[key], state=TaskState.RUNNING)
        going = sorted(key for key, one in cells.items() if one.state == TaskState.RUNNING)
        for key in sorted(going, key=lambda _: chance.random())[: chance.randint(1, 8)]:
            cells[key] = replace(cells[key], state=ends[key])
    raise AssertionError(f"it did not end: {Counter(one.state for one in cells.values())}")
