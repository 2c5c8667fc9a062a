"""The states that lists show, and which rows show them: a mark (``frozen``) covers what is beneath.

Each expression is used by the rows, and its twin by the filter on it, so the two cannot differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django.conf import settings
from django.db.models import (
    BooleanField,
    Case,
    CharField,
    DateTimeField,
    F,
    FloatField,
    Func,
    Q,
    Value,
    When,
)

from scheduler_app.rules import states, take_over

if TYPE_CHECKING:
    from collections.abc import Sequence

FROZEN: Final = "frozen"  # the state that is shown while a mark holds a run or a task instance
RUN_STATES: Final = (*(state.value for state in states.RunState), FROZEN)
TASK_STATES: Final = (*(state.value for state in states.TaskState), FROZEN)
ATTEMPT_STATES: Final = tuple(state.value for state in states.AttemptState)
OUTCOMES: Final = tuple(outcome.value for outcome in states.AttemptOutcome)
FLOW_STATES: Final = ("active", "paused", FROZEN)
LEASE_STATES: Final = ("held", "expired", "free")
REVIEW_STATES: Final = ("open", "approved", "dismissed", "resolved")
INCIDENT_STATES: Final = ("open", "acknowledged", "resolved")
BACKFILL_STATES: Final = ("running", "paused", "cancelled", "ended")
YES_NO: Final = ("yes", "no")
TAKE_OVER_STATES: Final = ("open", "ended")
INQUIRY_STATES: Final = ("waiting", "answered")
DECISIONS: Final = tuple(decision.value for decision in take_over.Decision)
GHOST_STATES: Final = ("haunting", "over")
VERDICTS: Final = ("pending", "confirmed", "ignored", "refused", "ghost")

RUN_SHOWN = Case(
    When(frozen_at__isnull=False, then=Value(FROZEN)), default=F("state"), output_field=CharField()
)
TASK_SHOWN = Case(
    When(held_by__isnull=False, is_open=True, then=Value(FROZEN)),
    default=F("state"),
    output_field=CharField(),
)
FLOW_SHOWN = Case(
    When(frozen_at__isnull=False, then=Value(FROZEN)),
    When(is_paused=True, then=Value("paused")),
    default=Value("active"),
    output_field=CharField(),
)
CLOCK = Func(function="clock_timestamp", output_field=DateTimeField())
LEASE_SHOWN = Case(
    When(holder__isnull=True, then=Value("free")),
    When(expires_at__lte=CLOCK, then=Value("expired")),
    default=Value("held"),
    output_field=CharField(),
)
# The database's own definition; so it is true at the moment of the statement.
JOB_ALIVE = Func(
    F("ended_at"),
    F("heartbeat_at"),
    Value(settings.JOB_ALIVE_S, output_field=FloatField()),
    function="job_is_alive",
    output_field=BooleanField(),
)
INCIDENT_SHOWN = Case(
    When(resolved_at__isnull=False, then=Value("resolved")),
    When(acknowledged_at__isnull=False, then=Value("acknowledged")),
    default=Value("open"),
    output_field=CharField(),
)

GHOST_SHOWN = Case(
    When(ended_at__isnull=True, then=Value("haunting")),
    default=Value("over"),
    output_field=CharField(),
)


BACKFILL_SHOWN = Case(
    When(cancelled_at__isnull=False, then=Value("cancelled")),
    When(is_active=False, then=Value("ended")),
    When(paused_at__isnull=False, then=Value("paused")),
    default=Value("running"),
    output_field=CharField(),
)


def backfill_states(shown: tuple[str, ...]) -> Q:
    """Backfills that show one of these states."""
    each = {
        "cancelled": Q(cancelled_at__isnull=False),
        "ended": Q(cancelled_at__isnull=True, is_active=False),
        "paused": Q(cancelled_at__isnull=True, is_active=True, paused_at__isnull=False),
        "running": Q(cancelled_at__isnull=True, is_active=True, paused_at__isnull=True),
    }
    kept = Q(pk__in=[])
    for state in shown:
        kept |= each[state]
    return kept


def run_states(shown: tuple[str, ...]) -> Q:
    """Runs that show one of these states."""
    kept = Q(state__in=[state for state in shown if state != FROZEN], frozen_at__isnull=True)
    if not {*shown} & states.RUN_TERMINAL:
        kept &= Q(is_active=True)  # lets the index of active runs serve it
    return kept | Q(frozen_at__isnull=False) if FROZEN in shown else kept


def task_states(shown: tuple[str, ...]) -> Q:
    """Task instances that show one of these states."""
    stored = [state for state in shown if state != FROZEN]
    ended = [state for state in stored if state in states.TASK_TERMINAL]
    unfinished = [state for state in stored if state not in states.TASK_TERMINAL]
    kept = Q()
    if ended:
        kept |= Q(ended_state__in=ended)
    if unfinished:  # is_open lets the index of open task instances serve it
        kept |= Q(state__in=unfinished, held_by__isnull=True, is_open=True)
    if FROZEN in shown:
        kept |= Q(held_by__isnull=False, is_open=True)
    return kept


def stored_task_states(stored: Sequence[str]) -> Q:
    """Task instances in one of these states, frozen or not; in the words that an index serves."""
    ended = [state for state in stored if state in states.TASK_TERMINAL]
    unfinished = [state for state in stored if state not in states.TASK_TERMINAL]
    kept = Q()
    if ended:
        kept |= Q(ended_state__in=ended)
    if unfinished:
        kept |= Q(state__in=unfinished, is_open=True)
    return kept


def attempt_states(shown: tuple[str, ...]) -> Q:
    """Attempts in one of these states."""
    kept = Q(state__in=shown)
    if states.AttemptState.ENDED not in shown:
        kept &= Q(is_live=True)  # lets the index of live attempts serve it
    return kept


def flow_states(shown: tuple[str, ...]) -> Q:
    """Flows that show one of these states."""
    kept = Q()
    if FROZEN in shown:
        kept |= Q(frozen_at__isnull=False)
    if "paused" in shown:
        kept |= Q(frozen_at__isnull=True, is_paused=True)
    if "active" in shown:
        kept |= Q(frozen_at__isnull=True, is_paused=False)
    return kept


def lease_states(shown: tuple[str, ...]) -> Q:
    """Leases that show one of these states, by the clock of the database."""
    kept = Q()
    if "free" in shown:
        kept |= Q(holder__isnull=True)
    if "expired" in shown:
        kept |= Q(holder__isnull=False, expires_at__lte=CLOCK)
    if "held" in shown:
        kept |= Q(holder__isnull=False, expires_at__gt=CLOCK)
    return kept


FREEZE_STATES: Final = ("live", "ended")
FREEZE_SHOWN: Final = Case(When(ended_at__isnull=True, then=Value("live")), default=Value("ended"))


def freeze_states(shown: tuple[str, ...]) -> Q:
    """Freezes that hold something still (``live``), and those that are over (``ended``)."""
    if {*shown} >= {*FREEZE_STATES}:
        return Q()
    return Q(ended_at__isnull="live" in shown)


def jobs_alive(shown: tuple[str, ...]) -> Q:
    """Jobs that are alive (``yes``) or not (``no``), by the clock of the database."""
    if {*shown} >= {*YES_NO}:
        return Q()
    return Q(JOB_ALIVE) if "yes" in shown else ~Q(JOB_ALIVE)


def incident_states(shown: tuple[str, ...]) -> Q:
    """Incidents that show one of these states."""
    kept = Q()
    if "open" in shown:
        kept |= Q(resolved_at__isnull=True, acknowledged_at__isnull=True)
    if "acknowledged" in shown:
        kept |= Q(resolved_at__isnull=True, acknowledged_at__isnull=False)
    if "resolved" in shown:
        kept |= Q(resolved_at__isnull=False)
    return kept


def ghost_states(shown: tuple[str, ...]) -> Q:
    """Ghosts that show one of these states."""
    return _null_or_not("ended_at", unset="haunting" in shown, is_set="over" in shown)


def shard_known(shown: tuple[str, ...]) -> Q:
    """Rows whose shard is known (``yes``) or not (``no``): nobody knows what they belong to."""
    return _null_or_not("shard", unset="no" in shown, is_set="yes" in shown)


def take_over_states(shown: tuple[str, ...]) -> Q:
    """Take-overs that show one of these states."""
    return _null_or_not("ended_at", unset="open" in shown, is_set="ended" in shown)


def inquiry_states(shown: tuple[str, ...]) -> Q:
    """Questions that are waiting for their answer, or have it."""
    return _null_or_not("answered_at", unset="waiting" in shown, is_set="answered" in shown)


def _null_or_not(column: str, *, unset: bool, is_set: bool) -> Q:
    kept = Q()
    if unset:
        kept |= Q(**{f"{column}__isnull": True})
    if is_set:
        kept |= Q(**{f"{column}__isnull": False})
    return kept
