"""A board that hears of every change decides as the function that looks at every instance."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules import board as boards
from scheduler_app.rules.board import Board, Graph
from scheduler_app.rules.errors import DefinitionError
from scheduler_app.rules.mapping import SUMMARY, MapOver, MappedTask
from scheduler_app.rules.run_outcome import InstanceState, Key, decide_run
from scheduler_app.rules.states import RunState, TaskState
from tests.unit.rules.test_run_outcome_properties import Run, runs

Change = tuple[Key, TaskState, bool]


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
