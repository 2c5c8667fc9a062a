"""What an executor event means for the attempt that it names: a verdict, a reason, an action.

An event is what a witness outside the user code says. It never grants success; it may only start
a loss check. Every dispatch has its own attempt id, so an event of an execution that was replaced
(a late exit after a deferral, a message of a lost worker) is told from one about the current
execution by identity, not by guessing from states and try numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal, assert_never

from scheduler_app.rules import visibility
from scheduler_app.rules.states import AttemptOutcome, AttemptState, TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping

EXIT_SUCCESS: Final = "exit_success"  # its process ended and says that the task reported well
EXIT_FAILED: Final = "exit_failed"  # its process ended with an error
EXIT_KILLED: Final = "exit_killed"  # its process ended without a word
WORKER_LOST: Final = "worker_lost"  # the worker, or a part of it, fell silent
HANDED_BACK: Final = "handed_back"  # the worker shuts down and gives it back
DELIVERY_REFUSED: Final = "delivery_refused"  # a message arrived and nothing was started
LATE_REPORT: Final = "late_report"  # a result arrived that the database did not take

KILLED_EXTERNALLY: Final = "killed_externally"  # codes of confirmed events; no row is set aside
LOST: Final = "worker_lost"
NEVER_CLAIMED: Final = "never_claimed"

VerdictName = Literal["pending", "confirmed", "ignored", "refused", "ghost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One statement of a witness."""

    kind: str
    attempt_id: str | None  # null from an executor that knows only task and try
    try_number: int | None = None
    claimed: Mapping[str, Any] = field(default_factory=dict)  # what else the witness said


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFacts:
    """The attempt that the event names, as it is now."""

    attempt_id: str
    state: AttemptState
    outcome: AttemptOutcome | None
    is_current: bool  # it is its task instance's current attempt
    superseded_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """The task instance of the attempt, as it is now."""

    state: TaskState
    try_number: int
    next_method: str | None  # set while it resumes after a deferral
    held: bool  # by a freeze


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What else the verdict depends on."""

    grace_over: bool  # a report under way would have arrived by now
    worker_alive: bool  # the worker that claimed the attempt beats
    refusal: str | None = None  # why a delivery was refused
    # The witness saw another execution end than the one that claimed the attempt.
    is_anothers: bool = False
    infrastructure_losses: int = 0  # of this try so far
    infrastructure_budget: int = 0


class Action(StrEnum):
    """What has to follow, by compare-and-set: the world may have moved since the facts were read."""

    NONE = "none"
    PUBLISH_AGAIN = "publish_again"  # the same attempt
    FAIL_KILLED = "fail_killed"  # ended as terminated; a retry is used
    MARK_LOST = "mark_lost"  # ended as lost; infrastructure budget is used


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the event means. ``pending`` asks to be judged again later."""

    verdict: VerdictName
    code: str | None  # of visibility.REASONS unless pending or confirmed
    reason: str  # a sentence with the compared values
    action: Action = Action.NONE
    detail: dict[str, Any] = field(default_factory=dict)  # the compared values


# What a witness of each kind agrees with, once the attempt has ended by its own report.
_AGREEING: Final[dict[str, frozenset[AttemptOutcome]]] = {
    EXIT_SUCCESS: frozenset({AttemptOutcome.SUCCESS, AttemptOutcome.RESCHEDULED}),
    EXIT_FAILED: frozenset({AttemptOutcome.FAILED, AttemptOutcome.TERMINATED}),
    EXIT_KILLED: frozenset({AttemptOutcome.FAILED, AttemptOutcome.TERMINATED}),
    WORKER_LOST: frozenset({AttemptOutcome.LOST, AttemptOutcome.TERMINATED}),
    HANDED_BACK: frozenset({AttemptOutcome.LOST}),
}


def reconcile(
    event: Event, attempt: AttemptFacts | None, ti: TaskFacts | None, facts: Facts
) -> Verdict:
    """The verdict on an event that names an attempt by its id.

    ``attempt`` is null if no such attempt was issued, ``ti`` if it has no parents (a ghost that was
    recorded before). An executor that knows only task and try number needs another rule, which
    guesses where this one knows.
    """
    judged = _Judged(event, attempt, ti)
    # The worker compared the message with the rows; one of another database has no row here.
    has_row = attempt is not None or facts.refusal == "fenced_other_database"
    if event.kind == DELIVERY_REFUSED and facts.refusal and has_row:
        return judged.say("refused", facts.refusal)
    if attempt is None or ti is None:
        return judged.say("ghost", "ghost_no_record")
    if event.kind == DELIVERY_REFUSED:
        return judged.say("refused", _refusal_from_facts(attempt, ti))
    if attempt.outcome is AttemptOutcome.DEFERRED:
        return judged.say("ignored", "stale_after_defer")
    if not attempt.is_current:
        return judged.say("ignored", "stale_superseded")
    match attempt.state:
        case AttemptState.ENDED:
            return _after_the_end(judged, attempt)
        case AttemptState.ISSUED:
            return _before_the_claim(judged, attempt, ti)
        case AttemptState.RUNNING:
            return _without_a_report(judged, attempt, ti, facts)
        case _:
            assert_never(attempt.state)


class _Judged:
    """The event with the compared values, ready to be put into words."""

    def __init__(self, event: Event, attempt: AttemptFacts | None, ti: TaskFacts | None) -> None:
        self.kind = event.kind
        self.word = visibility.EVENT_WORDS.get(event.kind, event.kind)
        self.detail: dict[str, Any] = {
            **event.claimed,
            "rule": "reconcile",
            "event": self.word,
            "attempt_id": event.attempt_id,
        }
        if attempt is not None:
            self.detail |= {
                "attempt_state": attempt.state,
                "outcome": attempt.outcome,
                "is_current": attempt.is_current,
                "superseded_by": attempt.superseded_by,
            }
            self.detail.setdefault("current_attempt_id", attempt.superseded_by)
        if ti is not None:
            self.detail |= {
                "task_state": ti.state,
                "task_try_number": ti.try_number,
                "next_method": ti.next_method,
            }

    def say(self, verdict: VerdictName, code: str) -> Verdict:
        """The verdict with the sentence that its code has in the table of reasons."""
        return Verdict(
            verdict=verdict,
            code=code,
            reason=visibility.explain(code, self.detail),
            detail=self.detail,
        )

    def confirm(
        self, reason: str, code: str | None = None, action: Action = Action.NONE
    ) -> Verdict:
        """The event is true of the current attempt."""
        return Verdict(
            verdict="confirmed", code=code, reason=reason, action=action, detail=self.detail
        )

    def wait(self, reason: str) -> Verdict:
        """Too early to tell."""
        return Verdict(verdict="pending", code=None, reason=reason, detail=self.detail)


def _refusal_from_facts(attempt: AttemptFacts, ti: TaskFacts) -> str:
    if not attempt.is_current:
        return "refused_superseded"
    if attempt.state is AttemptState.ISSUED:
        return "refused_frozen" if ti.held else "refused_superseded"
    return "duplicate_delivery"


def _after_the_end(judged: _Judged, attempt: AttemptFacts) -> Verdict:
    if attempt.outcome in _AGREEING.get(judged.kind, ()):
        return judged.confirm(
            f"{judged.word} agrees with the attempt, which ended as {attempt.outcome}."
        )
    return judged.say("ignored", "late_after_terminal")


def _before_the_claim(judged: _Judged, attempt: AttemptFacts, ti: TaskFacts) -> Verdict:
    if judged.kind == LATE_REPORT:
        # Whoever sent it did not execute this attempt by right: nobody has claimed it.
        return judged.say("ignored", "stale_superseded")
    if ti.held:
        return judged.wait("Its task is frozen; what follows waits for the thaw.")
    return judged.confirm(
        f"{judged.word} of attempt {attempt.attempt_id}, which no worker has claimed: its delivery"
        " came to nothing, so the same attempt is published again.",
        NEVER_CLAIMED,
        Action.PUBLISH_AGAIN,
    )


def _without_a_report(
    judged: _Judged, attempt: AttemptFacts, ti: TaskFacts, facts: Facts
) -> Verdict:
    if judged.kind == LATE_REPORT:
        # The attempt runs under another delivery's claim, whose report is the one that counts.
        return judged.say("ignored", "stale_superseded")
    if facts.is_anothers:
        # A second delivery came to nothing before it could be refused; the first one goes on.
        return judged.say("refused", "duplicate_delivery")
    if ti.held:
        return judged.wait("Its task is frozen; what follows waits for the thaw.")
    if not facts.grace_over:
        return judged.wait("Its report may still be under way.")
    if judged.kind == HANDED_BACK or not facts.worker_alive:
        return judged.confirm(
            f"{judged.word} of attempt {attempt.attempt_id}, which runs without a report, and its"
            f" worker is silent or gives it up: it is lost, loss"
            f" {facts.infrastructure_losses + 1} of at most {facts.infrastructure_budget} that are"
            " made good.",
            LOST,
            Action.MARK_LOST,
        )
    return judged.confirm(
        f"{judged.word} of attempt {attempt.attempt_id}: its process ended without a report while"
        " its worker lives; it was killed externally.",
        KILLED_EXTERNALLY,
        Action.FAIL_KILLED,
    )
