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


def decide(rule: str, counts: UpstreamCounts) -> Decision:
    """What the rule says now. A task without upstream is ready under every rule.

    ``all_success`` and ``none_failed`` decide on the first bad upstream, without waiting for the
    others. Raises ``InvalidInput`` for a rule that this version does not know.
    """
    match rule:
        case TriggerRule.ALL_SUCCESS:
            if counts.bad:
                return Decision.UPSTREAM_FAILED
            if counts.skipped:
                return Decision.SKIP
            return _ready_when_all_ended(counts)
        case TriggerRule.NONE_FAILED:
            return Decision.UPSTREAM_FAILED if counts.bad else _ready_when_all_ended(counts)
        case TriggerRule.ALL_DONE:
            return _ready_when_all_ended(counts)
        case TriggerRule.ONE_FAILED:
            if counts.bad or not counts.total:
                return Decision.READY
            return Decision.WAIT if counts.unfinished else Decision.SKIP
    known = ", ".join(sorted(KNOWN_RULES))
    raise InvalidInput(
        f"There is no trigger rule {rule!r}.",
        field="trigger_rule",
        remedy=f"Write one of {known}.",
    )


def _ready_when_all_ended(counts: UpstreamCounts) -> Decision:
    return Decision.WAIT if counts.unfinished else Decision.READY
