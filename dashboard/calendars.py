"""A flow's runs as a calendar: months of days, each with its worst outcome, and what is planned."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from dashboard.pictures import WORST_FIRST
from scheduler_app.rules.calendar_days import Month, Planned, begin, clock_change

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from scheduler_app.queries.run_calendar import DayOfRuns, RunCalendar

MONTHS: Final = 6
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarDay:
    """One day as a cell shows it."""

    day: date
    state: str  # the worst of its runs; planned, left_out, or empty for a day without any
    number: int  # runs listed under the lens
    filtered: int
    said: str  # in words, for the title and for who hears it
    first: str  # bounds of the day in addresses, both included
    last: str
    is_today: bool
    is_clock_change: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarMonth:
    """One month as a table."""

    name: str
    weeks: list[list[CalendarDay | None]]


def months_of(
    *,
    last: Month,
    zone: str,
    runs: RunCalendar,
    planned: Mapping[date, Planned],
    left_out: Collection[date],
    today: date,
    is_lens_on: bool,
) -> list[CalendarMonth]:
    """The months up to ``last``, oldest first."""

    def cell(day: date) -> CalendarDay:
        of_day = runs.days.get(day)
        plan = planned.get(day)
        change = clock_change(day, zone)
        state = _state(of_day, plan, is_left_out=day in left_out, is_lens_on=is_lens_on)
        aside = of_day.filtered if of_day else 0
        current = of_day.shown if of_day else 0
        return CalendarDay(
            day=day,
            state=state,
            number=current + (aside if is_lens_on else 0),
            filtered=aside,
            said=_said(day, of_day, plan, zone, change, is_left_out=day in left_out),
            first=_in_address(begin(day, zone)),
            last=_in_address(begin(day + _DAY, zone) - timedelta.resolution),
            is_today=day == today,
            is_clock_change=change is not None,
        )

    return [
        CalendarMonth(
            name=f"{month.first:%B} {month.year}",
            weeks=[[cell(day) if day else None for day in week] for week in month.weeks()],
        )
        for month in (last.later(back) for back in range(1 - MONTHS, 1))
    ]


def _state(
    of_day: DayOfRuns | None, plan: Planned | None, *, is_left_out: bool, is_lens_on: bool
) -> str:
    if of_day and of_day.states:
        return next((state for state in WORST_FIRST if state in of_day.states), "none")
    if of_day and of_day.filtered and is_lens_on:
        return "filtered"
    if plan:
        return "planned"
    return "left_out" if is_left_out else ""


def _said(
    day: date,
    of_day: DayOfRuns | None,
    plan: Planned | None,
    zone: str,
    change: timedelta | None,
    *,
    is_left_out: bool,
) -> str:
    parts = []
    if of_day:
        counted = [f"{number} {state}" for state, number in sorted(of_day.states.items())]
        parts.append(f"{', '.join(counted) or '0 shown'} · {of_day.filtered} filtered")
    if plan:
        due = [_local(one.end, zone, day) for one in plan.intervals]
        parts.append(f"planned: due {', '.join(due)}{' and later' if plan.has_more else ''}")
    if is_left_out:
        parts.append("no run, though the schedule of today has a date here")
    if change is not None:
        minutes = int(change.total_seconds() // 60)
        way = "forward" if minutes > 0 else "back"
        parts.append(f"the clock goes {way} by {abs(minutes)} min")
    return f"{day:%a} {day.day} {day:%b}: {'; '.join(parts) or 'no runs'}"


def _local(at: datetime, zone: str, day: date) -> str:
    """A time on the clock of the zone, with its day where that is another."""
    here = at.astimezone(ZoneInfo(zone))
    same = here.date() == day
    return f"{here:%H:%M}" if same else f"{here.day} {here:%b %H:%M}"


def _in_address(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
