"""Incidents: the kinds of conditions that a person must know of, and when each is told again."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class About(StrEnum):
    """What an alert tells of its incident."""

    OPENED = "opened"
    REMINDER = "reminder"  # it lasts, and nobody has acknowledged it
    RESOLVED = "resolved"  # it has stayed away for a while


class AlertState(StrEnum):
    """How far one alert has got."""

    WAITING = "waiting"  # for its first or its next try
    SENT = "sent"
    FAILED = "failed"  # given up


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of incident. ``ends``: its condition can be seen to be over; else a person ends it."""

    title: str
    ends: bool = True


DEADLINE_MISSED: Final = "deadline_missed"
RUN_EXPECTED: Final = "run_expected"
NO_SCHEDULER: Final = "no_scheduler"
LIVE_GHOST: Final = "live_ghost"

KINDS: Final[Mapping[str, Kind]] = {
    DEADLINE_MISSED: Kind(title="A run did not end by its deadline"),
    RUN_EXPECTED: Kind(title="A scheduled run did not begin"),
    NO_SCHEDULER: Kind(title="No scheduler gets on"),
    LIVE_GHOST: Kind(title="An execution without a record goes on"),
    "review_waits": Kind(title="An automatic action waits for a person"),
    "flow_paused_by_failures": Kind(title="A flow was paused by itself"),
    "nobody_listens": Kind(title="Nobody listens on a queue"),
    "carrier_away": Kind(title="The carrier takes no messages"),
    "worker_not_reached": Kind(title="A worker is out of reach"),
    "same_name": Kind(title="Several processes carry one name"),
    "no_triggerer": Kind(title="No triggerer gets on"),
    "shard_without_lease": Kind(title="A shard has no lease"),
    "mass_heartbeat_loss": Kind(title="Workers fell silent together"),
    "unguarded_runs": Kind(title="Runs are not guarded against doubles"),
    "executor_event_not_judged": Kind(title="An event cannot be judged"),
    "callback_lost": Kind(title="A callback was lost", ends=False),
    "run_not_decidable": Kind(title="A run cannot be decided", ends=False),
    "trigger_blocks": Kind(title="A trigger blocked a triggerer", ends=False),
}

# Seconds after which an alert that could not be sent is tried again; then it is given up.
PAUSES_S: Final = (10.0, 30.0, 120.0, 600.0, 1800.0, 3600.0)


def title(kind: str) -> str:
    """What the kind is called in a sentence; one that nobody declared, by its name."""
    known = KINDS.get(kind)
    return known.title if known else kind.replace("_", " ").capitalize()


def ends_by_hand(kind: str) -> bool:
    """Whether nothing but a person's word ends it, so that acknowledging it does."""
    known = KINDS.get(kind)
    return known is not None and not known.ends


def pause_after(tries: int) -> float | None:
    """Seconds until an alert is tried again after so many tries; ``None``: it is given up."""
    return PAUSES_S[tries - 1] if tries <= len(PAUSES_S) else None
