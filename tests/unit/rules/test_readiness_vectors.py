"""The vectors of the four trigger rules that the product has; none of the compared ones differs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from scheduler_app.rules import readiness
from scheduler_app.rules.readiness import UpstreamCounts
from tests.vectors.cases import case as vector
from tests.vectors.cases import cases, parameters

if TYPE_CHECKING:
    from tests.vectors.cases import Case

_GROUP = "instances of a mapped group look at their own index: mapping comes later"
_SETUP = "setups that are not direct upstream: setup and teardown come later"
_PAST = "tasks do not depend on earlier runs yet"
LEFT_OUT = {
    "mapped-removed-own-index-3": "which mapped instances are removed: mapping comes later",
    "group-all_success-own-ok": _GROUP,
    "group-all_success-own-failed": _GROUP,
    "group-one_failed-own-failed": _GROUP,
    "group-all_done-other-running": _GROUP,
    "indirect-setup-failed": _SETUP,
    "indirect-setup-skipped": _SETUP,
    "indirect-setup-skipped-one_failed": _SETUP,
    "indirect-setup-skipped-and-failed": _SETUP,
    "indirect-setup-success": _SETUP,
    "past-unmet-would-skip": _PAST,
    "past-met-would-skip": _PAST,
    "past-unmet-one_failed-all-ok": _PAST,
    "order-fail-then-skip": "a sequence: it has a test of its own below",
}

COMPARED = [
    one
    for one in cases("trigger_rules")
    if one.given["trigger_rule"] in readiness.KNOWN_RULES and one.id not in LEFT_OUT
]
WORDS = {"skip": "skipped"}


def decide(rule: str, states: list[str]) -> str:
    """The product's decision in the words of the vectors."""
    ended = Counter(states)
    counts = UpstreamCounts(
        total=len(states),
        success=ended["success"],
        failed=ended["failed"],
        skipped=ended["skipped"],
        upstream_failed=ended["upstream_failed"],
        removed=ended["removed"],
    )
    decision = readiness.decide(rule, counts).value
    return WORDS.get(decision, decision)


@parameters(COMPARED)
def test_a_rule_decides_as_the_vector_says(case: Case) -> None:
    assert (
        decide(case.given["trigger_rule"], case.given["upstream_states"])
        == (case.wanted["decision"])
    )


def test_the_first_bad_upstream_decides_and_a_later_one_finds_the_same() -> None:
    case = vector("trigger_rules", "order-fail-then-skip")
    decisions = [
        decide(case.given["trigger_rule"], states)
        for states in case.given["upstream_states_over_time"]
    ]
    assert decisions == case.wanted["decisions"]


def test_each_of_the_four_rules_is_compared() -> None:
    compared = Counter(one.given["trigger_rule"] for one in COMPARED)
    assert set(compared) == readiness.KNOWN_RULES
    assert sum(compared.values()) == 76
