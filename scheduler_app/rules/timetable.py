"""Which data interval gets a flow's next run, and when its schedule fires. Instants are aware UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from scheduler_app.rules.schedule import Planner, Schedule, as_schedule, fire_times

if TYPE_CHECKING:
    from scheduler_app.rules.definition import FlowDefinition
    from scheduler_app.rules.fire_times import FireTimes

FRESH_PART: Final = 0.1  # of the gap between fire times, in which a passed one still counts
FRESH_S_MIN: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DataInterval:
    """What one run is about: from ``start`` up to ``end``, when it is due. UTC.

    Its logical date is its start; of the trigger planner, whose intervals may be empty, its start
    too, and that is the fire time unless an interval length was given.
    """

    start: datetime
    end: datetime


def next_fire_times(
    schedule: str | Schedule,
    timezone: str,
    after: datetime,
    count: int,
    *,
    start_date: datetime | None = None,
) -> list[datetime]:
    """The next at most ``count`` instants at which the schedule fires, strictly after ``after``.

    Over a change of the clock: see ``cron.Cron``.
    """
    times = fire_times(schedule, timezone, start_date)
    found: list[datetime] = []
    while len(found) < count:
        at = times.following(found[-1] if found else after)
        if at is None:
            break
        found.append(at)
    return found


def coming_due(
    schedule: str | Schedule,
    timezone: str,
    after: datetime,
    count: int,
    *,
    start_date: datetime | None = None,
    end_date: datetime | None = None,
) -> list[datetime]:
    """The next at most ``count`` instants, strictly after ``after``, at which the flow has a run due.

    Those at which its schedule fires, without those whose run would be about what lies before
    ``start_date`` or behind ``end_date``: as ``next_interval`` plans them.
    """
    times = fire_times(schedule, timezone, start_date)
    is_trigger = as_schedule(schedule).planner == Planner.TRIGGER
    at = times.following(after)
    if start_date is not None:
        first = times.at_or_following(start_date)
        if first is not None and not is_trigger:
            first = times.following(first)
        at = None if at is None or first is None else max(at, first)
    found: list[datetime] = []
    while at is not None and len(found) < count:
        begin = at if is_trigger else times.preceding(at)
        if end_date is not None and begin is not None and begin > end_date:
            break
        found.append(at)
        at = times.following(at)
    return found


def next_interval_of(
    definition: FlowDefinition,
    *,
    last: DataInterval | None,
    now: datetime,
    in_line_from: datetime | None = None,
) -> DataInterval | None:
    """The interval that gets the next run of a flow as it is defined; null if none does.

    Of those that were due at ``in_line_from`` or later none is left out, whatever catch-up says.
    """
    seconds = definition.catchup_window_s
    window = None if seconds is None else timedelta(seconds=seconds)
    is_caught_up = definition.catchup
    if in_line_from is not None and (window is not None or not is_caught_up):
        window = max(now - in_line_from, window if is_caught_up and window else timedelta())
        is_caught_up = True
    return next_interval(
        schedule=definition.timetable or definition.schedule,
        timezone=definition.timezone,
        start_date=instant(definition.start_date),
        end_date=instant(definition.end_date),
        catchup=is_caught_up,
        catchup_window=window,
        last=last,
        now=now,
    )


def next_interval(
    *,
    schedule: str | Schedule | None,
    timezone: str,
    start_date: datetime | None,
    end_date: datetime | None,
    catchup: bool,
    last: DataInterval | None,
    now: datetime,
    catchup_window: timedelta | None = None,
) -> DataInterval | None:
    """The interval that gets the next run, due or not (it is when ``now >= end``); null if none does.

    Intervals reach from one fire time to the next. The next one starts where ``last`` ended. If
    the schedule changed since, at the last fire time before that, so that nothing is left out,
    but after ``last`` started and ending after it ended: it never goes back. Without catch-up
    whole intervals that are over are skipped, all but the latest at ``now``; with a catch-up window
    those that were due before it. None starts before ``start_date`` or after ``end_date``; with
    catch-up and without a start there is no first one.

    Of the trigger planner each fire time has its own interval, of the schedule's length and ending
    there; those may overlap or leave gaps, and none follows twice.

    Source: the data-interval and trigger planners of apache-airflow-core 3.3.2.
    """
    if schedule is None:
        return None
    times = fire_times(schedule, timezone, start_date)
    long = as_schedule(schedule)
    if long.planner == Planner.TRIGGER:
        at = _next_trigger(times, long, start_date, end_date, catchup, catchup_window, last, now)
        if at is None:
            return None
        return DataInterval(start=at - timedelta(seconds=long.interval_s), end=at)
    bounds = []
    if start_date is not None:
        bounds.append(times.at_or_following(start_date))
    if not catchup:
        latest = times.at_or_preceding(now)
        bounds.append(latest and times.preceding(latest))
    elif catchup_window is not None:
        bounds.append(times.preceding(now - catchup_window))
    if last is not None:
        bounds.append(times.at_or_preceding(last.end))
    elif not bounds:
        return None
    start = max((bound for bound in bounds if bound is not None), default=None)
    end = start and times.following(start)
    while last is not None and start and end and (start <= last.start or end <= last.end):
        start, end = end, times.following(end)
    if start is None or end is None or (end_date is not None and start > end_date):
        return None
    return DataInterval(start=start, end=end)


def intervals_between(
    definition: FlowDefinition, *, first: datetime, last: datetime, at_most: int
) -> list[DataInterval]:
    """At most so many intervals whose logical dates are from ``first`` to ``last``, oldest first.

    The flow's own start and end date are no bounds. Empty without a schedule.
    """
    schedule = definition.timetable or definition.schedule
    if schedule is None:
        return []
    long = as_schedule(schedule)
    times = fire_times(schedule, definition.timezone, instant(definition.start_date))
    is_trigger = long.planner == Planner.TRIGGER
    reach = timedelta(seconds=long.interval_s) if is_trigger else timedelta()
    upcoming = times.upcoming(first + reach - timedelta.resolution)
    found: list[DataInterval] = []
    at = next(upcoming, None)
    while at is not None and at - reach <= last and len(found) < at_most:
        following = next(upcoming, None)
        if is_trigger:
            found.append(DataInterval(start=at - reach, end=at))
        elif following is not None:
            found.append(DataInterval(start=at, end=following))
        at = following
    return found


def next_logical_date(definition: FlowDefinition, since: datetime) -> datetime | None:
    """The first logical date at or after the instant; null if none comes, or without a schedule."""
    schedule = definition.timetable or definition.schedule
    if schedule is None:
        return None
    long = as_schedule(schedule)
    times = fire_times(schedule, definition.timezone, instant(definition.start_date))
    is_trigger = long.planner == Planner.TRIGGER
    reach = timedelta(seconds=long.interval_s) if is_trigger else timedelta()
    at = next(times.upcoming(since + reach - timedelta.resolution), None)
    return None if at is None else at - reach


def interval_from(definition: FlowDefinition, logical_date: datetime) -> DataInterval:
    """What a run of this logical date is about, as the schedule has it; without one that instant."""
    found = intervals_between(definition, first=logical_date, last=logical_date, at_most=1)
    return found[0] if found else DataInterval(start=logical_date, end=logical_date)


def instant(text: str | None) -> datetime | None:
    """A stored time as an instant."""
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


def _next_trigger(
    times: FireTimes,
    schedule: Schedule,
    start_date: datetime | None,
    end_date: datetime | None,
    catchup: bool,
    catchup_window: timedelta | None,
    last: DataInterval | None,
    now: datetime,
) -> datetime | None:
    """The fire time that gets the next run of the trigger planner."""
    bounds = []
    if last is not None:
        bounds.append(times.following(last.end))
    elif start_date is not None:
        bounds.append(times.at_or_following(start_date))
    else:
        bounds.append(_first_trigger(times, schedule, now))
    if None in bounds:
        return None  # nothing follows any more
    if not catchup:
        # Of the missed ones only the latest counts.
        bounds.append(times.at_or_preceding(now))
        if start_date is not None:
            bounds.append(times.at_or_following(start_date))
    elif catchup_window is not None:
        bounds.append(times.at_or_following(now - catchup_window))
    at = max((bound for bound in bounds if bound is not None), default=None)
    return None if at is None or (end_date is not None and at > end_date) else at


def _first_trigger(times: FireTimes, schedule: Schedule, now: datetime) -> datetime | None:
    """Where a flow without a start date begins: at the fire time that has just passed, or the next."""
    passed, coming = times.at_or_preceding(now), times.following(now)
    if passed is None or coming is None:
        return coming or passed
    match schedule.run_immediately:
        case True:
            return passed
        case False:
            gap_s = (coming - passed).total_seconds()
            fresh_s = max(gap_s * FRESH_PART, FRESH_S_MIN)
        case seconds:
            fresh_s = seconds
    return passed if (now - passed).total_seconds() <= fresh_s else coming
