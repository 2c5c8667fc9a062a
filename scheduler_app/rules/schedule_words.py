"""What a flow's schedule says, in words: when it fires, and what becomes of each date."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from typing import TYPE_CHECKING, Final

from scheduler_app.rules.cron import RepeatedTimes, SkippedTimes, fields_of
from scheduler_app.rules.definition import Overlap
from scheduler_app.rules.errors import InvalidInput
from scheduler_app.rules.schedule import Planner, as_schedule, check_schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scheduler_app.rules.definition import FlowDefinition
    from scheduler_app.rules.schedule import Schedule

EXCLUDED_TOLD_MAX: Final = 3  # days named one by one
TIMES_TOLD_MAX: Final = 6  # of a day
DIFFERENCES_TOLD_MAX: Final = 20  # of a list, one by one, of each sign
_WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
)


def describe(schedule: str | Schedule | None, timezone: str) -> str:
    """The schedule in words, such as "every day at 02:00 Europe/Paris"; an unusual one as it is."""
    if schedule is None:
        return "only by hand"
    long = as_schedule(schedule)
    try:
        check_schedule(long, timezone)
    except InvalidInput:
        return f"{long.text} {timezone}"
    if long.dates:
        days = [f"{_day(date.fromisoformat(text[:10]))}" for text in long.dates]
        told = _listed(days) if len(days) <= EXCLUDED_TOLD_MAX else f"{len(days)} dates"
        said, is_zoned = f"on {told}", False
    elif long.every_s is not None:
        said, is_zoned = long.text.partition(" except ")[0], False
    else:
        parts = [_words(cron) or (cron, True) for cron in long.crons]
        said = ", and ".join(words for words, _ in parts)
        is_zoned = any(zoned for _, zoned in parts)
    if is_zoned:
        said = f"{said} {timezone}"
    return f"{said}, except {_excluded(long.exclude)}" if long.exclude else said


def policies(definition: FlowDefinition) -> list[tuple[str, str]]:
    """What holds for the dates of the schedule: a heading and a sentence each; none without one."""
    schedule = definition.timetable or definition.schedule
    if schedule is None:
        return []
    long = as_schedule(schedule)
    return [
        ("A run is about", _about(long)),
        ("When the clock changes", _changes(long, definition.timezone)),
        ("Missed dates", _missed(definition)),
        ("When runs would overlap", _overlap(definition)),
        ("After failures in a row", _failures(definition)),
        *([("First date", definition.start_date)] if definition.start_date else []),
        *([("Last date", definition.end_date)] if definition.end_date else []),
    ]


def differences(old: FlowDefinition, new: FlowDefinition) -> tuple[tuple[str, str], ...]:
    """What differs between two schedules: a sign (``+``, ``-``, ``~``) and words for each difference."""
    told = [
        *_fires(old, new),
        *(
            ("~", f"{name}: {before} → {after}")
            for name, before, after in _rules(old, new)
            if before != after
        ),
    ]
    if (told or _when(old) == _when(new)) and old.timezone == new.timezone:
        return tuple(told)
    if old.timezone != new.timezone:
        return (*told, ("~", f"timezone: {old.timezone} → {new.timezone}"))
    before, after = (as_schedule(when).text for one in (old, new) if (when := _when(one)))
    return (("~", f"schedule: {before} → {after}, which means the same"),)


# --- what differs ---------------------------------------------------------------------------------


def _when(definition: FlowDefinition) -> str | Schedule | None:
    return definition.timetable or definition.schedule


def _fires(old: FlowDefinition, new: FlowDefinition) -> list[tuple[str, str]]:
    """When it fires: of lists what came and went, of anything else all of it in words."""
    before, after = _when(old), _when(new)
    if before is None or after is None:
        return _replaced(old, new)
    one, other = as_schedule(before), as_schedule(after)
    listed: list[tuple[str, str]] = []
    is_listed = (one.every_s, other.every_s) == (None, None)
    if one.dates and other.dates:
        listed += _came_and_went(one.dates, other.dates, _instant)
    elif len(one.crons) > 1 and len(other.crons) > 1:
        listed += _came_and_went(
            [_cron(cron, old.timezone) for cron in one.crons],
            [_cron(cron, new.timezone) for cron in other.crons],
            str,
        )
    elif is_listed or one.every_s != other.every_s:
        without = tuple(replace(long, exclude=()) for long in (one, other))
        listed += _replaced(replace(old, timetable=without[0]), replace(new, timetable=without[1]))
    listed += _came_and_went(one.exclude, other.exclude, _left_out)
    return listed


def _replaced(old: FlowDefinition, new: FlowDefinition) -> list[tuple[str, str]]:
    before, after = (describe(_when(one), one.timezone) for one in (old, new))
    return [("~", f"schedule: {before} → {after}")] if before != after else []


def _came_and_went(
    before: Sequence[str], after: Sequence[str], word: Callable[[str], str]
) -> list[tuple[str, str]]:
    """What stands in one of two lists alone, each in the order of its list; of many the first ones."""
    had, has = frozenset(before), frozenset(after)
    told = []
    for sign, some in (
        ("+", [one for one in after if one not in had]),
        ("-", [one for one in before if one not in has]),
    ):
        told += [(sign, word(one)) for one in some[:DIFFERENCES_TOLD_MAX]]
        if len(some) > DIFFERENCES_TOLD_MAX:
            told.append((sign, f"and {len(some) - DIFFERENCES_TOLD_MAX:,} more"))
    return told


def _cron(cron: str, timezone: str) -> str:
    return describe(cron, timezone)


def _instant(text: str) -> str:
    at = datetime.fromisoformat(text)
    clock = at.isoformat(timespec="minutes" if not at.second else "seconds")[11:]
    return f"{_day(at.date())} at {clock}"


def _left_out(text: str) -> str:
    return f"except {_day(date.fromisoformat(text))}"


def _rules(old: FlowDefinition, new: FlowDefinition) -> list[tuple[str, str, str]]:
    """What holds for its dates: a name, and what each of the two says."""
    both = [("missed dates", _missed(old), _missed(new))]
    if old.overlap != new.overlap:
        both.append(("when runs would overlap", _overlap(old), _overlap(new)))
    both += [
        ("first date", old.start_date or "none", new.start_date or "none"),
        ("last date", old.end_date or "none", new.end_date or "none"),
    ]
    before, after = _when(old), _when(new)
    if before is None or after is None:
        return both
    one, other = as_schedule(before), as_schedule(after)
    both.append(("a run is about", _about(one), _about(other)))
    if (one.skipped_times, one.repeated_times) != (other.skipped_times, other.repeated_times):
        changes = (_changes(one, old.timezone), _changes(other, new.timezone))
        both.append(("when the clock changes", *changes))
    both.append(("the date before a flow's first sight", _first_sight(one), _first_sight(other)))
    return both


def _first_sight(schedule: Schedule) -> str:
    if schedule.run_immediately is True:
        return "gets its run"
    if schedule.run_immediately is False:
        return "gets none"
    return f"gets its run if it was no longer than {_span(schedule.run_immediately)} ago"


# --- when it fires --------------------------------------------------------------------------------


def _words(cron: str) -> tuple[str, bool] | None:
    """The expression in words, and whether they mean a clock; null for an unusual one."""
    minute, hour, *day_fields = fields_of(cron)
    days = _days(*day_fields)
    if days is None:
        return None
    at = _at(minute, hour)
    if at is not None:
        return f"{days} at {at}", True
    often = _often(minute, hour)
    if often is None:
        return None
    is_daily = days == "every day"
    if is_daily and "from" not in often:
        return often, "at minute" in often
    return f"{days}, {often}", True


def _at(minute: str, hour: str) -> str | None:
    """The times of a day, where they are few."""
    minutes, hours = _numbers(minute), _numbers(hour)
    if not minutes or not hours or len(minutes) * len(hours) > TIMES_TOLD_MAX or "-" in hour:
        return None
    return _listed([f"{h:02}:{m:02}" for h in hours for m in minutes])


def _often(minute: str, hour: str) -> str | None:
    """How often within the hours."""
    if minute.isdigit():
        if hour == "*":
            return f"every hour at minute {int(minute)}"
        if step := _step(hour, 24):
            return f"every {step} hours at minute {int(minute)}"
        hours = _range(hour)
        if hours is None:
            return None
        first, last = (f"{one:02}:{int(minute):02}" for one in hours)
        return f"every hour from {first} to {last}"
    step = 1 if minute == "*" else _step(minute, 60)
    if not step:
        return None
    every = "every minute" if step == 1 else f"every {step} minutes"
    if hour == "*":
        return every
    hours = _range(hour)
    return f"{every} from {hours[0]:02}:00 to {hours[1]:02}:59" if hours else None


def _days(day: str, month: str, weekday: str) -> str | None:
    if every := _step(month, 12):
        month = ",".join(str(number) for number in range(1, 13, every))
    months = None if month == "*" else _named(month, _MONTHS, first=1)
    if month != "*" and months is None:
        return None
    within = f" in {_listed(months)}" if months else ""
    if day == "*":
        if weekday == "*":
            return f"every day{within}"
        words = _weekdays(weekday)
        return f"{words}{within}" if words else None
    if weekday != "*":
        return None
    if day == "L":
        return f"on the last day of {_listed(months) if months else 'every month'}"
    numbers = _numbers(day)
    if not numbers:
        return None
    if months and len(months) == len(numbers) == 1:
        return f"every year on {numbers[0]} {months[0]}"
    plural = "s" if len(numbers) > 1 else ""
    told = _listed([str(number) for number in numbers])
    return f"on day{plural} {told} of {_listed(months) if months else 'every month'}"


def _weekdays(weekday: str) -> str | None:
    if "-" in weekday and "," not in weekday:
        ends = [_named(part, _WEEKDAYS, first=0) for part in weekday.split("-")]
        if len(ends) != 2 or not all(ends):
            return None
        return f"every {' to '.join(names[0] for names in ends if names)}"
    names = _named(weekday, _WEEKDAYS, first=0)
    return f"every {_listed(names)}" if names else None


def _named(text: str, names: Sequence[str], *, first: int) -> list[str] | None:
    """The names that a list of numbers or short names means; null for anything else."""
    short = [name[:3].upper() for name in names]
    found = []
    for part in text.split(","):
        if part in short:
            found.append(names[short.index(part)])
        elif part.isdigit() and 0 <= int(part) - first <= len(names):
            found.append(names[(int(part) - first) % len(names)])
        else:
            return None
    return found


def _numbers(text: str) -> list[int]:
    """The numbers of a list; empty for anything else."""
    parts = text.split(",")
    return [int(part) for part in parts] if all(part.isdigit() for part in parts) else []


def _step(text: str, whole: int) -> int:
    """The step that divides the whole; 0 for anything else."""
    step = text.removeprefix("*/")
    return int(step) if step != text and step.isdigit() and whole % int(step) == 0 else 0


def _range(text: str) -> tuple[int, int] | None:
    ends = text.split("-")
    if len(ends) > 2 or not all(end.isdigit() for end in ends):
        return None
    return int(ends[0]), int(ends[-1])


def _excluded(days: Sequence[str]) -> str:
    if len(days) > EXCLUDED_TOLD_MAX:
        return f"{len(days)} days"
    return _listed([_day(date.fromisoformat(text)) for text in days])


def _day(day: date) -> str:
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"


def _listed(parts: Sequence[str]) -> str:
    """``a, b and c``."""
    *before, last = parts
    return f"{', '.join(before)} and {last}" if before else last


# --- what becomes of a date -----------------------------------------------------------------------


def _about(schedule: Schedule) -> str:
    if schedule.planner == Planner.DATA_INTERVAL:
        return "the time from one date to the next; it is due at its end"
    if schedule.interval_s:
        return f"the {_span(schedule.interval_s)} before its date; it is due then"
    return "its date; it is due then"


def _changes(schedule: Schedule, timezone: str) -> str:
    if schedule.every_s is not None:
        return "it is counted in real time and knows no changes"
    if schedule.dates:
        return "each date is one instant"
    if timezone == "UTC":
        return "UTC has no changes"
    is_real = [any(one.startswith("*") for one in fields_of(cron)[:2]) for cron in schedule.crons]
    real = "it follows the real clock: no skipped hour, a repeated one twice"
    if all(is_real):
        return real
    skipped = {
        SkippedTimes.AT_JUMP: "a skipped time comes at the jump",
        SkippedTimes.SKIP: "a skipped time is left out",
    }[SkippedTimes(schedule.skipped_times)]
    repeated = {
        RepeatedTimes.FIRST: "a repeated one once, the first time",
        RepeatedTimes.SECOND: "a repeated one once, the second time",
        RepeatedTimes.BOTH: "a repeated one both times",
    }[RepeatedTimes(schedule.repeated_times)]
    fixed = f"{skipped}, {repeated}"
    return (
        f"{fixed}; expressions that begin with a star follow the real clock"
        if any(is_real)
        else fixed
    )


def _missed(definition: FlowDefinition) -> str:
    if not definition.catchup:
        return "of those that nobody scheduled in time, the newest gets its run"
    if definition.catchup_window_s is None:
        return "each gets its run, oldest first"
    window = _span(definition.catchup_window_s)
    return f"each that was due no longer than {window} ago gets its run, oldest first"


def _overlap(definition: FlowDefinition) -> str:
    runs = definition.max_active_runs
    at = f"at {runs} active run{'s' if runs != 1 else ''}"
    return {
        Overlap.QUEUE: f"{at} a due date waits",
        Overlap.SKIP: f"{at} a due date is left out, with a record of it",
        Overlap.CANCEL_OLDER: f"{at} the oldest one is terminated for a due date",
    }[Overlap(definition.overlap)]


def _failures(definition: FlowDefinition) -> str:
    number = definition.max_consecutive_failed_runs
    if not number:
        return "the schedule goes on"
    return f"after {number} failed run{'s' if number != 1 else ''} the schedule is paused, and an incident opened"


def _span(seconds: float) -> str:
    """A length of time in its greatest whole unit."""
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds % length == 0:
            number = int(seconds // length)
            return f"{number} {unit}{'s' if number != 1 else ''}"
    return f"{seconds:g} s"
