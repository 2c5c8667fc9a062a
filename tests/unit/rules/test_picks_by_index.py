"""Branches and gates that are mapped: in a mapped group each index is for itself, outside one speaks for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.rules import run_outcome
from scheduler_app.rules.board import Board, Graph, can_be_held
from scheduler_app.rules.definition import FlowDefinition, GroupDefinition, TaskDefinition
from scheduler_app.rules.mapping import Argument, Kind, MapOver, Source, mapped_tasks
from scheduler_app.rules.roles import Picks, Role
from scheduler_app.rules.run_outcome import InstanceState, RunDecision
from scheduler_app.rules.states import TaskState
from scheduler_app.rules.ties import ties_of

if TYPE_CHECKING:
    from collections.abc import Mapping

OVER = MapOver(arguments=(Argument(name="x", source=Source(kind=Kind.LITERAL, items=(1, 2, 3))),))
JOIN = "none_failed_min_one_success"


def task(task_id: str, *upstream: str, **options: Any) -> TaskDefinition:
    """A task; before its name stands the group that it is in."""
    group = task_id.rpartition(".")[0]
    return TaskDefinition(task_id=task_id, upstream=tuple(sorted(upstream)), group=group, **options)


def flow_of(*tasks: TaskDefinition, over: MapOver = OVER) -> FlowDefinition:
    """A flow in which group ``g`` is mapped, with a plain group in it."""
    groups = (
        GroupDefinition(group_id="g", mapped=over),
        GroupDefinition(group_id="g.in", parent="g"),
    )
    return FlowDefinition(flow_id="f", tasks=tasks, groups=groups)


def decide(
    flow: FlowDefinition,
    states: Mapping[str, str],
    choices: Mapping[str, object] | None = None,
    *,
    held: tuple[str, ...] = (),
) -> RunDecision:
    """The decision for these instances; ``b[2]`` names a map index. A board comes to the same."""
    upstream = {one.task_id: one.upstream for one in flow.tasks}
    rules = {one.task_id: one.trigger_rule for one in flow.tasks}
    ties, mapped = ties_of(flow), mapped_tasks(flow)
    picked = {key_of(name): choice for name, choice in (choices or {}).items()}
    instances = [
        InstanceState(
            task_id=key_of(name)[0],
            map_index=key_of(name)[1],
            state=TaskState(state),
            held=name in held,
        )
        for name, state in [*states.items(), ("elsewhere", "running")]  # so that the run goes on
    ]
    said = run_outcome.decide_run(
        upstream=upstream,
        trigger_rules=rules,
        instances=instances,
        ties=ties,
        choices=picked,
        mapped=mapped,
    )
    if can_be_held(ties):
        board = Board(Graph(upstream=upstream, trigger_rules=rules, ties=ties, mapped=mapped))
        for one in reversed(instances):
            board.put(one.task_id, one.map_index, one.state, held=one.held)
        for key, choice in picked.items():
            board.pick(*key, choice)
        kept = board.decide()
        assert (kept.state, kept.marks, kept.ready) == (said.state, said.marks, said.ready)
        assert kept.expandable == said.expandable
    return said


def key_of(name: str) -> tuple[str, int]:
    task_id, _, index = name.rstrip("]").partition("[")
    return task_id, int(index or -1)


def named(keys: Any) -> set[str]:
    return {task_id if index < 0 else f"{task_id}[{index}]" for task_id, index in keys}


def told(decision: RunDecision) -> tuple[set[str], set[str], set[str]]:
    """What is ready, what is skipped, and what is given up."""
    marks = decision.marks.items()
    return (
        named(decision.ready),
        named(key for key, state in marks if state is TaskState.SKIPPED),
        named(key for key, state in marks if state is TaskState.UPSTREAM_FAILED),
    )


WAYS = flow_of(
    task("g.choose", picks=Picks.BRANCH),
    task("g.a", "g.choose"),
    task("g.in.first", "g.choose"),
    task("g.in.second", "g.in.first"),
    task("g.join", "g.a", "g.in.second", trigger_rule=JOIN),
    task("end", "g.join", trigger_rule="none_failed"),
)


def of_ways(count: int, states: Mapping[str, str]) -> dict[str, str]:
    """The instances of ``WAYS``, of which some are in another state than ``none``."""
    tasks = [one.task_id for one in WAYS.tasks if one.group]
    found = {f"{task_id}[{index}]": "none" for task_id in tasks for index in range(count)}
    return {**found, "end": "none", **states}


class TestInAMappedGroup:
    def test_a_branch_decides_for_its_own_index_alone(self) -> None:
        states = of_ways(3, {"g.choose[0]": "success", "g.choose[1]": "success"})
        states["g.choose[2]"] = "running"
        picked = {"g.choose[0]": ["g.a"], "g.choose[1]": ["g.in"]}
        ready, skipped, given_up = told(decide(WAYS, states, picked))
        assert ready == {"g.a[0]", "g.in.first[1]"}
        assert skipped == {"g.in.first[0]", "g.in.second[0]", "g.a[1]"}
        assert not given_up

    def test_ways_come_together_at_the_same_index(self) -> None:
        states = of_ways(2, {})
        states |= {"g.choose[0]": "success", "g.a[0]": "success", "g.in.first[0]": "skipped"}
        states |= {"g.in.second[0]": "skipped", "g.choose[1]": "success", "g.a[1]": "running"}
        picked = {"g.choose[0]": ["g.a"], "g.choose[1]": ["g.a"]}
        ready, skipped, _ = told(decide(WAYS, states, picked))
        assert ready == {"g.join[0]"}
        assert skipped == {"g.in.first[1]", "g.in.second[1]"}

    def test_one_that_picks_nothing_skips_its_index_and_no_other(self) -> None:
        states = of_ways(2, {"g.choose[0]": "success", "g.choose[1]": "running"})
        ready, skipped, _ = told(decide(WAYS, states, {"g.choose[0]": []}))
        assert not ready
        assert skipped == {"g.a[0]", "g.in.first[0]", "g.in.second[0]", "g.join[0]"}

    def test_one_that_failed_gives_up_its_index_and_no_other(self) -> None:
        states = of_ways(2, {"g.choose[0]": "failed", "g.choose[1]": "success"})
        ready, skipped, given_up = told(decide(WAYS, states, {"g.choose[1]": ["g.a"]}))
        assert (ready, skipped) == ({"g.a[1]"}, {"g.in.first[1]", "g.in.second[1]"})
        assert given_up == {"g.a[0]", "g.in.first[0]", "g.in.second[0]", "g.join[0]", "end"}

    def test_one_that_a_person_marked_has_picked_nothing_out(self) -> None:
        states = of_ways(1, {"g.choose[0]": "success"})
        assert told(decide(WAYS, states))[0] == {"g.a[0]", "g.in.first[0]"}

    def test_what_starts_early_waits_until_its_own_index_has_picked(self) -> None:
        flow = flow_of(
            task("g.choose", picks=Picks.BRANCH), task("g.a", "g.choose", trigger_rule="always")
        )
        states = {"g.choose[0]": "running", "g.choose[1]": "skipped"}
        states |= {"g.a[0]": "none", "g.a[1]": "none"}
        assert told(decide(flow, states)) == ({"g.a[1]"}, set(), set())

    def test_of_what_is_not_there_any_more_nothing_is_asked(self) -> None:
        flow = flow_of(
            task("g.choose", picks=Picks.BRANCH), task("g.a", "g.choose", trigger_rule="all_done")
        )
        states = {"g.choose[0]": "success", "g.choose[1]": "removed"}
        states |= {"g.a[0]": "none", "g.a[1]": "none"}
        said = decide(flow, states, {"g.choose[0]": [], "g.choose[1]": []})
        assert told(said) == ({"g.a[1]"}, {"g.a[0]"}, set())

    def test_an_index_that_the_branch_has_not_got_yet_waits_for_it(self) -> None:
        flow = flow_of(
            task("g.choose", picks=Picks.BRANCH), task("g.a", "g.choose", trigger_rule="always")
        )
        states = {"g.choose": "none", "g.a[0]": "none"}
        said = decide(flow, states)
        assert (said.expandable, told(said)) == (("g.choose",), (set(), set(), set()))
        states = {"g.choose[0]": "success", "g.a[0]": "none", "g.a[1]": "none"}
        said = decide(flow, states, {"g.choose[0]": []})
        assert told(said) == ({"g.a[1]"}, {"g.a[0]"}, set())

    def test_all_of_the_group_is_expanded_at_once_whatever_is_picked_later(self) -> None:
        states = {one.task_id: "none" for one in WAYS.tasks}
        assert decide(WAYS, states).expandable == tuple(
            one.task_id for one in WAYS.tasks if one.group
        )

    @pytest.mark.parametrize(
        ("picks", "then", "cleanup"),
        [(Picks.GATE_ALL, set(), True), (Picks.GATE, {"g.then[0]"}, False)],
    )
    def test_a_gate_that_is_shut_skips_what_is_below_it_at_its_own_index(
        self, picks: Picks, then: set[str], cleanup: bool
    ) -> None:
        flow = flow_of(
            task("g.make", role=Role.SETUP),
            task("g.gate", "g.make", picks=picks),
            task("g.work", "g.gate"),
            task("g.then", "g.work", trigger_rule="all_done"),
            task(
                "g.drop",
                "g.make",
                "g.then",
                role=Role.TEARDOWN,
                trigger_rule="all_done_setup_success",
            ),
            task("end", "g.then", trigger_rule="none_failed"),
        )
        states = {f"{one.task_id}[{i}]": "none" for one in flow.tasks if one.group for i in (0, 1)}
        states |= {"g.make[0]": "success", "g.make[1]": "success", "end": "none"}
        states |= {"g.gate[0]": "success", "g.gate[1]": "success"}
        said = decide(flow, states, {"g.gate[0]": False, "g.gate[1]": True})
        ready, skipped, given_up = told(said)
        assert ready == {"g.work[1]", *then, *(["g.drop[0]"] if cleanup else [])}
        assert skipped == {"g.work[0]", *(["g.then[0]"] if cleanup else [])}
        assert not given_up

    def test_a_way_that_leaves_the_group_and_comes_back_is_below_the_gate_of_its_index(
        self,
    ) -> None:
        flow = flow_of(
            task("g.gate", picks=Picks.GATE_ALL),
            task("all", "g.gate", trigger_rule="all_done"),
            task("g.late", "all", trigger_rule="all_done"),
        )
        states = {"g.gate[0]": "success", "g.gate[1]": "success", "all": "success"}
        states |= {"g.late[0]": "none", "g.late[1]": "none"}
        said = decide(flow, states, {"g.gate[0]": False, "g.gate[1]": True})
        assert told(said) == ({"g.late[1]"}, {"g.late[0]"}, set())


class TestOutsideOfTheGroup:
    FLOW = flow_of(
        task("g.choose", picks=Picks.BRANCH),
        task("g.a", "g.choose"),
        task("out", "g.choose", trigger_rule="all_done"),
    )

    @pytest.mark.parametrize(
        ("ends", "picks", "is_ready", "is_skipped"),
        [
            (("success", "success"), (["out"], []), True, False),
            (("success", "success"), ([], ["g.a"]), False, True),
            (("success", "running"), (["out"], []), False, False),  # the other may yet fail
            (("success", "running"), ([], []), False, False),
            (("success", "skipped"), ([], []), False, True),  # what was skipped wants nothing
            (("success", "removed"), ([], ["out"]), False, True),
            (
                ("success", "failed"),
                ([], []),
                True,
                False,
            ),  # it might have picked it: the rule speaks
            (("success", "upstream_failed"), ([], []), True, False),
            (("skipped", "skipped"), ([], []), True, False),
            (("success", "success"), ([], None), True, False),  # a person marked the second one
        ],
    )
    def test_a_task_goes_on_where_one_index_picks_it_and_is_skipped_where_none_does(
        self, ends: tuple[str, str], picks: Any, is_ready: bool, is_skipped: bool
    ) -> None:
        states = {f"g.choose[{index}]": state for index, state in enumerate(ends)}
        states |= {"g.a[0]": "success", "g.a[1]": "success", "out": "none"}
        choices = {f"g.choose[{i}]": one for i, one in enumerate(picks) if one is not None}
        ready, skipped, given_up = told(decide(self.FLOW, states, choices))
        assert (ready == {"out"}, skipped == {"out"}) == (is_ready, is_skipped)
        assert not given_up

    def test_what_is_further_below_sees_the_instances_and_no_gate(self) -> None:
        flow = flow_of(
            task("g.gate", picks=Picks.GATE_ALL),
            task("g.work", "g.gate"),
            task("report", "g.work", trigger_rule="none_failed"),
        )
        states = {"g.gate[0]": "success", "g.work[0]": "none", "report": "none"}
        said = decide(flow, states, {"g.gate[0]": False})
        assert told(said) == ({"report"}, {"g.work[0]"}, set())

    def test_a_mapped_branch_outside_of_groups_speaks_for_all_that_is_after_it(self) -> None:
        flow = FlowDefinition(
            flow_id="f",
            tasks=(
                task("choose", picks=Picks.BRANCH, mapped=OVER),
                task("each", "choose", mapped=OVER),
                task("never", "choose", mapped=OVER),
                task("once", "choose"),
            ),
        )
        states = {f"choose[{index}]": "success" for index in range(3)}
        states |= {"each[0]": "none", "each[1]": "none", "never": "none", "once": "none"}
        picked = {"choose[0]": ["once"], "choose[1]": [], "choose[2]": ["each"]}
        said = decide(flow, states, picked)
        assert told(said) == ({"each[0]", "each[1]", "once"}, {"never"}, set())


def test_a_person_or_a_held_instance_is_waited_for_at_its_index() -> None:
    states = of_ways(2, {"g.choose[0]": "success", "g.choose[1]": "success"})
    picked = {"g.choose[0]": ["g.a"], "g.choose[1]": ["g.a"]}
    said = decide(WAYS, states, picked, held=("g.choose[0]",))
    assert told(said)[:2] == ({"g.a[1]"}, {"g.in.first[1]", "g.in.second[1]"})


LINE = flow_of(
    task("rows"),
    task("g.first", "rows"),
    task("g.then", "g.first", trigger_rule="all_done"),
    task("end", "g.then"),
    over=MapOver(arguments=(Argument(name="x", source=Source(kind=Kind.RESULT, task_id="rows")),)),
)


class TestExpansion:
    """What may be expanded when, in a mapped group; no task of it picks."""

    def test_without_its_input_nothing_of_the_group_starts_nor_what_comes_after_it(self) -> None:
        states = {one.task_id: "none" for one in LINE.tasks} | {"rows": "failed"}
        assert told(decide(LINE, states))[2] == {"g.first", "g.then", "end"}

    def test_what_was_cut_off_goes_on_once_what_is_before_it_is_whole(self) -> None:
        states = {"rows": "success", "g.first": "removed", "g.first[0]": "success"}
        states |= {"g.first[1]": "running", "g.then": "none", "g.then[1]": "none", "end": "none"}
        said = decide(LINE, states)
        assert (said.expandable, told(said)) == (("g.then",), (set(), set(), set()))

    def test_while_its_input_is_removed_nothing_of_it_is_asked_about(self) -> None:
        states = {"rows": "success", "g.first[0]": "success", "g.first[1]": "running"}
        states |= {"g.then": "none", "g.then[0]": "none", "g.then[1]": "none", "end": "none"}
        board = Followed(LINE, states)
        assert told(board.decide()) == ({"g.then[0]"}, set(), set())
        assert told(board.becomes("rows", "removed")) == (set(), set(), set())
        assert told(board.becomes("g.first[1]", "success")) == (set(), set(), set())
        assert told(board.becomes("rows", "success"))[0] == {"g.then[0]", "g.then[1]"}

    def test_what_becomes_of_the_input_reaches_what_comes_after_the_group_at_once(self) -> None:
        board = Followed(LINE, {one.task_id: "none" for one in LINE.tasks} | {"rows": "running"})
        assert told(board.decide()) == (set(), set(), set())
        given_up = told(board.becomes("rows", "failed"))[2]
        assert given_up == {"g.first", "g.then", "end"}


class Followed:
    """A board that hears of one change after the other, and is as one that is asked for the first time."""

    def __init__(self, flow: FlowDefinition, states: Mapping[str, str]) -> None:
        self.flow, self.states, self.choices = flow, dict(states), dict[str, object]()
        self.board = Board(
            Graph(
                upstream={one.task_id: one.upstream for one in flow.tasks},
                trigger_rules={one.task_id: one.trigger_rule for one in flow.tasks},
                mapped=mapped_tasks(flow),
                ties=ties_of(flow),
            )
        )
        for name, state in [*states.items(), ("elsewhere", "running")]:
            self.board.put(*key_of(name), TaskState(state), held=False)

    def decide(self) -> RunDecision:
        """The decision, whose marks are written."""
        said, expected = self.board.decide(), decide(self.flow, self.states, self.choices)
        assert (said.marks, said.ready) == (expected.marks, expected.ready)
        assert sorted(said.expandable) == sorted(expected.expandable)
        for (task_id, index), state in said.marks.items():
            self.states[task_id if index < 0 else f"{task_id}[{index}]"] = state
        return said

    def becomes(self, name: str, state: str, *choice: object) -> RunDecision:
        """The decision once the instance is in this state, and picked what is given."""
        self.states[name] = state
        self.board.put(*key_of(name), TaskState(state), held=False)
        for one in choice:
            self.choices[name] = one
            self.board.pick(*key_of(name), one)
        return self.decide()


def test_a_board_skips_a_way_to_its_end_at_one_look() -> None:
    board = Followed(WAYS, of_ways(2, {"g.choose[0]": "running", "g.choose[1]": "running"}))
    assert told(board.decide()) == (set(), set(), set())
    _, skipped, _ = told(board.becomes("g.choose[0]", "success", []))
    assert skipped == {"g.a[0]", "g.in.first[0]", "g.in.second[0]", "g.join[0]"}
    ready, skipped, _ = told(board.becomes("g.choose[1]", "success", ["g.in"]))
    assert (ready, skipped) == ({"g.in.first[1]"}, {"g.a[1]"})
    board.becomes("g.in.first[1]", "success")
    assert told(board.becomes("g.in.second[1]", "success"))[0] == {"g.join[1]"}
    # Cleared, the first one picks anew; what it had skipped stays so.
    assert told(board.becomes("g.choose[0]", "none"))[0] == {"g.choose[0]", "g.join[1]"}
    assert told(board.becomes("g.a[0]", "none"))[0] == {"g.choose[0]", "g.join[1]"}
    board.becomes("g.choose[0]", "running")
    assert told(board.becomes("g.choose[0]", "success", ["g.a"]))[0] == {"g.a[0]", "g.join[1]"}


def test_a_board_asks_again_where_the_branch_lacked_the_index() -> None:
    flow = flow_of(
        task("g.choose", picks=Picks.BRANCH), task("g.a", "g.choose", trigger_rule="always")
    )
    board = Followed(flow, {"g.choose[0]": "running", "g.a[1]": "none"})
    assert told(board.decide()) == (set(), set(), set())
    assert told(board.becomes("g.choose[0]", "success", [])) == ({"g.a[1]"}, set(), set())
