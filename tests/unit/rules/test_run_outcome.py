from __future__ import annotations

from collections.abc import Mapping

import pytest

from scheduler_app.rules import run_outcome
from scheduler_app.rules.errors import DefinitionError
from scheduler_app.rules.run_outcome import InstanceState, RunDecision
from scheduler_app.rules.states import TASK_TERMINAL, RunState, TaskState

CHAIN = {"a": (), "b": ("a",), "c": ("b",)}


def decide(
    upstream: Mapping[str, tuple[str, ...]],
    states: Mapping[str, str],
    *,
    rules: Mapping[str, str] | None = None,
    held: tuple[str, ...] = (),
) -> RunDecision:
    """The decision for one instance a task; ``b[2]`` names a map index."""
    instances = []
    for name, state in states.items():
        task_id, _, index = name.rstrip("]").partition("[")
        instances.append(
            InstanceState(
                task_id=task_id,
                map_index=int(index or -1),
                state=TaskState(state),
                held=name in held,
            )
        )
    return run_outcome.decide_run(upstream=upstream, trigger_rules=rules or {}, instances=instances)


def test_the_first_tasks_of_a_new_run_are_ready_and_the_run_goes_on() -> None:
    decision = decide(CHAIN, {"a": "none", "b": "none", "c": "none"})
    assert decision.ready == {("a", -1)}
    assert (decision.state, decision.code, decision.reason) == (RunState.RUNNING, "", "")
    assert decision.marks == {}


def test_a_failure_cascades_to_the_end_in_one_decision() -> None:
    decision = decide(CHAIN, {"a": "failed", "b": "none", "c": "none"})
    assert decision.marks == {
        ("b", -1): TaskState.UPSTREAM_FAILED,
        ("c", -1): TaskState.UPSTREAM_FAILED,
    }
    assert (decision.state, decision.reason) == (RunState.FAILED, "a failed.")


def test_a_graph_in_any_order_cascades_as_well() -> None:
    upside_down = {task_id: CHAIN[task_id] for task_id in reversed(CHAIN)}
    decision = decide(upside_down, {"a": "skipped", "b": "none", "c": "none"})
    assert decision.marks == {("b", -1): TaskState.SKIPPED, ("c", -1): TaskState.SKIPPED}
    assert decision.state is RunState.SUCCESS


def test_a_cleaner_behind_a_failure_is_ready_in_the_same_decision() -> None:
    decision = decide(CHAIN, {"a": "failed", "b": "none", "c": "none"}, rules={"c": "all_done"})
    assert decision.marks == {("b", -1): TaskState.UPSTREAM_FAILED}
    assert decision.ready == {("c", -1)}
    assert decision.state is RunState.RUNNING


def test_failure_outranks_skip_where_one_decision_sees_both() -> None:
    fork = {"a": (), "s": (), "b": ("a",), "join": ("b", "s")}
    decision = decide(fork, {"a": "failed", "s": "skipped", "b": "none", "join": "none"})
    assert decision.marks["join", -1] is TaskState.UPSTREAM_FAILED


@pytest.mark.parametrize("state", sorted(set(TaskState) - TASK_TERMINAL - {TaskState.NONE}))
def test_what_was_let_go_once_is_neither_marked_nor_ready(state: str) -> None:
    decision = decide({"a": (), "b": ("a",)}, {"a": "failed", "b": state})
    assert (decision.marks, decision.ready) == ({}, frozenset())
    assert decision.state is RunState.RUNNING


def test_a_frozen_instance_holds_back_what_would_follow_from_it() -> None:
    states = {"a": "failed", "b": "none", "c": "none"}
    decision = decide(CHAIN, states, held=("b",))
    assert (decision.marks, decision.ready) == ({}, frozenset())
    assert decision.state is RunState.RUNNING


def test_a_frozen_instance_that_could_start_does_not_and_is_no_deadlock() -> None:
    decision = decide({"a": ()}, {"a": "none"}, held=("a",))
    assert (decision.state, decision.ready) == (RunState.RUNNING, frozenset())


def test_all_instances_of_a_mapped_task_count() -> None:
    states = {"a": "success", "b[0]": "success", "b[1]": "running", "c": "none"}
    assert decide(CHAIN, states).ready == frozenset()
    assert decide(CHAIN, states | {"b[1]": "success"}).ready == {("c", -1)}
    assert decide(CHAIN, states | {"b[1]": "failed"}).marks == {
        ("c", -1): TaskState.UPSTREAM_FAILED
    }


def test_every_instance_of_a_mapped_task_is_let_go() -> None:
    decision = decide(CHAIN, {"a": "success", "b[0]": "none", "b[1]": "none", "c": "none"})
    assert decision.ready == {("b", 0), ("b", 1)}


def test_a_task_without_instances_is_waited_for_and_the_run_says_so() -> None:
    decision = decide({"a": (), "b": ("a",)}, {"b": "none"})
    assert (decision.state, decision.code) == (RunState.FAILED, run_outcome.ALL_TASKS_DEADLOCKED)
    assert decision.marks == {("b", -1): TaskState.UPSTREAM_FAILED}
    assert "b would wait for ever" in decision.reason


def test_an_upstream_that_the_definition_does_not_have_is_waited_for_too() -> None:
    decision = decide({"b": ("gone",)}, {"b": "none"})
    assert decision.code == run_outcome.ALL_TASKS_DEADLOCKED


def test_a_rule_of_a_newer_version_holds_its_task_back_while_others_go_on() -> None:
    states = {"a": "success", "b": "none", "c": "none"}
    fork = {"a": (), "b": ("a",), "c": ("a",)}
    decision = decide(fork, states, rules={"b": "of_tomorrow"})
    assert (decision.state, decision.ready) == (RunState.RUNNING, frozenset({("c", -1)}))
    waiting = decide(fork, states | {"c": "running"}, rules={"b": "of_tomorrow"})
    assert (waiting.state, waiting.marks) == (RunState.RUNNING, {})


def test_an_instance_whose_task_is_not_in_the_definition_is_removed_only_if_it_never_started() -> (
    None
):
    decision = decide({"a": ()}, {"a": "success", "new": "none", "old": "running"})
    assert decision.marks == {("new", -1): TaskState.REMOVED}
    assert decision.state is RunState.RUNNING, "what runs is waited for"


def test_a_failure_before_a_removed_middle_still_fails_the_run() -> None:
    decision = decide(CHAIN, {"a": "failed", "b": "removed", "c": "success"})
    assert decision.state is RunState.FAILED
    assert decision.deciding_tasks == ("a", "c")


def test_a_failure_that_another_path_leads_on_from_is_forgiven_as_ever() -> None:
    fork = {"a": (), "b": ("a",), "c": ("a",)}
    decision = decide(fork, {"a": "failed", "b": "removed", "c": "success"})
    assert decision.state is RunState.SUCCESS


def test_the_reason_names_a_few_tasks_and_fits_its_column() -> None:
    long = {f"{number}{'x' * 249}": () for number in range(9)}
    decision = decide(long, dict.fromkeys(long, "failed"))
    assert decision.reason.endswith("… and 6 more failed.")
    assert len(decision.reason) <= 250


def test_a_run_whose_tasks_wait_for_each_other_is_refused() -> None:
    with pytest.raises(DefinitionError, match="a -> b -> a"):
        decide({"a": ("b",), "b": ("a",)}, {"a": "none", "b": "none"})
