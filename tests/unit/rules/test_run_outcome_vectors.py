"""The vectors of run states, left-out and differing ones named with their reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.rules import run_outcome
from scheduler_app.rules.definition import FlowDefinition, TaskDefinition, TriggerRule
from scheduler_app.rules.roles import Role
from scheduler_app.rules.run_outcome import InstanceState, RunDecision
from scheduler_app.rules.states import RunState, TaskState
from scheduler_app.rules.ties import ties_of
from tests.vectors.cases import case as vector
from tests.vectors.cases import cases, parameters

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.vectors.cases import Case

_PAST = "tasks do not depend on earlier runs yet"
_ROWS = "it needs rows: tests/integration/scheduler/test_run_state_vectors.py has it"
LEFT_OUT = {
    "no-deadlock-depends-on-past": _PAST,
    "no-deadlock-past-unmet-alone": _PAST,
    "timeout-not-yet": _ROWS,
    "timeout-not-started": _ROWS,
    "pause-after-failures-1": _ROWS,
    "pause-after-failures-2": _ROWS,
    "pause-after-failures-4": _ROWS,
    "pause-after-failures-5": _ROWS,
    "transition-running-failed": _ROWS,
    "transition-queued-running": _ROWS,
    "transition-failed-running": _ROWS,
    "transition-success-failed": _ROWS,
    "transition-running-running": _ROWS,
    "transition-running-queued": _ROWS,
}

_CASCADE = (
    "Marks cascade in one pass and the run ends with them: a run of thousands of tasks ends in the"
    " tick that saw the failure, where one level per pass costs a tick, and a transaction, a level."
)
# Told pass by pass: these are held to what they settle to.
SETTLING = {
    "chain-long-cascade": _CASCADE,
    "chain-skip-cascade": _CASCADE,
    "setup-failed-pending": _CASCADE,
    "branch-join-default-rule-skips": _CASCADE,
}
DIFFERING = {
    "deadlock-unknown-rule": (
        "A run ends only when none of its task instances is unfinished, so what waits for ever is"
        " given up in the same decision; left in none, it would look as if it could still start."
    ),
    "instance-without-task-failed": (
        "A terminal state changes only by an explicit, audited act: the failure stays on record,"
        " and is counted out because its task is not in the definition."
    ),
}

COMPARED = [
    one for one in cases("run_state") if one.id not in {**LEFT_OUT, **SETTLING, **DIFFERING}
]


def decide(case: Case) -> RunDecision:
    """The product's decision on the case."""
    tasks = [_task(raw) for raw in case.given["flow"]["tasks"]]
    return run_outcome.decide_run(
        upstream={task.task_id: task.upstream for task in tasks},
        trigger_rules={task.task_id: task.trigger_rule for task in tasks},
        instances=[
            InstanceState(
                task_id=one["task"], map_index=one["map_index"], state=TaskState(one["state"])
            )
            for one in case.given["instances"]
        ],
        ties=ties_of(FlowDefinition(flow_id="f", tasks=tuple(tasks))),
    )


def _task(raw: dict[str, Any]) -> TaskDefinition:
    role = Role.TEARDOWN if raw.get("teardown") else Role.SETUP if raw.get("setup") else Role.WORK
    rule = TriggerRule.ALL_DONE_SETUP_SUCCESS if role is Role.TEARDOWN else TriggerRule.ALL_SUCCESS
    return TaskDefinition(
        task_id=raw["id"],
        upstream=tuple(raw.get("upstream", ())),
        trigger_rule=raw.get("trigger_rule", rule),
        role=role,
        fails_run=raw.get("teardown_fails_run", False),
    )


def seen(case: Case, decision: RunDecision) -> dict[str, Any]:
    """The decision in the words of the vectors."""
    given = {(one["task"], one["map_index"]): one for one in case.given["instances"]}
    states = {key: one["state"] for key, one in given.items()}
    # The tick dispatches what waits for a time when that has come.
    due = {
        key
        for key, one in given.items()
        if one["state"] in {"up_for_retry", "up_for_reschedule"}
        and not one.get("retry_wait")
        and not one.get("reschedule_wait")
    }
    return {
        "run_state": decision.state.value,
        "reason": decision.code or None,
        "schedulable": {*decision.ready, *due},
        "instance_changes": {(*key, state.value) for key, state in decision.marks.items()},
        "deciding_tasks": set(decision.deciding_tasks),
        "settled": {
            "run_state": decision.state.value,
            "reason": decision.code or None,
            "states": states | {key: state.value for key, state in decision.marks.items()},
        },
    }


def wanted(raw: dict[str, Any]) -> dict[str, Any]:
    """What a vector wants, lists of instances as sets."""
    shapes: dict[str, Callable[[Any], Any]] = {
        "schedulable": lambda value: {tuple(one) for one in value},
        "instance_changes": lambda value: {
            (one["task"], one["map_index"], one["state"]) for one in value
        },
        "deciding_tasks": set,
        "states": lambda value: {(one["task"], one["map_index"]): one["state"] for one in value},
        "settled": wanted,
    }
    return {key: shapes[key](value) if key in shapes else value for key, value in raw.items()}


@parameters(COMPARED)
def test_a_run_is_decided_as_the_vector_says(case: Case) -> None:
    expected = wanted(case.wanted)
    got = seen(case, decide(case))
    assert {key: got[key] for key in expected} == expected


@pytest.mark.parametrize("case_id", list(SETTLING))
def test_a_cascade_settles_in_one_pass_where_the_vector_takes_one_a_level(case_id: str) -> None:
    case = vector("run_state", case_id)
    expected = wanted(case.expect)
    got = seen(case, decide(case))
    assert expected["run_state"] == "running", "the vector needs another pass"
    assert got["settled"] == expected["settled"]
    assert got["instance_changes"] >= expected["instance_changes"]


def test_a_deadlocked_run_fails_and_gives_up_what_would_wait_for_ever() -> None:
    case = vector("run_state", "deadlock-unknown-rule")
    decision = decide(case)
    assert (decision.state, decision.code) == (RunState.FAILED, case.expect["reason"])
    assert decision.marks == {("b", -1): TaskState.UPSTREAM_FAILED}


def test_a_failure_whose_task_left_the_definition_stays_on_record_and_does_not_decide() -> None:
    decision = decide(vector("run_state", "instance-without-task-failed"))
    assert decision.marks == {}
    assert decision.state is RunState.SUCCESS


def test_few_vectors_of_run_state_and_retry_delay_differ() -> None:
    from tests.unit.rules import test_retry_vectors  # noqa: PLC0415 - its table, not its tests

    compared = len(COMPARED) + len(SETTLING) + len(DIFFERING) + len(test_retry_vectors.COMPARED)
    assert len(DIFFERING) + len(test_retry_vectors.DIFFERING) <= 0.05 * compared


def test_every_vector_that_is_named_exists() -> None:
    known = {one.id for one in cases("run_state")}
    assert {*LEFT_OUT, *SETTLING, *DIFFERING} <= known
    assert not LEFT_OUT.keys() & DIFFERING.keys()
