"""When something fires: by fixed steps, on listed dates, by several at once, on all but some days."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from zoneinfo import ZoneInfo

_DAY: Final = timedelta(days=1)
EXCLUDED_DAYS_MAX: Final = 50 * 366  # in a row; who excludes more never fires


class FireTimes(ABC):
    """Instants, aware UTC, that strictly follow each other."""

    @abstractmethod
    def following(self, instant: datetime) -> datetime | None:
        """The first fire time after the instant; null if none comes."""

    @abstractmethod
    def preceding(self, instant: datetime) -> datetime | None:
        """The last fire time before the instant; null if there was none."""

    def upcoming(self, instant: datetime) -> Iterator[datetime]:
        """Every fire time after the instant, one by one."""
        at = self.following(instant)
        while at is not None:
            yield at
            at = self.following(at)

    def at_or_following(self, instant: datetime) -> datetime | None:
        """The instant itself if it is a fire time, else the first one after it."""
        return self.following(instant - timedelta.resolution)

    def at_or_preceding(self, instant: datetime) -> datetime | None:
        """The instant itself if it is a fire time, else the last one before it."""
        return self.preceding(instant + timedelta.resolution)


class Steps(FireTimes):
    """Every so often, counted from an instant in both directions, by the real clock."""

    def __init__(self, *, step: timedelta, origin: datetime) -> None:
        self._step = step
        self._origin = origin

    def following(self, instant: datetime) -> datetime | None:
        """See ``FireTimes``."""
        return self._at((instant - self._origin) // self._step + 1)

    def preceding(self, instant: datetime) -> datetime | None:
        """See ``FireTimes``."""
        return self._at(-((self._origin - instant) // self._step) - 1)

    def _at(self, number: int) -> datetime | None:
        try:
            return self._origin + number * self._step
        except OverflowError:
            return None  # the calendar ends


class Listed(FireTimes):
    """At the instants that somebody listed."""

    def __init__(self, instants: Sequence[datetime]) -> None:
        self._instants = sorted({instant.astimezone(UTC) for instant in instants})

    def following(self, instant: datetime) -> datetime | None:
        """See ``FireTimes``."""
        place = bisect_right(self._instants, instant)
        return self._instants[place] if place < len(self._instants) else None

    def preceding(self, instant: datetime) -> datetime | None:
        """See ``FireTimes``."""
        place = bisect_left(self._instants, instant)
        return self._instants[place - 1] if place else None


class AnyOf(FireTimes):
    """Whenever one of several fires; once where they meet."""

    def __init__(self, parts: Sequence[FireTimes]) -> None:
        self._parts = tuple(parts)

    def following(self, instant: datetime) -> datetime | None:
        """See ``FireTimes``."""
        found = (part.following(instant) for part in self._parts)
        return min((at for at in found if at is not None), default=None)

    def preceding(self, instant: datetime) -> datetime | None:
        """See ``FireTimes``."""
        found = (part.preceding(instant) for part in self._parts)
        return max((at for at in found if at is not None), default=None)


class Without(FireTimes):
    """What another one gives, but for some local days."""

    def __init__(self, base: FireTimes, days: frozenset[date], zone: ZoneInfo) -> None:
        self._base = base
        self._days = days
        self._zone = zone

    def following(self, instant: datetime) -> datetime | None:
        """See ``FireTimes``."""
        at = self._base.following(instant)
        for _ in range(EXCLUDED_DAYS_MAX):
            if at is None or (day := self._day(at)) not in self._days:
                return at
            at = self._base.at_or_following(self._begin(day + _DAY))
        return None

    def preceding(self, instant: datetime) -> datetime | None:
        """See ``FireTimes``."""
        at = self._base.preceding(instant)
        for _ in range(EXCLUDED_DAYS_MAX):
            if at is None or (day := self._day(at)) not in self._days:
                return at
            at = self._base.preceding(self._begin(day))
        return None

    def _day(self, instant: datetime) -> date:
        return instant.astimezone(self._zone).date()

    def _begin(self, day: date) -> datetime:
        """The first instant of a local day; where its midnight is skipped, that of the jump."""
        return datetime.combine(day, time(), self._zone).astimezone(UTC)
