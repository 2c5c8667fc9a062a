"""A board that hears of every change decides as the function that looks at every instance."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_app.rules import board as boards
from scheduler_app.rules.board import Board, Graph
from scheduler_app.rules.definition import (
    FlowDefinition,
    GroupDefinition,
    TaskDefinition,
    TriggerRule,
)
from scheduler_app.rules.errors import DefinitionError
from scheduler_app.rules.mapping import (
    SUMMARY,
    Argument,
    Kind,
    MapOver,
    MappedTask,
    Source,
    mapped_tasks,
)
from scheduler_app.rules.roles import Picks
from scheduler_app.rules.run_outcome import InstanceState, Key, decide_run
from scheduler_app.rules.states import RunState, TaskState
from scheduler_app.rules.ties import ties_of
from tests.unit.rules.test_run_outcome_properties import Run, runs

Change = tuple[Key, TaskState, bool]
OVER = MapOver(arguments=(Argument(name="x", source=Source(kind=Kind.RESULT, task_id="t0")),))
LIKELY = [*[TaskState.SUCCESS] * 8, *[TaskState.RUNNING] * 4, *[TaskState.NONE] * 4, *TaskState]


def expanded(task_ids: Iterable[str]) -> dict[str, MappedTask]:
    return {
        one: MappedTask(task_id=one, over=MapOver(arguments=()), inputs=frozenset())
        for one in task_ids
    }


@st.composite
def histories(draw: st.DrawFn) -> tuple[Run, dict[str, MappedTask], list[list[Change]]]:
    """A run as it is first seen, its mapped tasks, and what happens to its instances between two looks."""
    upstream, rules, instances = draw(runs())
    over = draw(st.sets(st.sampled_from([*upstream]))) if upstream else set()
    mapped = {
        one: MappedTask(
            task_id=one,
            over=MapOver(arguments=()),
            inputs=frozenset(draw(st.sets(st.sampled_from(upstream[one]))))
            if upstream[one]
            else frozenset(),
        )
        for one in sorted(over)
    }
    # Summaries, also beside instances that an expansion which was cut off has made.
    instances += [
        InstanceState(
            task_id=one,
            map_index=SUMMARY,
            state=draw(st.just(TaskState.NONE) | st.sampled_from(TaskState)),
            held=draw(st.integers(0, 9)) == 0,
        )
        for one in [*upstream]
        if draw(st.booleans())
    ]
    keys = [(one.task_id, one.map_index) for one in instances]
    change = st.tuples(st.sampled_from(keys), st.sampled_from(TaskState), st.booleans())
    steps = st.lists(st.lists(change, max_size=4), max_size=6)
    return (upstream, rules, instances), mapped, draw(steps) if keys else []


@given(histories())
def test_whatever_happens_a_board_decides_as_a_look_at_everything_does(
    history: tuple[Run, dict[str, MappedTask], list[list[Change]]],
) -> None:
    run, mapped, steps = history
    upstream, rules, instances = run
    board = Board(Graph(upstream=upstream, trigger_rules=rules, mapped=mapped))
    now = {(one.task_id, one.map_index): (one.state, one.held) for one in instances}
    for changes in [[(key, *how) for key, how in now.items()], *steps]:
        for (task_id, map_index), state, held in changes:
            now[task_id, map_index] = (state, held)
            board.put(task_id, map_index, state, held=held)
        expected = decide_run(
            upstream=upstream,
            trigger_rules=rules,
            instances=[
                InstanceState(task_id=key[0], map_index=key[1], state=state, held=held)
                for key, (state, held) in now.items()
            ],
            mapped=mapped,
        )
        decided = board.decide()
        assert (decided.state, decided.code, decided.reason) == (
            expected.state,
            expected.code,
            expected.reason,
        )
        assert decided.marks == expected.marks
        assert decided.ready == expected.ready
        assert sorted(decided.expandable) == sorted(expected.expandable)
        # They are written, as a tick would, and the board takes them for written.
        now |= {key: (state, False) for key, state in decided.marks.items()}
        if decided.state is not RunState.RUNNING:
            return


@st.composite
def flows_that_pick(draw: st.DrawFn) -> FlowDefinition:
    """A flow with a mapped group, and tasks that pick, setups and teardowns in it, before and after it."""
    first = TaskDefinition(
        task_id="t0", picks=draw(st.sampled_from(("", "", "branch", "gate_all")))
    )
    tasks = [first]
    for number in range(1, draw(st.integers(2, 7))):
        above = draw(st.sets(st.sampled_from([one.task_id for one in tasks]), max_size=3))
        group = draw(st.sampled_from(("", "g", "g", "g")))
        is_mapped = not group and draw(st.integers(0, 4)) == 0
        is_entry = bool(group) and not any(one.group for one in tasks if one.task_id in above)
        if is_mapped or is_entry:
            above.add("t0")
        tasks.append(
            TaskDefinition(
                task_id=f"t{number}",
                upstream=tuple(sorted(above)),
                group=group,
                trigger_rule=draw(
                    st.sampled_from(["all_success"] * 5 + [*TriggerRule, "of_tomorrow"])
                ),
                picks=draw(st.sampled_from(("", "", "", *Picks))),
                role=draw(st.sampled_from(("work", "work", "work", "setup", "teardown"))),
                mapped=OVER if is_mapped else None,
            )
        )
    groups = (GroupDefinition(group_id="g", mapped=OVER),)
    return FlowDefinition(flow_id="f", tasks=tuple(tasks), groups=groups)


@settings(max_examples=300)
@given(flow=flows_that_pick(), chance=st.integers(0, 2**64).map(random.Random))
def test_index_by_index_and_whatever_is_picked_it_decides_so_too(
    flow: FlowDefinition, chance: random.Random
) -> None:
    upstream = {one.task_id: one.upstream for one in flow.tasks}
    rules = {one.task_id: one.trigger_rule for one in flow.tasks}
    known, mapped = ties_of(flow), mapped_tasks(flow)
    board = Board(Graph(upstream=upstream, trigger_rules=rules, mapped=mapped, ties=known))
    now: dict[Key, tuple[TaskState, bool]] = {}
    choices: dict[Key, object] = {}

    def put(key: Key, state: TaskState, *, held: bool = False) -> None:
        now[key] = (state, held)
        board.put(*key, state, held=held)
        if key[0] in known.pickers and state is TaskState.SUCCESS:
            if chance.random() < 0.1:  # marked by hand
                choices.pop(key, None)
                board.forget_pick(*key)
                return
            below = [one for one in upstream if key[0] in upstream[one]] + ["g"]
            named = [one for one in below if chance.random() < 0.4]
            choice = named if known.pickers[key[0]] is Picks.BRANCH else chance.random() < 0.5
            choices[key] = choice
            board.pick(*key, choice)

    count = chance.randint(1, 3)
    for task_id in upstream:
        one_by_one = range(count) if task_id in mapped and chance.random() < 0.7 else (SUMMARY,)
        for index in one_by_one:
            put((task_id, index), TaskState.NONE)
    for _ in range(20):
        for _ in range(chance.randint(0, 4) if now else 0):
            key = chance.choice(sorted(now))
            what = chance.random()
            if what < 0.1 and now[key][0] is TaskState.NONE and key[1] == SUMMARY:
                # It is expanded, perhaps not to its end.
                if chance.random() < 0.7:
                    del now[key]
                    board.drop(*key)
                for index in range(chance.randint(1, count)):
                    put((key[0], index), TaskState.NONE)
            else:
                put(key, chance.choice(LIKELY), held=chance.random() < 0.1)
        expected = decide_run(
            upstream=upstream,
            trigger_rules=rules,
            instances=[
                InstanceState(task_id=key[0], map_index=key[1], state=state, held=held)
                for key, (state, held) in now.items()
            ],
            ties=known,
            choices=choices,
            mapped=mapped,
        )
        decided = board.decide()
        assert decided == replace(
            expected,
            deciding_tasks=decided.deciding_tasks,
            expandable=decided.expandable,
        )
        assert sorted(decided.expandable) == sorted(expected.expandable)
        now |= {key: (state, False) for key, state in decided.marks.items()}
        if decided.state is not RunState.RUNNING:
            return


def test_instances_that_come_later_are_counted() -> None:
    board = Board(
        Graph(upstream={"a": (), "b": ("a",)}, trigger_rules={}, priorities={"a": 1, "b": 1})
    )
    board.put("a", -1, TaskState.SUCCESS, held=False)
    board.put("b", -1, TaskState.NONE, held=False)
    assert board.decide().ready == {("b", -1)}
    board.put("a", 0, TaskState.RUNNING, held=False)
    assert board.decide().ready == frozenset()
    board.put("a", 0, TaskState.SUCCESS, held=False)
    assert board.decide().ready == {("b", -1)}


def test_the_most_urgent_are_named_where_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(boards, "LINE_MAX", 3)
    board = Board(
        Graph(
            upstream={"a": (), "b": (), "c": ()},
            trigger_rules={},
            priorities={"a": 1, "b": 5},
            lines={"a": "of the pool", "b": "of the pool"},
        )
    )
    for task_id in ("a", "b"):
        for index in range(2):
            board.put(task_id, index, TaskState.NONE, held=False)
    assert board.decide().ready == {("b", 0), ("b", 1), ("a", 0)}
    board.put("b", 0, TaskState.QUEUED, held=False)
    assert board.decide().ready == {("b", 1), ("a", 0), ("a", 1)}
    # Nobody in another line waits for them.
    board.put("c", -1, TaskState.NONE, held=False)
    assert ("c", -1) in board.decide().ready
    board.put("b", 1, TaskState.NONE, held=True)
    assert board.decide().ready == {("a", 0), ("a", 1), ("c", -1)}


def test_no_more_are_named_where_as_many_as_urgent_are_scheduled_already(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(boards, "LINE_MAX", 3)
    board = Board(
        Graph(
            upstream={"a": (), "b": ()},
            trigger_rules={},
            priorities={"a": 1, "b": 5},
            lines={"a": "of the pool", "b": "of the pool"},
        )
    )
    for index in range(6):
        board.put("a", index, TaskState.NONE, held=False)
    assert board.decide().ready == {("a", 0), ("a", 1), ("a", 2)}
    for index in range(3):
        board.put("a", index, TaskState.SCHEDULED, held=False)
    assert board.decide().ready == frozenset()
    # What is more urgent than those is named whatever their number.
    for index in range(2):
        board.put("b", index, TaskState.NONE, held=False)
    assert board.decide().ready == {("b", 0), ("b", 1)}
    for index in range(2):
        board.put("b", index, TaskState.SCHEDULED, held=False)
    assert board.decide().ready == frozenset()
    # A frozen one starts with nobody's turn: the next comes in its place.
    for index in range(2):
        board.put("b", index, TaskState.SUCCESS, held=False)
    board.put("a", 1, TaskState.SCHEDULED, held=True)
    assert board.decide().ready == {("a", 3)}
    board.put("a", 1, TaskState.SCHEDULED, held=False)
    board.put("a", 0, TaskState.QUEUED, held=False)
    assert board.decide().ready == {("a", 3)}


def test_where_one_that_waits_says_nothing_of_the_next_more_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(boards, "LINE_MAX", 3)
    board = Board(Graph(upstream={"a": ()}, trigger_rules={}))
    for index in range(7):
        board.put("a", index, TaskState.NONE, held=False)
    for index in range(3):
        board.put("a", index, TaskState.SCHEDULED, held=False)
    assert board.decide().ready == {("a", 3), ("a", 4), ("a", 5)}


def test_a_summary_that_became_the_first_instance_counts_no_more() -> None:
    upstream = {"wide": (), "after": ("wide",)}
    board = Board(Graph(upstream=upstream, trigger_rules={}, mapped=expanded(["wide"])))
    board.put("wide", -1, TaskState.NONE, held=False)
    board.put("after", -1, TaskState.NONE, held=False)
    board.put("wide", 1, TaskState.NONE, held=False)
    board.drop("wide", -1)
    board.put("wide", 0, TaskState.NONE, held=False)
    assert board.decide().ready == {("wide", 0), ("wide", 1)}
    for index in range(2):
        board.put("wide", index, TaskState.SUCCESS, held=False)
    assert board.decide().ready == {("after", -1)}


def test_a_circle_is_refused() -> None:
    with pytest.raises(DefinitionError):
        Graph(upstream={"a": ("b",), "b": ("a",)}, trigger_rules={}, priorities={})


def looks(board: Board, number: int) -> Iterator[int]:
    """How many tasks each of so many looks went over, as one instance after the other ends."""
    for index in range(number):
        board.put("wide", index, TaskState.SUCCESS, held=False)
        yield len(board._changed)
        board.decide()


def test_what_a_look_costs_does_not_grow_with_the_run() -> None:
    order = [f"t{number}" for number in range(500)]
    random.Random(1).shuffle(order)
    upstream: dict[str, tuple[str, ...]] = {"wide": (), "after": ("wide",)}
    upstream |= dict.fromkeys(order, ("after",))
    board = Board(Graph(upstream=upstream, trigger_rules={}, priorities={}))
    for index in range(200):
        board.put("wide", index, TaskState.RUNNING, held=False)
    for task_id in ["after", *order]:
        board.put(task_id, -1, TaskState.NONE, held=False)
    board.decide()
    assert set(looks(board, 199)) == {2}  # itself and the one below


def test_in_a_mapped_group_a_look_goes_over_the_indexes_that_moved() -> None:
    tasks = (
        TaskDefinition(task_id="choose", group="g", picks=Picks.BRANCH),
        TaskDefinition(task_id="then", upstream=("choose",), group="g"),
        TaskDefinition(task_id="join", upstream=("then",), group="g", trigger_rule="none_failed"),
        TaskDefinition(task_id="end", upstream=("join",)),
    )
    flow = FlowDefinition(
        flow_id="f", tasks=tasks, groups=(GroupDefinition(group_id="g", mapped=OVER),)
    )
    board = Board(
        Graph(
            upstream={one.task_id: one.upstream for one in tasks},
            trigger_rules={one.task_id: one.trigger_rule for one in tasks},
            mapped=mapped_tasks(flow),
            ties=ties_of(flow),
        )
    )
    for index in range(200):
        board.put("choose", index, TaskState.RUNNING, held=False)
        board.put("then", index, TaskState.NONE, held=False)
        board.put("join", index, TaskState.NONE, held=False)
    board.put("end", SUMMARY, TaskState.NONE, held=False)
    board.decide()
    for index in range(199):
        board.put("choose", index, TaskState.SUCCESS, held=False)
        board.pick("choose", index, ["then"] if index % 2 else [])
        assert not board._whole
        assert board._stale == {"then": {index}, "join": set()}
        decision = board.decide()
        assert (("then", index) in decision.ready) == bool(index % 2)
        assert decision.marks.keys() == (set() if index % 2 else {("then", index)})
        assert ("join", index) in decision.ready or index % 2
