"""Schedules as authors write them, checked where they stand."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from scheduler_app.authoring.options import BadOption, duration_s
from scheduler_app.rules import schedule as rules
from scheduler_app.rules.cron import RepeatedTimes, SkippedTimes

WAYS: Final = (
    "a cron expression, a preset such as '@daily', several of them in a list, a timedelta, a list of"
    " dates, Schedule(...), or None"
)


class Schedule:
    """A schedule in its long form: ``schedule=Schedule("0 9 * * 1-5", exclude=[date(2026, 12, 25)])``.

    One of these says when it fires: ``*crons`` (expressions or presets; whenever one of them does),
    ``every`` (a timedelta, counted from the flow's start_date or else from 1970, by real time), or
    ``dates`` (naive ones are in the flow's zone).
    ``exclude``: local days on which it does not fire; an interval reaches over them.
    ``planner``: "data_interval" (a run's data reach from one fire time to the next; it is due at
    the end) or "trigger" (a run for each fire time, due then, whose data reach back by ``interval``;
    always so for ``dates``). ``run_immediately`` (trigger planner without start_date): whether the
    fire time before the flow was first seen gets a run; a timedelta: if it is no older.
    ``skipped_times`` ("at_jump", "skip") and ``repeated_times`` ("first", "second", "both"): what
    becomes of a fixed local time that a change of the clock skips or repeats.
    """

    def __init__(
        self,
        *crons: str,
        every: timedelta | None = None,
        dates: Iterable[date] = (),
        exclude: Iterable[date] = (),
        planner: str | None = None,
        interval: timedelta | float = 0,
        run_immediately: bool | timedelta = False,
        skipped_times: str = SkippedTimes.AT_JUMP,
        repeated_times: str = RepeatedTimes.FIRST,
    ) -> None:
        self.crons = crons
        self.every = every
        self.dates = dates
        self.exclude = exclude
        self.planner = planner
        self.interval = interval
        self.run_immediately = run_immediately
        self.skipped_times = skipped_times
        self.repeated_times = repeated_times


def checked(value: object) -> str | Schedule:
    """What ``schedule=`` was given, in one of two forms. Raises ``BadOption``."""
    if isinstance(value, (str, Schedule)):
        return value
    if isinstance(value, timedelta):
        return Schedule(every=value)
    if isinstance(value, (list, tuple, set, frozenset)) and value:
        if all(isinstance(one, str) for one in value):
            return Schedule(*value)
        if all(isinstance(one, date) for one in value):
            return Schedule(dates=list(value))
    raise BadOption(WAYS)


def stored(value: str | Schedule, zone: str) -> str | rules.Schedule:
    """The values of a schedule, with dates of the flow's zone. Raises ``BadOption``."""
    if isinstance(value, str):
        return value
    dates = _texts(in_zone(one, zone) for one in _all_dates("dates", value.dates))
    made = rules.Schedule(
        crons=tuple(_texts_only(value.crons)),
        every_s=None if value.every is None else _seconds("every", value.every),
        dates=dates,
        exclude=_texts(_day(one, zone) for one in _all_dates("exclude", value.exclude)),
        planner=_one_of(
            "planner",
            value.planner or (rules.Planner.TRIGGER if dates else rules.Planner.DATA_INTERVAL),
            rules.Planner,
        ),
        interval_s=_seconds("interval", value.interval),
        run_immediately=_immediately(value.run_immediately),
        skipped_times=_one_of("skipped_times", value.skipped_times, SkippedTimes),
        repeated_times=_one_of("repeated_times", value.repeated_times, RepeatedTimes),
    )
    return made.crons[0] if made.is_simple else made


def in_zone(value: date, zone: str) -> datetime:
    """The moment that a date or a naive moment means in the flow's zone."""
    moment = value if isinstance(value, datetime) else datetime.combine(value, time())
    return moment if moment.utcoffset() is not None else moment.replace(tzinfo=ZoneInfo(zone))


def _day(value: date, zone: str) -> date:
    return in_zone(value, zone).astimezone(ZoneInfo(zone)).date()


def _all_dates(name: str, values: object) -> list[date]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise BadOption(f"a schedule with {name} as a list of dates")
    found = list(values)
    if not all(isinstance(one, date) for one in found):
        raise BadOption(f"a schedule with dates or datetimes in {name}")
    return found


def _texts(values: Iterable[date]) -> tuple[str, ...]:
    return tuple(sorted({one.isoformat() for one in values}))


def _texts_only(values: Iterable[Any]) -> list[str]:
    found = list(values)
    if not all(isinstance(one, str) for one in found):
        raise BadOption("a schedule of cron expressions or presets, each a text of its own")
    return found


def _seconds(name: str, value: timedelta | float) -> float:
    try:
        return duration_s(value)
    except BadOption as error:
        raise BadOption(f"a schedule with {error} as {name}") from None


def _immediately(value: bool | timedelta) -> bool | float:
    return value if isinstance(value, bool) else _seconds("run_immediately", value)


def _one_of(name: str, value: object, words: Any) -> str:
    allowed = [str(word) for word in words]
    if value not in allowed:
        raise BadOption(f"a schedule with one of {', '.join(allowed)} as {name}")
    return str(value)
