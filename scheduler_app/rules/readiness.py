"""May a task start, seen from its direct upstream task instances?"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from scheduler_app.rules.definition import TriggerRule
from scheduler_app.rules.errors import InvalidInput

KNOWN_RULES: Final = frozenset(rule.value for rule in TriggerRule)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamCounts:
    """How the direct upstream task instances ended; those that did not yet are in ``total`` alone."""

    total: int
    success: int = 0
    failed: int = 0
    skipped: int = 0
    upstream_failed: int = 0
    removed: int = 0  # neutral: they count neither for nor against

    @property
    def unfinished(self) -> int:
        """How many have no terminal state yet."""
        ended = self.success + self.failed + self.skipped + self.upstream_failed + self.removed
        return self.total - ended

    @property
    def bad(self) -> int:
        """How many failed, or were given up because something before them failed."""
        return self.failed + self.upstream_failed


class Decision(StrEnum):
    """What the trigger rule says of a task that has not started."""

    READY = "ready"
    WAIT = "wait"  # undecided: look again when another upstream ended
    SKIP = "skip"
    UPSTREAM_FAILED = "upstream_failed"


NO_SETUPS: Final = UpstreamCounts(total=0)


def decide(  # noqa: C901, PLR0912 - a table: one line for each rule
    rule: str, counts: UpstreamCounts, setups: UpstreamCounts = NO_SETUPS
) -> Decision:
    """What the rule says now. A task without upstream is ready under every rule.

    ``setups`` are those of a teardown: ``all_done_setup_success`` wants one of them to have
    succeeded, where there are any. A rule decides as soon as no end of what is unfinished could
    change what it says, so that neither the order of finishing nor the moment of asking decides.
    Raises ``InvalidInput`` for a rule that this version does not know.
    """
    if not counts.total and not setups.total:
        if rule in KNOWN_RULES:
            return Decision.READY
        raise _unknown(rule)
    skipped = Decision.SKIP if counts.skipped else None
    given_up = Decision.UPSTREAM_FAILED if counts.bad else None
    match rule:
        case TriggerRule.ALWAYS:
            return Decision.READY
        case TriggerRule.ALL_SUCCESS:
            return given_up or _when_all_ended(counts, skipped or Decision.READY)
        case TriggerRule.ALL_FAILED:
            return Decision.SKIP if counts.success else skipped or _when_all_ended(counts)
        case TriggerRule.ALL_DONE:
            return _when_all_ended(counts)
        case TriggerRule.ALL_DONE_MIN_ONE_SUCCESS:
            late = Decision.READY if counts.success else Decision.UPSTREAM_FAILED
            return skipped or _when_all_ended(counts, late)
        case TriggerRule.ALL_DONE_SETUP_SUCCESS:
            return _after_setups(counts, setups)
        case TriggerRule.ALL_SKIPPED:
            unmet = counts.success or counts.bad
            return Decision.SKIP if unmet else _when_all_ended(counts)
        case TriggerRule.ONE_SUCCESS:
            late = given_up or skipped or Decision.UPSTREAM_FAILED
            return Decision.READY if counts.success else _when_all_ended(counts, late)
        case TriggerRule.ONE_FAILED:
            return Decision.READY if counts.bad else _when_all_ended(counts, Decision.SKIP)
        case TriggerRule.ONE_DONE:
            met = counts.success or counts.failed
            return Decision.READY if met else _when_all_ended(counts, Decision.SKIP)
        case TriggerRule.NONE_FAILED:
            return given_up or _when_all_ended(counts)
        case TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS:
            late = Decision.READY if counts.success else skipped or Decision.UPSTREAM_FAILED
            return given_up or _when_all_ended(counts, late)
        case TriggerRule.NONE_SKIPPED:
            return skipped or _when_all_ended(counts)
    raise _unknown(rule)


def _when_all_ended(counts: UpstreamCounts, late: Decision = Decision.READY) -> Decision:
    return Decision.WAIT if counts.unfinished else late


def _after_setups(counts: UpstreamCounts, setups: UpstreamCounts) -> Decision:
    """Without any setup that succeeded there is nothing to take away."""
    if counts.unfinished or setups.unfinished:
        return Decision.WAIT
    if setups.success or setups.total == setups.removed:
        return Decision.READY
    return Decision.UPSTREAM_FAILED if setups.bad else Decision.SKIP


def decide_setups(setups: UpstreamCounts) -> Decision:
    """What the setups above a task say that it does not follow directly: ready if all succeeded.

    They are asked before the trigger rule, which is not asked unless they are ready; a failure
    outranks a skip. ``always`` asks nobody.
    """
    if setups.bad:
        return Decision.UPSTREAM_FAILED
    return _when_all_ended(setups, Decision.SKIP if setups.skipped else Decision.READY)


def _unknown(rule: str) -> InvalidInput:
    known = ", ".join(sorted(KNOWN_RULES))
    return InvalidInput(
        f"There is no trigger rule {rule!r}.",
        field="trigger_rule",
        remedy=f"Write one of {known}.",
    )
