"""What a new leader makes of an attempt that it found live: decided from facts, never guessed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from scheduler_app.rules.states import AttemptOutcome, AttemptState

if TYPE_CHECKING:
    from datetime import datetime


class Found(StrEnum):
    """How the take-over found the attempt."""

    UNPUBLISHED = "unpublished"
    PUBLISHED = "published"
    RUNNING = "running"
    ENDED = "ended"  # a worker runs it, and its record has ended or was replaced
    UNKNOWN = "unknown"  # a worker runs it, and it has no record at all


class Decision(StrEnum):
    """What became of it."""

    OPEN = "open"
    PUBLISHED = "published"
    WAITING = "waiting"
    ADOPTED = "adopted"
    LOST = "lost"
    RECONCILED = "reconciled"
    GHOST = "ghost"
    PASSED_ON = "passed_on"


FINAL: Final = frozenset({*Decision} - {Decision.OPEN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of one attempt that a take-over found, at this look."""

    found: Found
    state: str
    outcome: str | None
    is_accepted: bool  # ended by its own report
    is_published: bool
    place: str  # host:pid of the process that claimed it
    is_worker_alive: bool  # its worker's main process beats
    asked_at: datetime
    answered_at: datetime | None  # the worker's answer to this take-over's question
    has_it: bool | None  # by that answer; null without one
    heartbeat_at: datetime | None
    outcome_reason: str = ""


def decide(facts: Facts) -> tuple[Decision, str]:
    """The decision, and why in words; ``OPEN`` with what is waited for."""
    if facts.state == AttemptState.ENDED:
        return _ended(facts)
    if facts.state == AttemptState.ISSUED:
        if facts.found is Found.PUBLISHED:
            return Decision.WAITING, "Its message is with the broker; no worker has claimed it yet."
        if facts.is_published:
            return Decision.PUBLISHED, "Its message had not gone out; the new leader published it."
        return Decision.OPEN, "Its message has not gone out yet; it is published next."
    if facts.has_it:
        return (
            Decision.ADOPTED,
            f"Its worker was asked and answered at {_clock(facts.answered_at)} that {facts.place} runs it.",
        )
    if facts.found is not Found.RUNNING:
        return Decision.PUBLISHED if facts.found is Found.UNPUBLISHED else Decision.WAITING, (
            f"{facts.place} claimed it while the take-over looked."
        )
    if (
        facts.has_it is None
        and facts.heartbeat_at is not None
        and facts.heartbeat_at > facts.asked_at
    ):
        return (
            Decision.ADOPTED,
            f"Its worker beat for it at {_clock(facts.heartbeat_at)}, after the take-over began.",
        )
    return Decision.OPEN, _waited_for(facts)


def _ended(facts: Facts) -> tuple[Decision, str]:
    if facts.outcome == AttemptOutcome.LOST:
        return Decision.LOST, f"Lost: {facts.outcome_reason or 'its worker is silent'}."
    if facts.is_accepted:
        return Decision.RECONCILED, f"Its own report ended it as {facts.outcome}."
    return (
        Decision.RECONCILED,
        f"It ended as {facts.outcome} by a decision without its report: {facts.outcome_reason}.",
    )


def _waited_for(facts: Facts) -> str:
    if facts.has_it is False:
        return (
            f"Its worker answered at {_clock(facts.answered_at)} that it does not run it (it had begun"
            f" on {facts.place}); it is lost unless its report comes before its heartbeat counts as dead."
        )
    if not facts.is_worker_alive:
        return (
            f"Its worker ({facts.place}) has ended or is silent and cannot be asked; it is lost once its"
            " heartbeat counts as dead."
        )
    return f"Its worker was asked at {_clock(facts.asked_at)} and has not answered yet."


def _clock(at: datetime | None) -> str:
    return f"{at:%H:%M:%S} UTC" if at else "?"
