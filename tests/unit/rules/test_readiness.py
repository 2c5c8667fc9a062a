from __future__ import annotations

import pytest

from scheduler_app.rules import readiness
from scheduler_app.rules.definition import TriggerRule
from scheduler_app.rules.errors import InvalidInput
from scheduler_app.rules.readiness import Decision, UpstreamCounts


@pytest.mark.parametrize("rule", list(TriggerRule))
def test_a_task_without_upstream_is_ready_under_every_rule(rule: TriggerRule) -> None:
    assert readiness.decide(rule, UpstreamCounts(total=0)) is Decision.READY


@pytest.mark.parametrize("rule", list(TriggerRule))
def test_a_task_waits_while_nothing_of_its_upstream_ended(rule: TriggerRule) -> None:
    expected = Decision.READY if rule is TriggerRule.ALWAYS else Decision.WAIT
    assert readiness.decide(rule, UpstreamCounts(total=2)) is expected


def test_a_rule_of_another_version_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(InvalidInput, match="'no_such_rule'") as raised:
        readiness.decide("no_such_rule", UpstreamCounts(total=0))
    assert all(rule in str(raised.value.extra["remedy"]) for rule in TriggerRule)


def test_the_known_rules_are_those_that_a_definition_may_name() -> None:
    assert {str(rule) for rule in TriggerRule} == readiness.KNOWN_RULES


def test_removed_upstream_counts_neither_for_nor_against() -> None:
    counts = UpstreamCounts(total=3, success=1, removed=2)
    assert readiness.decide("all_success", counts) is Decision.READY
    assert readiness.decide("one_failed", counts) is Decision.SKIP


def test_failure_outranks_a_skip_that_is_known_at_the_same_time() -> None:
    counts = UpstreamCounts(total=3, skipped=1, upstream_failed=1)
    assert readiness.decide("all_success", counts) is Decision.UPSTREAM_FAILED
