"""What happened to one task instance, moment by moment: attempts, triggers, and what witnesses said.

A page of events is woven into the moments of attempts and triggers that fall into its time, so that
each verdict stands beside what it is about.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.rules import visibility

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from scheduler_app.queries.attempts import AttemptRow
    from scheduler_app.queries.executor_events import EventRow
    from scheduler_app.queries.triggers import TriggerRow

TRIGGER_ENDS: Final = {
    "fired": "Its trigger fires",
    "failed": "Its trigger fails",
    "timed_out": "The time limit of its wait is over",
    "cancelled": "Its trigger is cancelled",
}
AT_ONCE_S: Final = 0.1
# Of compared values: what the lines around them say already.
SAID_ELSEWHERE: Final = frozenset({"rule", "event", "hostname", "pid"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One thing that happened, in words; ``event`` and ``attempt`` are what it is about."""

    at: datetime
    mark: str
    title: str
    text: str = ""
    event: EventRow | None = None
    attempt: AttemptRow | None = None
    is_filtered: bool = False
    gap_s: float | None = None  # since the moment before
    is_judged_late: bool = False  # its verdict had to wait
    compared: tuple[tuple[str, Any], ...] = ()


def woven(
    events: Sequence[EventRow],
    attempts: Sequence[AttemptRow],
    triggers: Sequence[TriggerRow],
    *,
    is_first: bool,
    is_last: bool,
    is_descending: bool,
) -> list[Moment]:
    """The moments of this page of events; the first and the last page have what lies outside too."""
    told = [_told(event) for event in events]
    others = [
        moment
        for source in (*map(_of_attempt, attempts), *map(_of_trigger, triggers))
        for moment in source
    ]
    if told:
        begin, end = min(m.at for m in told), max(m.at for m in told)
        before, after = (is_last, is_first) if is_descending else (is_first, is_last)
        others = [m for m in others if (before or m.at >= begin) and (after or m.at <= end)]
    # Of the same moment: what was done before what is said about it.
    moments = sorted([*others, *told], key=lambda m: (m.at, m.event is not None))
    spaced = [
        _after(moment, before) for moment, before in zip(moments, [None, *moments], strict=False)
    ]
    return spaced[::-1] if is_descending else spaced


def _after(moment: Moment, before: Moment | None) -> Moment:
    return replace(moment, gap_s=(moment.at - before.at).total_seconds() if before else None)


def _of_attempt(attempt: AttemptRow) -> Iterator[Moment]:
    if attempt.issued_at:
        yield _done(attempt, attempt.issued_at, "queued", "is issued", _why_issued(attempt))
    if attempt.started_at:
        place = f"{attempt.hostname}:{attempt.pid}"
        yield _done(attempt, attempt.started_at, "running", f"is claimed by {place}")
    if attempt.ended_at and attempt.outcome:
        how = "By its own report" if attempt.is_accepted else "Without a report of its own"
        reason = f": {attempt.outcome_reason}" if attempt.outcome_reason else "."
        yield _done(
            attempt, attempt.ended_at, attempt.outcome, f"ends as {attempt.outcome}", how + reason
        )


def _done(attempt: AttemptRow, at: datetime, mark: str, title: str, text: str = "") -> Moment:
    return Moment(
        at=at,
        mark=mark,
        title=title,
        text=text,
        attempt=attempt,
        is_filtered=attempt.is_filtered,
    )


def _why_issued(attempt: AttemptRow) -> str:
    if attempt.kind != "task":
        return "A callback."
    if (attempt.dispatch_no or 0) > 1:
        why = (
            f"Dispatch {attempt.dispatch_no} of try {attempt.try_number}: the one before was lost."
        )
    elif (attempt.resume_index or 0) > 0:
        why = f"Try {attempt.try_number} goes on, resume {attempt.resume_index}."
    else:
        why = f"Try {attempt.try_number} begins."
    published = f" Published {attempt.publish_count} times." if attempt.publish_count > 1 else ""
    return f"{why} Lease token {attempt.lease_token}, fence {attempt.fence}.{published}"


def _of_trigger(trigger: TriggerRow) -> Iterator[Moment]:
    if trigger.ended_at is None or trigger.state not in TRIGGER_ENDS:
        return
    name = trigger.classpath.rpartition(":")[2].rpartition(".")[2]
    follows = (
        "" if trigger.state == "cancelled" else " The task is scheduled again, in the same try."
    )
    yield Moment(
        at=trigger.ended_at,
        mark="deferred",
        title=TRIGGER_ENDS[trigger.state],
        text=f"{name}, waited for since resume {trigger.resume_index}.{follows}",
    )


def _told(event: EventRow) -> Moment:
    detail = event.verdict_detail or event.filter_detail or {}
    return Moment(
        at=event.received_at,
        mark=event.verdict,
        title=visibility.EVENT_WORDS.get(event.kind, event.kind.replace("_", " ")),
        event=event,
        is_filtered=event.is_filtered,
        is_judged_late=event.judged_at is not None
        and (event.judged_at - event.received_at).total_seconds() >= AT_ONCE_S,
        compared=tuple(
            (name, value)
            for name, value in detail.items()
            if value is not None and name not in SAID_ELSEWHERE
        ),
    )
