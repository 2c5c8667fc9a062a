"""Five cron fields or a preset, read on the wall clock of an IANA zone. Instants are aware UTC."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from scheduler_app.rules.errors import InvalidInput
from scheduler_app.rules.fire_times import FireTimes

if TYPE_CHECKING:
    from collections.abc import Iterator

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


class SkippedTimes(StrEnum):
    """What becomes of a local time that the clock skips, where the schedule names fixed times."""

    AT_JUMP = "at_jump"  # once, at the instant of the jump
    SKIP = "skip"  # not on that day


class RepeatedTimes(StrEnum):
    """What becomes of a local time that comes twice, where the schedule names fixed times."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


class Cron(FireTimes):
    """The fire times of five fields in a zone.

    Over a change of the clock: a schedule whose minute or hour field starts with a star follows the
    real clock (a skipped hour: not at all; a repeated one: twice). Any other names fixed times,
    which by default come once a day: a skipped one at the jump, a repeated one at its first
    occurrence. Days: either day field is enough, unless one starts with a star; then both must
    match.

    Source: Debian's cron, as cronsim 2.8 has it.
    """

    def __init__(
        self,
        fields: list[str],
        zone: ZoneInfo,
        *,
        skipped: SkippedTimes = SkippedTimes.AT_JUMP,
        repeated: RepeatedTimes = RepeatedTimes.FIRST,
    ) -> None:
        self._skipped = skipped
        self._repeated = repeated
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
        for _, times in self._around(instant, _DAY):
            place = bisect_right(times, instant)
            if place < len(times):
                return times[place]
        raise self._nothing(instant, "after")

    def upcoming(self, instant: datetime) -> Iterator[datetime]:
        """See ``FireTimes``; each day is looked at once, and where none is near it ends."""
        last, is_any = instant, True
        while is_any:
            is_any = False
            for day, times in self._around(last, _DAY):
                for at in times[bisect_right(times, last) :]:
                    if at.astimezone(self._zone).date() > day:
                        break  # the days after it may have earlier ones
                    last, is_any = at, True
                    yield at

    def preceding(self, instant: datetime) -> datetime:
        """The last fire time before the instant. Raises ``InvalidInput`` if none is near."""
        for _, times in self._around(instant, -_DAY):
            place = bisect_left(times, instant)
            if place:
                return times[place - 1]
        raise self._nothing(instant, "before")

    def _around(self, instant: datetime, step: timedelta) -> Iterator[tuple[date, list[datetime]]]:
        """Each local day from the instant's on, with the fire times of the days around it, sorted.

        Three, because a clock that is put back after midnight makes local days overlap.
        """
        try:
            day = instant.astimezone(self._zone).date()
            for _ in range(SEARCH_DAYS_MAX):
                three = (day - _DAY, day, day + _DAY)
                yield day, sorted({*chain.from_iterable(map(self._fire_times, three))})
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
        return [instant for t in self._times for instant in self._fixed(datetime.combine(day, t))]

    def _fixed(self, wall: datetime) -> list[datetime]:
        """The instants of a fixed time on one day, as the policies have it."""
        first, second = self._real(wall), self._real(wall.replace(fold=1))
        if first is None or second is None:
            return [] if self._skipped is SkippedTimes.SKIP else [self._jump(wall)]
        match self._repeated:
            case RepeatedTimes.FIRST:
                return [first]
            case RepeatedTimes.SECOND:
                return [second]
        return sorted({first, second})

    def _real(self, wall: datetime) -> datetime | None:
        """The instant at which the clock shows this; null if it never does."""
        instant = wall.replace(tzinfo=self._zone).astimezone(UTC)
        shown = instant.astimezone(self._zone).replace(tzinfo=None)
        return instant if shown == wall else None

    def _jump(self, wall: datetime) -> datetime:
        """The instant at which the clock jumps over this time."""
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
def cron_of(
    text: str,
    timezone: str,
    *,
    skipped: SkippedTimes = SkippedTimes.AT_JUMP,
    repeated: RepeatedTimes = RepeatedTimes.FIRST,
) -> Cron:
    """The fire times of a cron expression or preset; it fires. Raises ``InvalidInput``.

    Refused beside nonsense: reversed ranges, six fields, and days that never come.
    """
    zone = zone_of(timezone)
    fields = fields_of(text)
    try:
        cron = Cron(fields, zone, skipped=skipped, repeated=repeated)
        cron.following(_REFERENCE)
    except (CronSimError, InvalidInput) as error:
        raise _refusal(text, fields) from error
    return cron


def zone_of(timezone: str) -> ZoneInfo:
    """The zone. Raises ``InvalidInput``."""
    try:
        return ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidInput(
            f"There is no time zone {timezone!r}.",
            field="timezone",
            remedy="Give an IANA name such as UTC or Europe/Paris.",
        ) from error


def fields_of(schedule: str) -> list[str]:
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
