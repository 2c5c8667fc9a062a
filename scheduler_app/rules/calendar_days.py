"""The days of a calendar: when they begin, where a clock changes, and which dates a schedule has on them."""

from __future__ import annotations

import calendar
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from scheduler_app.rules.timetable import (
    DataInterval,
    instant,
    intervals_between,
    next_logical_date,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler_app.rules.definition import FlowDefinition

PLANNED_MAX: Final = 4  # dates of a day that are told one by one
YEAR_MIN: Final = 1971
YEAR_MAX: Final = 9990
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Month:
    """One month of one year."""

    year: int
    month: int

    def __str__(self) -> str:
        return f"{self.year:04}-{self.month:02}"

    @property
    def first(self) -> date:
        """Its first day."""
        return date(self.year, self.month, 1)

    def later(self, months: int) -> Month:
        """The month so many later; earlier for a negative number, within what can be told."""
        number = self.year * 12 + self.month - 1 + months
        number = min(max(number, YEAR_MIN * 12), YEAR_MAX * 12 + 11)
        return Month(year=number // 12, month=number % 12 + 1)

    def weeks(self) -> list[list[date | None]]:
        """Its days by week, from Monday on; null for days of the months beside it."""
        rows = calendar.Calendar().monthdatescalendar(self.year, self.month)
        return [[day if day.month == self.month else None for day in row] for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What a schedule has for a day to come."""

    intervals: tuple[DataInterval, ...]  # at most PLANNED_MAX
    has_more: bool


def month_of(text: str) -> Month | None:
    """The month that ``2026-01`` names; null for what names none."""
    try:
        day = date.fromisoformat(f"{text}-01")
    except ValueError:
        return None
    return Month(year=day.year, month=day.month) if YEAR_MIN <= day.year <= YEAR_MAX else None


def begin(day: date, zone: str) -> datetime:
    """The first instant of a local day, UTC; where its midnight is skipped, that of the jump."""
    return datetime.combine(day, time(), ZoneInfo(zone)).astimezone(UTC)


def clock_change(day: date, zone: str) -> timedelta | None:
    """How far the clock of the zone goes on in the day (back: negative); null where it does not."""
    here = ZoneInfo(zone)
    before = datetime.combine(day, time(), here).utcoffset()
    after = datetime.combine(day + _DAY, time(), here).utcoffset()
    if before is None or after is None or before == after:
        return None
    return after - before


def planned_days(
    definition: FlowDefinition, days: Iterable[date], zone: str, *, since: datetime
) -> dict[date, Planned]:
    """The days with dates that get runs: logical dates from ``since`` on, where the cursor stands."""
    until = instant(definition.end_date)
    found = {}
    for day in days:
        first, last = max(begin(day, zone), since), begin(day + _DAY, zone) - timedelta.resolution
        if until is not None:
            last = min(last, until)
        if first > last:
            continue
        coming = intervals_between(definition, first=first, last=last, at_most=PLANNED_MAX + 1)
        if coming:
            found[day] = Planned(
                intervals=tuple(coming[:PLANNED_MAX]), has_more=len(coming) > PLANNED_MAX
            )
    return found


def left_out_days(
    definition: FlowDefinition,
    days: Iterable[date],
    zone: str,
    *,
    since: datetime,
    before: datetime,
) -> frozenset[date]:
    """Those of the days for which the schedule, as it is now, has a date from ``since`` to ``before``."""
    start = instant(definition.start_date)
    found = set()
    at: datetime | None = None  # the first date from the day on, where it is known
    for day in sorted(days):
        first = max(begin(day, zone), since, start or since)
        end = min(begin(day + _DAY, zone), before)
        if first >= end:
            continue
        if at is None or at < first:
            at = next_logical_date(definition, first)
            if at is None:
                break
        if at < end:
            found.add(day)
    return frozenset(found)
