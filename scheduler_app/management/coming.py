"""``manage.py flows next``: when a flow fires next, of a stack or of a file."""

from __future__ import annotations

from argparse import ArgumentTypeError
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from scheduler_app.management import validate
from scheduler_app.management.arguments import add_json, moment
from scheduler_app.management.output import as_json, table
from scheduler_app.queries import flows
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules.errors import DefinitionError
from scheduler_app.rules.schedule_words import describe
from scheduler_app.rules.timetable import coming_due, instant

if TYPE_CHECKING:
    from argparse import ArgumentParser

TIMES_MAX: Final = 1_000


def add_next(parser: ArgumentParser) -> None:
    """The arguments of ``flows next``."""
    parser.description = (
        "When a flow fires next: of the stack, or of a file, which needs none. A flow that is paused"
        " has its times too; no run is made at them."
    )
    parser.epilog = "Exit codes: 0 done, also where nothing comes; 1 no such flow or a faulty file."
    parser.add_argument("what", metavar="FLOW|FILE")
    parser.add_argument(
        "--count", type=_count, default=flows.NEXT_TIMES, help=f"default {flows.NEXT_TIMES}"
    )
    parser.add_argument(
        "--after", type=moment, metavar="TIME", help="ISO 8601 with an offset; default: now"
    )
    add_json(parser)


def told(options: dict[str, Any]) -> str:
    """The times of each flow that is named."""
    after, count = options["after"] or datetime.now(UTC), options["count"]
    found = [
        {
            "flow_id": flow_id,
            "schedule": words,
            "timezone": zone,
            "is_paused": is_paused,
            "next_fire_times": times,
        }
        for flow_id, words, zone, is_paused, times in _times(options["what"], after, count)
    ]
    if options["json"]:
        return as_json(found)
    return "\n\n".join(map(_table, found))


def _times(
    what: str, after: datetime, count: int
) -> list[tuple[str, str, str, bool, list[datetime]]]:
    if not Path(what).is_file():
        flow = flows.one(EVERYTHING, what)
        words, zone = flows.schedule_in_words(flow), flow.timezone or "UTC"
        return [(flow.flow_id, words, zone, flow.is_paused, flows.next_times(flow, after, count))]
    checked = validate.check(what)
    if checked.faults:
        first = checked.faults[0]
        message = f"{first['file']}:{first['line']}: {first['message']} {first['remedy']}"
        raise DefinitionError(message)
    found = []
    for one in checked.flows:
        spec = one.timetable or one.schedule
        start, end = instant(one.start_date), instant(one.end_date)
        times = (
            []
            if spec is None
            else coming_due(spec, one.timezone, after, count, start_date=start, end_date=end)
        )
        words = flows.BY_HAND if spec is None else describe(spec, one.timezone)
        found.append((one.flow_id, words, one.timezone, False, times))
    return found


def _table(found: dict[str, Any]) -> str:
    paused = " (paused: no runs are made)" if found["is_paused"] else ""
    heading = f"{found['flow_id']}: {found['schedule']}{paused}"
    if not found["next_fire_times"]:
        none = (
            "does not fire by itself" if found["schedule"] == flows.BY_HAND else "has no more dates"
        )
        return f"{heading}\nIt {none}."
    zone = ZoneInfo(found["timezone"])
    lines = [
        (at, at.astimezone(zone).strftime("%a %Y-%m-%d %H:%M:%S %z"))
        for at in found["next_fire_times"]
    ]
    return f"{heading}\n{table(('UTC', found['timezone']), lines)}"


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= TIMES_MAX:
        raise ArgumentTypeError(f"{text} is not from 1 to {TIMES_MAX}")
    return int(text)
