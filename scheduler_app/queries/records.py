"""Records of every noun in one list: what was set aside anywhere, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db import connections
from django.db.models import Count, Max, Q
from django.db.models.functions import Coalesce, TruncHour

from scheduler_app.models import Counter, Ghost, Record, TakeOver
from scheduler_app.queries import lens, reviewed
from scheduler_app.rules import errors
from scheduler_app.rules.leadership import FAIL_OVERS, Cause

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import RecordFilter
    from scheduler_app.queries.scope import Scope

TOP: Final = 5  # sources of each kind
FLOW: Final = Coalesce("flow_id", "run__flow_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRow(lens.Standing):
    """One record of any noun. Columns that its noun does not have are null."""

    key: str  # noun and id
    noun: str
    record_id: str
    at: datetime | None  # when it was set aside; of a current one, when it came
    flow_id: str | None
    run_id: str | None
    run: int | None
    ti: int | None
    task_id: str | None
    map_index: int | None
    attempt_id: UUID | None
    hostname: str | None
    pid: int | None
    shard: int | None
    kind: str | None
    state: str | None
    ran: bool  # user code of its own was seen to run
    reviewed: Mapping[str, Any] | None  # by, at, note: of who has looked at it


def _rows(scope: Scope) -> QuerySet[Record]:
    rows = Record.objects.all()
    if scope.flow_ids is None and scope.sees_shared:
        return rows  # no join, for the counts
    return scope.owned(rows.annotate(owner=FLOW), "owner")


NOUN: Final = lens.Noun(
    name="records",
    model=Record,
    row=RecordRow,
    rows=_rows,
    columns={
        "flow_id": FLOW,
        "run_id": "run__run_key",
        "run": "run_id",
        "ti": "ti_id",
        "reviewed": reviewed.of(reviewed.OF_RECORD),
    },
    key="key",
)


def page(asked: RecordFilter, scope: Scope) -> lens.Page[RecordRow]:
    """One page of records."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, key: str) -> RecordRow:
    """The record with this key. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(key=key), f"record {key}")


def check_visible(scope: Scope, keys: Sequence[str]) -> None:
    """Raises ``NotFound`` unless the reader may see all of these records and ghosts."""
    wanted = {*keys}
    numbers = {key: key.partition(":")[2] for key in wanted if key.startswith("ghost:")}
    texts = [key for key in wanted if key not in numbers and "\x00" not in key]
    seen = set(_rows(scope).filter(key__in=texts).values_list("key", flat=True))
    ids = [int(text) for text in numbers.values() if text.isdecimal() and len(text) < 19]
    rows = scope.owned(Ghost.objects.filter(id__in=ids), "run__flow_id")
    seen |= {f"ghost:{number}" for number in rows.values_list("id", flat=True)}
    missing = sorted(wanted - seen)
    if missing:
        name = missing[0][:80].replace("\x00", "�")
        raise errors.NotFound(f"There is no record {name}, or you may not see it.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where filtered records come from, and how many do."""

    name: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What the filtered records of a list have in common."""

    hours: tuple[tuple[datetime, Mapping[str, int]], ...]  # oldest first; code -> records
    sources: Mapping[str, tuple[Source, ...]]  # noun, hostname, shard, flow_id -> the largest


def summary(asked: RecordFilter, scope: Scope, *, since: datetime) -> Summary:
    """The filtered records that the filter keeps, by hour since then, and by where they come from.

    Sources are of the same time, unless the filter says from when on: the whole history may be long.
    """
    rows = asked.matching(_rows(scope)).filter(filter_code__isnull=False)
    if asked.why:
        rows = rows.filter(filter_code__in=asked.why)
    hours: dict[datetime, dict[str, int]] = {}
    by_hour = (
        rows.filter(filtered_at__gte=since)
        .annotate(hour=TruncHour("filtered_at"))
        .order_by("hour", "filter_code")
        .values_list("hour", "filter_code")
        .annotate(n=Count("*"))
    )
    for hour, code, number in by_hour:
        hours.setdefault(hour, {})[code] = number
    recent = rows if asked.at_gte else rows.filter(filtered_at__gte=since)
    return Summary(hours=tuple(hours.items()), sources=_sources(recent))


def _sources(rows: QuerySet[Record]) -> dict[str, tuple[Source, ...]]:
    """The largest sources of each kind, in one statement."""
    names = ("noun", "hostname", "shard", "flow_id")
    plain = lens.compiled(rows.order_by().values_list("noun", "hostname", "shard", FLOW))
    grouped = (
        "SELECT source_noun, hostname, shard, flow_id, count(*) AS n,"  # noqa: S608 - Django's own SQL
        " grouping(source_noun, hostname, shard, flow_id) AS which"
        f" FROM ({plain.sql}) r (source_noun, hostname, shard, flow_id)"
        " GROUP BY GROUPING SETS ((source_noun), (hostname), (shard), (flow_id)) ORDER BY n DESC"
    )
    found: dict[str, list[Source]] = {name: [] for name in names}
    with connections[rows.db].cursor() as cursor:
        cursor.execute(grouped, plain.parameters)
        for *values, number, which in cursor.fetchall():
            place = _GROUPING.index(which)
            if values[place] is not None and len(found[names[place]]) < TOP:
                found[names[place]].append(Source(name=str(values[place]), number=number))
    return {name: tuple(several) for name, several in found.items()}


# grouping() has a bit for each column that is not part of the set, the first column highest.
_GROUPING: Final = (0b0111, 0b1011, 0b1101, 0b1110)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastChanges:
    """When leaders last changed; null: they never did."""

    fail_over: datetime | None  # from a leader that had not given its shard up
    planned: datetime | None  # from one that had: a stop, a drain, a fairer share


def last_changes(scope: Scope) -> LastChanges:
    """When a shard was last taken over, and when one was last handed over, by their take-overs."""
    rows = scope.shared(TakeOver.objects.order_by())
    found = dict(
        rows.filter(cause__in=(*FAIL_OVERS, Cause.RELEASED))
        .annotate(is_fail_over=Q(cause__in=FAIL_OVERS))
        .values_list("is_fail_over")
        .annotate(at=Max(Coalesce("acquired_at", "started_at")))
    )
    return LastChanges(fail_over=found.get(True), planned=found.get(False))


def judged_events() -> int:
    """How many executor events have their verdict: of so many the filtered ones are a part."""
    name = "scheduler_executor_events_processed_total"
    return sum(Counter.objects.filter(name=name).values_list("value", flat=True))
