"""The tables of moves are closed, and nothing is a dead end that should not be one."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules.states import (
    ATTEMPT_MOVES,
    DISPATCHABLE,
    RUN_MOVES,
    RUN_TERMINAL,
    TASK_MOVES,
    TASK_TERMINAL,
    AttemptState,
    RunState,
    TaskState,
    run_sources_of,
    sources_of,
)

TABLES = [
    pytest.param(TASK_MOVES, TaskState, id="task instance"),
    pytest.param(RUN_MOVES, RunState, id="run"),
    pytest.param(ATTEMPT_MOVES, AttemptState, id="attempt"),
]


@pytest.mark.parametrize(("moves", "states"), TABLES)
def test_every_state_has_its_moves_and_none_leads_out_of_the_table(
    moves: Mapping[StrEnum, frozenset[StrEnum]], states: type[StrEnum]
) -> None:
    assert set(moves) == set(states)
    for source, targets in moves.items():
        assert targets <= set(states)
        assert source not in targets, "a move changes the state"


@pytest.mark.parametrize(("moves", "states"), TABLES)
def test_every_state_can_be_reached_from_the_first(
    moves: Mapping[StrEnum, frozenset[StrEnum]], states: type[StrEnum]
) -> None:
    first = next(iter(states))
    assert reached(moves, first) | {first} == set(states)


def test_every_unfinished_task_instance_can_end() -> None:
    for state in set(TaskState) - TASK_TERMINAL:
        assert reached(TASK_MOVES, state) & TASK_TERMINAL


def test_a_terminal_task_state_leads_to_none_or_to_another_terminal_state_alone() -> None:
    for state in TASK_TERMINAL:
        assert TASK_MOVES[state] <= TASK_TERMINAL | {TaskState.NONE}


def test_an_ended_run_starts_again_only_by_waiting_for_room() -> None:
    for state in RUN_TERMINAL:
        assert RUN_MOVES[state] - RUN_TERMINAL == {RunState.QUEUED}


def test_an_attempt_never_goes_back() -> None:
    order = list(AttemptState)
    for source, targets in ATTEMPT_MOVES.items():
        assert all(order.index(target) > order.index(source) for target in targets)


def test_what_may_be_dispatched_may_be_queued() -> None:
    assert sources_of(TaskState.QUEUED) == DISPATCHABLE


def test_only_a_queued_task_instance_starts_running() -> None:
    assert sources_of(TaskState.RUNNING) == {TaskState.QUEUED}


@given(st.sampled_from(TaskState), st.sampled_from(TaskState))
def test_sources_are_the_moves_read_backwards(source: TaskState, target: TaskState) -> None:
    assert (source in sources_of(target)) == (target in TASK_MOVES[source])


@given(st.sampled_from(RunState), st.sampled_from(RunState))
def test_sources_of_runs_are_their_moves_read_backwards(source: RunState, target: RunState) -> None:
    assert (source in run_sources_of(target)) == (target in RUN_MOVES[source])


def reached(moves: Mapping[Any, frozenset[Any]], start: Any) -> set[Any]:
    """Every state that some chain of moves leads to."""
    found: set[Any] = set()
    open_states = [start]
    while open_states:
        for target in moves[open_states.pop()]:
            if target not in found:
                found.add(target)
                open_states.append(target)
    return found
