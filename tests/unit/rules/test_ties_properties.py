"""Readiness of any flow with setups, gates and transactional groups agrees with a slow, obvious model."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_app.rules import run_outcome
from scheduler_app.rules.definition import (
    FlowDefinition,
    GroupDefinition,
    GroupRetry,
    TaskDefinition,
    TriggerRule,
)
from scheduler_app.rules.graph import find_cycle
from scheduler_app.rules.roles import Picks, Role
from scheduler_app.rules.run_outcome import InstanceState
from scheduler_app.rules.states import RunState, TaskState
from scheduler_app.rules.ties import cycle_through_unit, ties_of

ENDED = ("success", "failed", "skipped", "upstream_failed")
RULES = [rule for rule in TriggerRule if rule != TriggerRule.ALL_DONE_SETUP_SUCCESS]


@st.composite
def flows(draw: st.DrawFn) -> FlowDefinition:
    """A flow in topological order, with a unit, setups, teardowns and gates where they fall."""
    tasks: list[TaskDefinition] = []
    for number in range(draw(st.integers(3, 8))):
        above = [one.task_id for one in tasks]
        upstream = draw(st.sets(st.sampled_from(above), max_size=3)) if above else set()
        role = draw(st.sampled_from([*[Role.WORK] * 4, Role.SETUP, Role.TEARDOWN]))
        rule = draw(st.sampled_from(RULES))
        picks = draw(st.sampled_from([*[Picks.NOTHING] * 4, Picks.GATE, Picks.GATE_ALL]))
        tasks.append(
            TaskDefinition(
                task_id=f"t{number}",
                upstream=tuple(sorted(upstream)),
                group=draw(st.sampled_from(["", "u"])),
                role=role,
                trigger_rule=TriggerRule.ALL_DONE_SETUP_SUCCESS if role == Role.TEARDOWN else rule,
                picks=picks if role == Role.WORK else Picks.NOTHING,
            )
        )
    return FlowDefinition(
        flow_id="f",
        tasks=tuple(tasks),
        groups=(GroupDefinition(group_id="u", retry=GroupRetry(max_attempts=1)),),
    )


class Model:
    """The rules read out one by one, for one task at a time."""

    def __init__(self, flow: FlowDefinition, gates: dict[str, bool]) -> None:
        self.tasks = {task.task_id: task for task in flow.tasks}
        self.gates = gates
        self.state: dict[str, str] = dict.fromkeys(self.tasks, "none")

    def ancestors(self, task_id: str) -> set[str]:
        found: set[str] = set()
        for above in self.tasks[task_id].upstream:
            found |= {above} | self.ancestors(above)
        return found

    def descendants(self, task_id: str) -> set[str]:
        return {one for one in self.tasks if task_id in self.ancestors(one)}

    def unit(self) -> list[str]:
        return [one for one, task in self.tasks.items() if task.group == "u"]

    def seen(self, task_id: str, other: str) -> str:
        """The state of the other task as this one sees it."""
        state = self.state[other]
        if self.tasks[other].group != "u" or self.tasks[task_id].group == "u":
            return state
        states = {one: self.state[one] for one in self.unit()}
        if any(state not in ENDED for state in states.values()):
            return "running"
        bad = [
            one
            for one, state in states.items()
            if state in ("failed", "upstream_failed") and self.tasks[one].role != Role.TEARDOWN
        ]
        return "upstream_failed" if bad and state == "success" else state

    def says(self, task_id: str) -> str:
        """wait, ready, skipped or upstream_failed."""
        task = self.tasks[task_id]
        for gate, is_open in self.gates.items():
            reached = (
                task_id in self.descendants(gate)
                if self.tasks[gate].picks == Picks.GATE_ALL
                else gate in task.upstream
            )
            is_shut = self.state[gate] == "success" and not is_open
            if reached and is_shut and task.role != Role.TEARDOWN:
                return "skipped"
        setups = [one for one in task.upstream if self.tasks[one].role == Role.SETUP]
        if task.role != Role.TEARDOWN and task.trigger_rule != TriggerRule.ALWAYS:
            above = Counter(
                self.seen(task_id, one)
                for one in self.ancestors(task_id) - set(task.upstream)
                if self.tasks[one].role == Role.SETUP and self.is_for(one, task_id)
            )
            if above["failed"] or above["upstream_failed"]:
                return "upstream_failed"
            if above["skipped"]:
                return "skipped"
            if above.total() > above["success"]:
                return "wait"
        if task.role != Role.TEARDOWN:
            return self.by_rule(
                task.trigger_rule, [self.seen(task_id, one) for one in task.upstream]
            )
        made = [self.seen(task_id, one) for one in setups]
        work = [self.seen(task_id, one) for one in task.upstream if one not in setups]
        if any(state not in ENDED for state in (*made, *work)):
            return "wait"
        if made and "success" not in made:
            bad = {"failed", "upstream_failed"} & set(made)
            return "upstream_failed" if bad else "skipped"
        scope = {
            one
            for one in self.ancestors(task_id)
            if any(setup in self.ancestors(one) for setup in setups)
        }
        waits = any(self.seen(task_id, one) not in ENDED for one in scope)
        return "wait" if waits else "ready"

    def is_for(self, setup: str, task_id: str) -> bool:
        teardowns = [
            one
            for one, task in self.tasks.items()
            if task.role == Role.TEARDOWN and setup in task.upstream
        ]
        return not teardowns or any(one in self.descendants(task_id) for one in teardowns)

    def by_rule(self, rule: str, states: list[str]) -> str:
        n = Counter(states)
        bad = n["failed"] + n["upstream_failed"]
        ended = sum(n[one] for one in ENDED) == len(states)
        if not states or rule == "always":
            return "ready"
        early = {
            "all_success": "upstream_failed" if bad else "skipped" if n["skipped"] else "",
            "all_failed": "skipped" if n["success"] or n["skipped"] else "",
            "all_done": "",
            "all_done_min_one_success": "skipped" if n["skipped"] else "",
            "all_done_setup_success": "",
            "all_skipped": "skipped" if n["success"] or bad else "",
            "one_success": "ready" if n["success"] else "",
            "one_failed": "ready" if bad else "",
            "one_done": "ready" if n["success"] or n["failed"] else "",
            "none_failed": "upstream_failed" if bad else "",
            "none_failed_min_one_success": "upstream_failed" if bad else "",
            "none_skipped": "skipped" if n["skipped"] else "",
        }[rule]
        if early or not ended:
            return early or "wait"
        return {
            "all_done_min_one_success": "ready" if n["success"] else "upstream_failed",
            "one_success": "upstream_failed" if bad else "skipped",
            "one_failed": "skipped",
            "one_done": "skipped",
            "none_failed_min_one_success": "ready" if n["success"] else "skipped",
        }.get(rule, "ready")

    def settle(self) -> set[str]:
        """Marks until nothing is left to mark; the tasks that are ready then."""
        while True:
            says = {one: self.says(one) for one, state in self.state.items() if state == "none"}
            marks = {one: said for one, said in says.items() if said not in ("wait", "ready")}
            if not marks:
                return {one for one, said in says.items() if said == "ready"}
            # The upstream-most alone, so that a mark is never made on what a later one changes.
            first = next(one for one in self.tasks if one in marks)
            self.state[first] = marks[first]


@settings(max_examples=200, deadline=None)
@given(flows(), st.integers(0, 2**32))
def test_any_order_of_finishing_lets_go_what_the_model_lets_go(
    flow: FlowDefinition, seed: int
) -> None:
    if cycle_through_unit(flow) is not None:
        return  # refused where it is written
    chance = random.Random(seed)
    gates = {task.task_id: chance.random() < 0.5 for task in flow.tasks if task.picks}
    model = Model(flow, gates)
    ties = ties_of(flow)
    upstream = {task.task_id: task.upstream for task in flow.tasks}
    assert find_cycle(upstream) is None
    for _ in range(3 * len(flow.tasks) + 1):
        decision = run_outcome.decide_run(
            upstream=upstream,
            trigger_rules={task.task_id: task.trigger_rule for task in flow.tasks},
            instances=[
                InstanceState(task_id=one, map_index=-1, state=TaskState(state))
                for one, state in model.state.items()
            ],
            ties=ties,
            choices={one: gates[one] for one in gates if model.state[one] == "success"},
            given_up={"u"},
        )
        before = dict(model.state)
        ready = model.settle()
        marks: dict[Any, Any] = {
            (one, -1): state for one, state in model.state.items() if state != before[one]
        }
        running = [one for one, state in model.state.items() if state == "running"]
        if decision.code == run_outcome.ALL_TASKS_DEADLOCKED:
            assert not ready
            assert not running
            return
        assert {key[0] for key in decision.ready} == ready
        assert decision.marks == marks
        if decision.state is not RunState.RUNNING:
            assert set(model.state.values()) <= set(ENDED)
            return
        for one in ready:
            model.state[one] = "running"
        if going := sorted(one for one, state in model.state.items() if state == "running"):
            model.state[chance.choice(going)] = chance.choice(("success", "success", "failed"))
