"""When a schedule fires, and which data interval gets its run next.

Schedules are five cron fields or a preset, read on the wall clock of an IANA zone. Instants are
aware UTC throughout.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler_app.rules.definition import FlowDefinition

PRESETS: Final[dict[str, str]] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@quarterly": "0 0 1 */3 *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FIELDS: Final = ("minute", "hour", "day of month", "month", "day of week")
SEARCH_DAYS_MAX: Final = 50 * 366  # a day that does not come within 50 years never does
CACHED_MAX: Final = 1024  # schedules kept parsed

_DAY: Final = timedelta(days=1)
_MINUTE: Final = timedelta(minutes=1)
_REFERENCE: Final = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataInterval:
    """What one run is about: from ``start`` (its logical date) up to ``end``, when it is due. UTC."""

    start: datetime
    end: datetime


def check_schedule(schedule: str | None, timezone: str) -> None:
    """The schedule and zone can be used. Raises ``InvalidInput`` saying what is wrong and the remedy.

    Refused beside nonsense: reversed ranges, six fields, and days that never come.
    """
    _zone(timezone)
    if schedule is not None:
        _cron(schedule, timezone)


def next_fire_times(schedule: str, timezone: str, after: datetime, count: int) -> list[datetime]:
    """The next ``count`` instants at which the schedule fires, strictly after ``after``.

    Over a change of the clock: a schedule whose minute or hour field starts with a star follows
    the real clock (a skipped hour: not at all; a repeated one: twice). Any other fires once a day
    at its times: a skipped time at the jump, a repeated one at its first occurrence.
    Days: either day field is enough, unless one starts with a star; then both must match.

    Source: Debian's cron, as cronsim 2.8 has it.
    """
    cron = _cron(schedule, timezone)
    times: list[datetime] = []
    for _ in range(count):
        after = cron.following(after)
        times.append(after)
    return times


def next_interval_of(
    definition: FlowDefinition, *, last: DataInterval | None, now: datetime
) -> DataInterval | None:
    """The interval that gets the next run of a flow as it is defined; null if none does."""
    return next_interval(
        schedule=definition.schedule,
        timezone=definition.timezone,
        start_date=_instant(definition.start_date),
        end_date=_instant(definition.end_date),
        catchup=definition.catchup,
        last=last,
        now=now,
    )


def next_interval(
    *,
    schedule: str | None,
    timezone: str,
    start_date: datetime | None,
    end_date: datetime | None,
    catchup: bool,
    last: DataInterval | None,
    now: datetime,
) -> DataInterval | None:
    """The interval that gets the next run, due or not (it is when ``now >= end``); null if none does.

    Intervals reach from one fire time to the next. The next one starts where ``last`` ended. If
    the schedule changed since, at the last fire time before that, so that nothing is left out,
    but after ``last`` started and ending after it ended: it never goes back. Without catch-up
    whole intervals that are over are skipped, all but the latest at ``now``. None starts before
    ``start_date`` or after ``end_date``; with catch-up and without a start there is no first one.

    Source: the data-interval planner of apache-airflow-core 3.3.2.
    """
    if schedule is None:
        return None
    cron = _cron(schedule, timezone)
    bounds = []
    if start_date is not None:
        bounds.append(cron.at_or_following(start_date))
    if not catchup:
        bounds.append(cron.preceding(cron.at_or_preceding(now)))
    if last is not None:
        bounds.append(cron.at_or_preceding(last.end))
    elif not bounds:
        return None
    start = max(bounds)
    end = cron.following(start)
    while last is not None and (start <= last.start or end <= last.end):
        start, end = end, cron.following(end)
    if end_date is not None and start > end_date:
        return None
    return DataInterval(start=start, end=end)


def describe(schedule: str | None, timezone: str) -> str:
    """The schedule in words, such as "every day at 02:00 Europe/Paris"; an unusual one as it is."""
    if schedule is None:
        return "only by hand"
    try:
        check_schedule(schedule, timezone)
    except InvalidInput:
        return f"{schedule} {timezone}"
    return _words(schedule, timezone) or f"{schedule} {timezone}"


class _Cron:
    """A parsed schedule in its zone; gives the instants of any local day."""

    def __init__(self, fields: list[str], zone: ZoneInfo) -> None:
        self._sim = CronSim(" ".join(fields), _REFERENCE)
        self._zone = zone
        self._follows_clock = fields[0].startswith("*") or fields[1].startswith("*")
        self._times = [
            time(hour, minute)
            for hour in sorted(self._sim.hours)
            for minute in sorted(self._sim.minutes)
        ]
        self._since_midnight = [timedelta(hours=t.hour, minutes=t.minute) for t in self._times]

    def following(self, instant: datetime) -> datetime:
        """The first fire time after the instant. Raises ``InvalidInput`` if none is near."""
        for times in self._around(instant, _DAY):
            place = bisect_right(times, instant)
            if place < len(times):
                return times[place]
        raise self._nothing(instant, "after")

    def preceding(self, instant: datetime) -> datetime:
        """The last fire time before the instant. Raises ``InvalidInput`` if none is near."""
        for times in self._around(instant, -_DAY):
            place = bisect_left(times, instant)
            if place:
                return times[place - 1]
        raise self._nothing(instant, "before")

    def at_or_following(self, instant: datetime) -> datetime:
        """The instant itself if the schedule fires then, else the first fire time after it."""
        return self.following(instant - timedelta.resolution)

    def at_or_preceding(self, instant: datetime) -> datetime:
        """The instant itself if the schedule fires then, else the last fire time before it."""
        return self.preceding(instant + timedelta.resolution)

    def _around(self, instant: datetime, step: timedelta) -> Iterator[list[datetime]]:
        """Fire times of three local days at a time, sorted, from the instant's day on.

        Three, because a clock that is put back after midnight makes local days overlap.
        """
        try:
            day = instant.astimezone(self._zone).date()
            for _ in range(SEARCH_DAYS_MAX):
                three = (day - _DAY, day, day + _DAY)
                yield sorted(chain.from_iterable(map(self._fire_times, three)))
                day += step
        except OverflowError:
            return  # the calendar ends

    def _fire_times(self, day: date) -> list[datetime]:
        """The instants that belong to a local day."""
        if day.month not in self._sim.months or not self._sim.match_day(day):
            return []
        offset = datetime.combine(day, time(), self._zone).utcoffset()
        if offset == datetime.combine(day + _DAY, time(), self._zone).utcoffset():
            midnight = datetime.combine(day, time(), UTC) - (offset or timedelta())
            return [midnight + since for since in self._since_midnight]
        if self._follows_clock:
            found = (
                self._real(datetime.combine(day, t).replace(fold=f))
                for t in self._times
                for f in (0, 1)
            )
            return [instant for instant in found if instant is not None]
        return [self._real_or_jump(datetime.combine(day, t)) for t in self._times]

    def _real(self, wall: datetime) -> datetime | None:
        """The instant at which the clock shows this; null if it never does."""
        instant = wall.replace(tzinfo=self._zone).astimezone(UTC)
        shown = instant.astimezone(self._zone).replace(tzinfo=None)
        return instant if shown == wall else None

    def _real_or_jump(self, wall: datetime) -> datetime:
        """The same, but for a time that the clock skips: the instant of the jump."""
        while (instant := self._real(wall)) is None:
            wall += _MINUTE
        return instant

    def _nothing(self, instant: datetime, where: str) -> InvalidInput:
        return InvalidInput(
            f"The schedule does not fire within {SEARCH_DAYS_MAX // 366} years {where}"
            f" {instant.isoformat()}.",
            field="schedule",
            remedy="Give a schedule whose day exists, and dates that are not at the end of time.",
        )


@lru_cache(maxsize=CACHED_MAX)
def _cron(schedule: str, timezone: str) -> _Cron:
    """The parsed schedule; it fires. Raises ``InvalidInput``."""
    zone = _zone(timezone)
    fields = _fields(schedule)
    try:
        cron = _Cron(fields, zone)
        cron.following(_REFERENCE)
    except (CronSimError, InvalidInput) as error:
        raise _refusal(schedule, fields) from error
    return cron


def _zone(timezone: str) -> ZoneInfo:
    try:
        return ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidInput(
            f"There is no time zone {timezone!r}.",
            field="timezone",
            remedy="Give an IANA name such as UTC or Europe/Paris.",
        ) from error


def _fields(schedule: str) -> list[str]:
    """The five fields of a schedule or preset. Raises ``InvalidInput``."""
    text = schedule.strip()
    if text.startswith("@"):
        if text.lower() not in PRESETS:
            raise InvalidInput(
                f"There is no preset {text!r}.",
                field="schedule",
                remedy=f"Use one of {', '.join(PRESETS)}, or five cron fields.",
            )
        text = PRESETS[text.lower()]
    fields = text.upper().split()
    if len(fields) != len(FIELDS):
        raise InvalidInput(
            f"The schedule {schedule!r} has {len(fields)} fields, not five.",
            field="schedule",
            remedy=f"Give {', '.join(FIELDS)}, for example '0 2 * * *' (every day at 02:00).",
        )
    return fields


_BOUNDS: Final = ("0-59", "0-23", "1-31", "1-12 or JAN-DEC", "0-7 or SUN-SAT")
_LIMITS: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_RANGE: Final = re.compile(r"(\d+)-(\d+)")


def _refusal(schedule: str, fields: list[str]) -> InvalidInput:
    """Which field is wrong, and what to write instead."""
    for place, text in enumerate(fields):
        alone = ["*"] * len(FIELDS)
        alone[place] = text
        try:
            CronSim(" ".join(alone), _REFERENCE)
        except CronSimError:
            return InvalidInput(
                f"The schedule {schedule!r} is wrong at {FIELDS[place]}: {text!r}.",
                field="schedule",
                remedy=_remedy(place, text),
            )
    return InvalidInput(
        f"The schedule {schedule!r} names a day that never comes.",
        field="schedule",
        remedy="Give a day of the month that the named months have.",
    )


def _remedy(place: int, text: str) -> str:
    low, high = _LIMITS[place]
    for found in _RANGE.finditer(text):
        first, last = int(found[1]), int(found[2])
        if low <= last < first <= high:
            return f"A range goes upwards: write {first}-{high},{low}-{last}."
    return f"Give values of {_BOUNDS[place]}, lists (1,2), ranges (1-5) or steps (*/15)."


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


_WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
)


def _words(schedule: str, timezone: str) -> str | None:
    """The common shapes of schedules in words; null for the others."""
    minute, hour, *days = _fields(schedule)
    if not minute.isdigit():
        return _minutes(minute) if [hour, *days] == ["*"] * 4 else None
    if not hour.isdigit():
        every = _hours(hour) if days == ["*"] * 3 else None
        return every and f"{every} at minute {int(minute)} {timezone}"
    on = _days(*days)
    return on and f"{on} at {int(hour):02}:{int(minute):02} {timezone}"


def _minutes(minute: str) -> str | None:
    if minute == "*":
        return "every minute"
    step = minute.removeprefix("*/")
    return f"every {int(step)} minutes" if step.isdigit() and 60 % int(step) == 0 else None


def _hours(hour: str) -> str | None:
    if hour == "*":
        return "every hour"
    step = hour.removeprefix("*/")
    return f"every {int(step)} hours" if step.isdigit() and 24 % int(step) == 0 else None


def _days(day: str, month: str, weekday: str) -> str | None:
    if (day, month) == ("*", "*"):
        if weekday == "*":
            return "every day"
        return _weekdays(weekday)
    if weekday != "*" or not day.isdigit():
        return None
    if month == "*":
        return f"on day {int(day)} of every month"
    return f"every year on {int(day)} {_MONTHS[int(month) - 1]}" if month.isdigit() else None


def _weekdays(weekday: str) -> str | None:
    numbers = [_weekday(part) for part in weekday.split("-")]
    if None in numbers or len(numbers) > 2:
        return None
    names = [_WEEKDAYS[number] for number in numbers if number is not None]
    return f"every {names[0]}" if len(names) == 1 else f"every {names[0]} to {names[1]}"


def _weekday(text: str) -> int | None:
    if text.isdigit():
        return int(text) % 7
    short = [name[:3].upper() for name in _WEEKDAYS]
    return short.index(text) if text in short else None
