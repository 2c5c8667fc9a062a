"""Backfills: which dates a range has, and what becomes of a date that has a run already."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from scheduler_app.rules import past, timetable
from scheduler_app.rules.errors import InvalidInput
from scheduler_app.rules.states import RUN_TERMINAL, RunState

if TYPE_CHECKING:
    from datetime import datetime

    from scheduler_app.rules.definition import FlowDefinition
    from scheduler_app.rules.timetable import DataInterval

DATES_MAX: Final = 10_000  # of one backfill
ACTIVE_RUNS_MAX: Final = 1_000
ACTIVE_RUNS_DEFAULT: Final = 10


class Reprocess(StrEnum):
    """Which runs that exist already are run again."""

    NONE = "none"
    FAILED = "failed"
    ALL = "all"  # failed and successful ones


class DateState(StrEnum):
    """What became of one date of a backfill."""

    WAITING = "waiting"
    CREATED = "created"  # it has a run of its own
    RERUN = "rerun"  # the run that it had began another run attempt
    SKIPPED = "skipped"  # it has a run that is left alone
    CANCELLED = "cancelled"  # the backfill was, before its turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Existing:
    """The run that a date has already."""

    run_id: int
    run_key: str
    state: str
    is_frozen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What becomes of a date: created, rerun or skipped, and why."""

    state: DateState
    reason: str = ""


def dates_of(
    definition: FlowDefinition, *, first: datetime, last: datetime, is_backwards: bool
) -> list[DataInterval]:
    """The intervals whose logical dates are in the range, bounds included, in the order of their turn.

    Raises ``InvalidInput`` where there is no schedule, no date, or more than are allowed; and
    backwards where a task waits for the run before, which would come after it.
    """
    if first > last:
        raise InvalidInput(
            f"from {first.isoformat()} is after to {last.isoformat()}.",
            field="from_date",
            remedy="Give the earlier date first; run_backwards begins with the later one.",
        )
    if definition.schedule is None:
        raise InvalidInput(
            f"Flow {definition.flow_id} has no schedule, which says what its dates are.",
            field="flow_id",
            remedy="Trigger runs by hand, each with its logical_date.",
        )
    found = timetable.intervals_between(definition, first=first, last=last, at_most=DATES_MAX + 1)
    if is_backwards and (asking := past.tasks_with_past(definition)):
        raise InvalidInput(
            f"Task {next(iter(asking))} waits for the run before, so that the order of the runs counts.",
            field="run_backwards",
            remedy="Leave run_backwards out: the earlier date first.",
        )
    if len(found) > DATES_MAX:
        raise InvalidInput(
            f"The range has more than {DATES_MAX} dates.",
            field="to_date",
            remedy="Fill it in parts.",
        )
    if not found:
        raise InvalidInput(
            f"The schedule of flow {definition.flow_id} has no date from {first.isoformat()} to"
            f" {last.isoformat()}.",
            field="to_date",
            remedy="Widen the range; its bounds are logical dates.",
        )
    return found[::-1] if is_backwards else found


def decide(existing: Existing | None, *, reprocess: str) -> Decision:
    """What becomes of a date with this run, or without one."""
    if existing is None:
        return Decision(state=DateState.CREATED)
    named = f"Run {existing.run_key}"
    if existing.is_frozen:
        return Decision(state=DateState.SKIPPED, reason=f"{named} is frozen.")
    if existing.state not in RUN_TERMINAL:
        return Decision(state=DateState.SKIPPED, reason=f"{named} is {existing.state}.")
    if reprocess == Reprocess.ALL or (
        reprocess == Reprocess.FAILED and existing.state == RunState.FAILED
    ):
        return Decision(state=DateState.RERUN, reason=f"{named} had ended as {existing.state}.")
    return Decision(
        state=DateState.SKIPPED,
        reason=f"{named} ended as {existing.state}, and reprocess is {reprocess}.",
    )
