"""What a flow's schedule says, as values that travel in its definition, and its fire times.

Most schedules are one cron expression or preset, and are stored as that text. ``Schedule`` is the
long form: several expressions, a fixed interval, a list of dates, days on which it does not fire,
and how a run's data interval is laid.
"""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass, fields
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.rules.cron import (
    RepeatedTimes,
    SkippedTimes,
    cron_of,
    zone_of,
)
from scheduler_app.rules.errors import InvalidInput
from scheduler_app.rules.fire_times import AnyOf, FireTimes, Listed, Steps, Without

if TYPE_CHECKING:
    from collections.abc import Mapping

CRONS_MAX: Final = 50
DATES_MAX: Final = 10_000
EXCLUDED_MAX: Final = 10_000
EVERY_S_MIN: Final = 1.0
ORIGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)  # of fixed intervals without a start date
CACHED_MAX: Final = 1024  # schedules kept built


class Planner(StrEnum):
    """How a run's data interval is laid."""

    DATA_INTERVAL = "data_interval"  # from one fire time to the next; due at its end
    TRIGGER = "trigger"  # at one fire time; due then


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule in its long form. Exactly one of ``crons``, ``every_s`` and ``dates`` is given."""

    crons: tuple[str, ...] = ()  # expressions or presets; fires whenever one of them does
    every_s: float | None = None  # counted from the flow's start date, else from 1970, by real time
    dates: tuple[str, ...] = ()  # ISO 8601 with offset
    exclude: tuple[str, ...] = ()  # local days, ISO 8601, on which it does not fire
    planner: str = Planner.DATA_INTERVAL
    interval_s: float = 0.0  # of the trigger planner: how far back a run's data interval reaches
    # Of the trigger planner without a start date: whether the fire time before a flow's first sight
    # gets a run; a number of seconds: if it was no longer ago than that.
    run_immediately: bool | float = False
    skipped_times: str = SkippedTimes.AT_JUMP
    repeated_times: str = RepeatedTimes.FIRST

    @property
    def is_simple(self) -> bool:
        """Whether one cron expression says it all."""
        return len(self.crons) == 1 and self == Schedule(crons=self.crons)

    @property
    def text(self) -> str:
        """The schedule in a line; of a simple one the expression itself."""
        if self.every_s is not None:
            said = f"every {_span(self.every_s)}"
        elif self.dates:
            said = f"{len(self.dates)} date{'s' if len(self.dates) > 1 else ''}"
        else:
            said = " | ".join(self.crons)
        if self.exclude:
            said += f" except {len(self.exclude)} day{'s' if len(self.exclude) > 1 else ''}"
        return said


def to_dict(schedule: Schedule) -> dict[str, Any]:
    """Plain JSON values; what has its default is left out."""
    defaults = {f.name: f.default for f in fields(Schedule) if f.default is not MISSING}
    raw = {key: value for key, value in asdict(schedule).items() if value != defaults[key]}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in raw.items()}


def from_dict(raw: Mapping[str, Any]) -> Schedule:
    """What ``to_dict`` wrote; unknown keys of a newer writer are ignored."""
    known = {f.name for f in fields(Schedule)}
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in raw.items()
        if key in known
    }
    return Schedule(**values)


def as_schedule(schedule: str | Schedule) -> Schedule:
    """The long form."""
    return schedule if isinstance(schedule, Schedule) else Schedule(crons=(schedule,))


def check_schedule(schedule: str | Schedule | None, timezone: str) -> None:
    """The schedule and zone can be used. Raises ``InvalidInput`` saying what is wrong and the remedy."""
    zone_of(timezone)
    if schedule is None:
        return
    long = as_schedule(schedule)
    if sum((bool(long.crons), long.every_s is not None, bool(long.dates))) != 1:
        raise _wrong(
            "A schedule is either cron expressions, or every=, or dates=.",
            "Give exactly one of them.",
        )
    for name, limit, given in (
        ("cron expressions", CRONS_MAX, long.crons),
        ("dates", DATES_MAX, long.dates),
        ("excluded days", EXCLUDED_MAX, long.exclude),
    ):
        if len(given) > limit:
            raise _wrong(f"The schedule has {len(given)} {name}.", f"Give at most {limit}.")
    if long.every_s is not None and long.every_s < EVERY_S_MIN:
        raise _wrong(
            f"The schedule fires every {long.every_s:g} s.", f"Give at least {EVERY_S_MIN:g} s."
        )
    if long.dates and long.planner != Planner.TRIGGER:
        raise _wrong("Listed dates have no interval between them.", "Leave the planner to it.")
    if long.planner != Planner.TRIGGER and (long.interval_s or long.run_immediately is not False):
        raise _wrong(
            "interval= and run_immediately= belong to planner='trigger'.",
            "Add planner='trigger', or leave them away.",
        )
    if long.interval_s < 0:
        raise _wrong("interval= is negative.", "Give how far back a run's data reach.")
    times = fire_times(long, timezone)
    if times.following(ORIGIN) is None and times.preceding(ORIGIN) is None:
        raise _wrong(
            "The schedule never fires: every day of it is excluded.", "Exclude fewer days."
        )


def fire_times(
    schedule: str | Schedule, timezone: str, start_date: datetime | None = None
) -> FireTimes:
    """When the schedule fires. Raises ``InvalidInput``.

    ``start_date`` is where fixed intervals are counted from; it is no bound.
    """
    return _built(as_schedule(schedule), timezone, start_date)


@lru_cache(maxsize=CACHED_MAX)
def _built(schedule: Schedule, timezone: str, start_date: datetime | None) -> FireTimes:
    zone = zone_of(timezone)
    times: FireTimes
    if schedule.every_s is not None:
        times = Steps(step=timedelta(seconds=schedule.every_s), origin=start_date or ORIGIN)
    elif schedule.dates:
        times = Listed([datetime.fromisoformat(text) for text in schedule.dates])
    else:
        parts = [
            cron_of(
                text,
                timezone,
                skipped=SkippedTimes(schedule.skipped_times),
                repeated=RepeatedTimes(schedule.repeated_times),
            )
            for text in schedule.crons
        ]
        times = parts[0] if len(parts) == 1 else AnyOf(parts)
    if schedule.exclude:
        days = frozenset(date.fromisoformat(text) for text in schedule.exclude)
        times = Without(times, days, zone)
    return times


def _wrong(what: str, remedy: str) -> InvalidInput:
    return InvalidInput(what, field="schedule", remedy=remedy)


def _span(seconds: float) -> str:
    """A length of time in its greatest whole unit: 6 hours, 90 s."""
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds % length == 0:
            number = int(seconds // length)
            return unit.removesuffix("s") if number == 1 else f"{number} {unit}"
    return f"{seconds:g} s"
