"""The vectors of trigger rules, each played as a small flow whose last task is asked about."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from scheduler_app.authoring.options import BadOption, trigger_rule
from scheduler_app.rules import readiness, run_outcome
from scheduler_app.rules.definition import FlowDefinition, TaskDefinition
from scheduler_app.rules.roles import Role
from scheduler_app.rules.run_outcome import InstanceState
from scheduler_app.rules.states import TaskState
from scheduler_app.rules.ties import ties_of
from tests.vectors.cases import case as vector
from tests.vectors.cases import cases, parameters

if TYPE_CHECKING:
    from tests.vectors.cases import Case

_PAST = (
    "depends_on_past keeps a task from starting. A task that its rule skips starts nothing, so it is"
    " skipped as soon as its upstream says so, whatever became of it in the run before."
)
_BOTH = (
    "whether it is skipped or given up must not hang on which end is seen first: a skip is not said"
    " before everything has ended that could still fail"
)
DIFFERING = {
    "all_success-sk_running": _BOTH,
    "five-all_success-s2k1f0u0": _BOTH,
    "mapped-removed-own-index-3": (
        "A mapped instance is removed because the length of what it maps over is known to have"
        " shrunk, as the notes recommend, not because so many of its upstream succeeded; the rule"
        " leaves it as it is."
    ),
    "past-unmet-would-skip": _PAST,
    "past-unmet-one_failed-all-ok": _PAST,
}
SPECIAL = {
    "unknown-rule": "refused where it is written: a test of its own below",
    "order-fail-then-skip": "a sequence: a test of its own below",
}

ALL = cases("trigger_rules")
COMPARED = [one for one in ALL if one.id not in DIFFERING and one.id not in SPECIAL]


def decide(case: Case, states: list[str] | None = None) -> str:
    """What the product says of the last task of the case, in the words of the vectors."""
    given = case.given
    own_index = given.get("own_map_index", -1)
    if states is None:
        if "upstream_states_by_index" in given:
            by_index = given["upstream_states_by_index"]
            # An expanded instance of a group looks at its own index; one that is not, at all.
            states = by_index if own_index < 0 else [by_index[own_index]]
        else:
            states = given["upstream_states"]
    setups = [f"s{n}" for n, _ in enumerate(given.get("upstream_setup_states", ()))]
    indirect = [f"i{n}" for n, _ in enumerate(given.get("indirect_setup_states", ()))]
    scope = [f"x{n}" for n, _ in enumerate(given.get("in_scope_states", ()))]
    is_mapped = given.get("upstream_mapped", False)
    work = ["w0"] * bool(states) if is_mapped else [f"w{n}" for n, _ in enumerate(states)]
    tasks = [
        *(TaskDefinition(task_id=one, role=Role.SETUP) for one in (*setups, *indirect)),
        *(TaskDefinition(task_id=one, upstream=tuple(setups)) for one in scope),
        *(TaskDefinition(task_id=one, upstream=(*indirect, *scope)) for one in work),
        TaskDefinition(
            task_id="me",
            upstream=(*work, *setups),
            trigger_rule=given["trigger_rule"],
            role=Role.TEARDOWN if given.get("is_teardown") else Role.WORK,
        ),
    ]
    flow = FlowDefinition(flow_id="f", tasks=tuple(tasks))
    told = [
        *zip(setups, given.get("upstream_setup_states", ()), strict=True),
        *zip(indirect, given.get("indirect_setup_states", ()), strict=True),
        *zip(scope, given.get("in_scope_states", ()), strict=True),
    ]
    instances = [
        InstanceState(task_id=one, map_index=-1, state=TaskState(state)) for one, state in told
    ]
    instances += [
        InstanceState(
            task_id="w0" if is_mapped else f"w{n}",
            map_index=n if is_mapped else -1,
            state=TaskState(state),
        )
        for n, state in enumerate(states)
    ]
    instances.append(InstanceState(task_id="me", map_index=own_index, state=TaskState.NONE))
    decision = run_outcome.decide_run(
        upstream={task.task_id: task.upstream for task in tasks},
        trigger_rules={task.task_id: task.trigger_rule for task in tasks},
        instances=instances,
        ties=ties_of(flow),
    )
    if ("me", own_index) in decision.ready:
        return "ready"
    return str(decision.marks.get(("me", own_index), "wait"))


@parameters(COMPARED)
def test_a_rule_decides_as_the_vector_says(case: Case) -> None:
    assert decide(case) == case.wanted["decision"]


def test_the_first_bad_upstream_decides_and_a_later_one_finds_the_same() -> None:
    case = vector("trigger_rules", "order-fail-then-skip")
    decisions = [decide(case, states) for states in case.given["upstream_states_over_time"]]
    assert decisions == case.wanted["decisions"]


def test_a_rule_that_does_not_exist_is_refused_where_it_is_written() -> None:
    case = vector("trigger_rules", "unknown-rule")
    assert case.wanted["decision"] == "reject_at_parse"
    with pytest.raises(BadOption, match="all_done_min_one_success"):
        trigger_rule(case.given["trigger_rule"])


def test_a_mapped_instance_beyond_what_succeeded_may_start() -> None:
    """Its index says nothing: whether it is removed is decided by the length, not by the rule."""
    case = vector("trigger_rules", "mapped-removed-own-index-3")
    assert (case.wanted["decision"], decide(case)) == ("removed", "ready")


@pytest.mark.parametrize("case_id", [one for one, why in DIFFERING.items() if why == _BOTH])
def test_a_skip_waits_for_what_could_still_fail(case_id: str) -> None:
    case = vector("trigger_rules", case_id)
    assert (case.wanted["decision"], decide(case)) == ("skipped", "wait")
    unfinished = {"queued": "success", "none": "success"}
    given = {
        name: [unfinished.get(one, one) for one in value] if name.endswith("_states") else value
        for name, value in case.given.items()
    }
    assert decide(replace(case, given=given)) == "skipped", "once the others have ended well"


@pytest.mark.parametrize("case_id", [one for one, why in DIFFERING.items() if why == _PAST])
def test_a_skip_does_not_wait_for_the_run_before(case_id: str) -> None:
    """Moved by the scheduler: ``test_past.py``."""
    case = vector("trigger_rules", case_id)
    assert case.wanted["decision"] == "wait"
    assert decide(case) == "skipped"


def test_every_rule_is_compared_and_few_cases_differ() -> None:
    compared = Counter(one.given["trigger_rule"] for one in COMPARED)
    assert set(compared) == readiness.KNOWN_RULES
    assert len(COMPARED) == len(ALL) - len(DIFFERING) - len(SPECIAL)
    assert len(DIFFERING) <= 0.05 * len(ALL)
    assert {*DIFFERING, *SPECIAL} <= {one.id for one in ALL}
