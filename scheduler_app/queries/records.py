"""Records of every noun in one list: what was set aside anywhere, and why."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

from django.db import connection
from django.db.models import CharField, F, OuterRef, Q, Subquery
from django.db.models.functions import Coalesce

from scheduler_app.models import Counter, Ghost, Record, Run
from scheduler_app.models.record import NUMBER_LENGTH, NUMBERED, with_keys
from scheduler_app.queries import lens, record_ids, reviewed
from scheduler_app.queries.list_filter import Lens
from scheduler_app.rules import errors, visibility
from scheduler_app.rules.leadership import FAIL_OVERS, Cause
from scheduler_app.rules.states import AttemptKind, RunType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import RecordFilter
    from scheduler_app.queries.list_filter import ListFilter
    from scheduler_app.queries.scope import Scope

TOP: Final = 5  # sources of each kind
SOURCES_OF: Final = 2_000  # newest filtered records that are looked at for where they come from
# Subqueries, not joins: read for the rows of a page alone.
_RUN: Final = Run.objects.filter(id=OuterRef("run_id"))
FLOW: Final = Coalesce("flow_id", Subquery(_RUN.values("flow_id")), output_field=CharField())


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


def _newest_by(asked: ListFilter) -> tuple[Q, str]:
    """Which records, in which order of an index, tell how far back the newest few of all reach."""
    if asked.filtered is Lens.ONLY:
        return Q(), "filtered_at"  # each table has an index over what was set aside, by time
    nouns = getattr(asked, "noun", ()) or (_most_of(getattr(asked, "kind", ())),)
    if visibility.ATTEMPT in nouns:
        return Q(noun=visibility.ATTEMPT), "attempt_id"  # time-ordered ids
    return Q(noun=next((noun for noun in nouns if noun in NUMBERED), nouns[0])), "number"


def _most_of(kinds: Sequence[str]) -> str:
    """The noun of which there are most among records of these kinds."""
    if not kinds or {*kinds} & {*map(str, AttemptKind)}:
        return visibility.ATTEMPT
    return visibility.RUN if {*kinds} & {*map(str, RunType)} else visibility.EXECUTOR_EVENT


def _implied(asked: ListFilter, compare: str, value: object) -> Q:
    """A comparison of ``at`` with this value, in times of the tables."""
    current = Q(filter_code__isnull=True, **{f"came_at__{compare}": value})
    aside = Q(filter_code__isnull=False, **{f"filtered_at__{compare}": value})
    return {Lens.CURRENT: current, Lens.ONLY: aside}.get(asked.filtered, current | aside)


NOUN: Final = lens.Noun(
    name="records",
    model=Record,
    row=RecordRow,
    rows=_rows,
    columns={
        "flow_id": FLOW,
        "run_id": Subquery(_RUN.values("run_key")),
        "run": "run_id",
        "ti": "ti_id",
        "reviewed": reviewed.of(reviewed.OF_RECORD),
    },
    key="key",
    newest_by=_newest_by,
    implied=_implied,
    # No job belongs to a run or a flow.
    by_ids=(("noun", "record_id"), partial(record_ids.told_by, with_jobs=False)),
)


def page(asked: RecordFilter, scope: Scope) -> lens.Page[RecordRow]:
    """One page of records."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, key: str) -> RecordRow:
    """The record with this key. Raises ``NotFound``."""
    return lens.one(NOUN, scope, with_keys([key]), f"record {key}")


def check_visible(scope: Scope, keys: Sequence[str]) -> None:
    """Raises ``NotFound`` unless the reader may see all of these records and ghosts."""
    wanted = {*keys}
    numbers = {key: key.partition(":")[2] for key in wanted if key.startswith("ghost:")}
    texts = [key for key in wanted if key not in numbers and "\x00" not in key]
    seen = set(_rows(scope).filter(with_keys(texts)).values_list("key", flat=True))
    ids = [int(n) for n in numbers.values() if n.isdecimal() and len(n) < NUMBER_LENGTH]
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
    is_whole: bool  # false: there are more than were looked at for the sources


def summary(asked: RecordFilter, scope: Scope, *, since: datetime) -> Summary:
    """The filtered records that the filter keeps, by hour since then, and by where they come from.

    Sources are of the newest ``SOURCES_OF`` of the same time, unless the filter says from when on: the
    whole history may be long.
    """
    hours: dict[datetime, dict[str, int]] = {}
    found: dict[str, list[Source]] = {name: [] for name in _SOURCES}
    looked_at = 0
    lines = []
    for sql, parameters, using in _summing(asked, scope, since):
        lines += lens.fetched(sql, parameters, using, is_kept=lens.is_kept(asked))
    for hour, code, *values, number, which in lines:
        if which == _BY_HOUR:
            hours.setdefault(hour, {})[code] = number
            continue
        place = _GROUPING.index(which)
        looked_at += number if place == 0 else 0  # each record is of a noun
        if values[place] is not None and len(found[_SOURCES[place]]) < TOP:
            found[_SOURCES[place]].append(Source(name=str(values[place]), number=number))
    return Summary(
        hours=tuple((hour, dict(sorted(codes.items()))) for hour, codes in sorted(hours.items())),
        sources={name: tuple(several) for name, several in found.items()},
        is_whole=looked_at < SOURCES_OF,
    )


@lru_cache(maxsize=lens.READINGS_KEPT)
def _summing(
    asked: RecordFilter, scope: Scope, since: datetime
) -> tuple[tuple[str, tuple[Any, ...], str], ...]:
    """The statements of a summary, with parameters, and where; made once: hours, and the largest sources.

    Where both are of the same time, and of runs, one statement, which finds the records once.
    """
    every = _rows(scope)
    is_of_runs = bool(asked.narrowing() & asked.OF_RUNS)
    begins = asked.at_gte or since  # of what is looked at for sources
    is_one = is_of_runs and begins >= since
    columns = ("record_id" if is_of_runs else "hostname", *_SOURCED)
    hours, newest = [], []
    for part in asked.parts():
        rows = part.matching(every).filter(part.halves()[1])
        if asked.why:
            rows = rows.filter(filter_code__in=asked.why)
        recent = rows.filter(filtered_at__gte=since)
        hours.append(lens.compiled(recent.values_list(*(columns if is_one else _TIMED))))
        # Where nothing else is asked for, without a condition on its time: each table's index is then read
        # from its newest on.
        late = rows.filter(filtered_at__gte=begins) if asked.narrowing() else rows
        first = late.order_by(F("filtered_at").desc(nulls_last=True))[:SOURCES_OF]
        newest.append(lens.compiled(first.values_list(*columns)))
    by_time = [f"{columns.index('filtered_at') + 1} DESC NULLS LAST"]
    told, looked_at = lens.together(hours), lens.in_order(newest, by_time, SOURCES_OF)
    # Of one flow, nobody has to look which one it is.
    is_known = len(asked.flow_id) == 1
    largest = _LARGEST.format(
        host=_HOST if is_of_runs else "hostname",
        flow="coalesce(flow_id, %s::text)" if is_known else _FLOW_OF,
        most=SOURCES_OF,
    )
    more = (*(asked.flow_id if is_known else ()), begins)
    every_column = ", ".join(columns)
    if is_one:
        found = f"WITH found ({every_column}) AS MATERIALIZED ({told.sql})"
        both = f"{found} {_HOURS} UNION ALL ({largest})"
        return ((both, (*told.parameters, *more), every.db),)
    return (
        (f"WITH found ({', '.join(_TIMED)}) AS ({told.sql}) {_HOURS}", told.parameters, every.db),
        (
            f"WITH found ({every_column}) AS ({looked_at.sql}) {largest}",
            (*looked_at.parameters, *more),
            every.db,
        ),
    )


# With the number of the record, all that the indexes over the times of filtered records know: those of a
# flow's runs are found among many others without a look at any of them.
_TIMED: Final = ("filtered_at", "filter_code")
_SOURCED: Final = ("noun", "shard", "flow_id", "run_id", *_TIMED)
_BY_HOUR: Final = -1
_HOURS: Final = """
SELECT date_trunc('hour', filtered_at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' AS hour, filter_code, NULL AS source_noun, NULL AS hostname,
       NULL::int AS shard, NULL AS flow_id, count(*) AS n, -1 AS which
  FROM found GROUP BY 1, 2
"""
# Walks the primary key of each table, for those that were found.
_HOST: Final = """CASE noun
  WHEN 'attempt' THEN (SELECT a.hostname FROM attempt a WHERE a.id = r.record_id::uuid)
  WHEN 'executor_event' THEN
    (SELECT e.payload->>'hostname' FROM executor_event e WHERE e.id = r.record_id::bigint)
  WHEN 'job' THEN (SELECT j.hostname FROM job j WHERE j.id = r.record_id::uuid) END"""
_FLOW_OF: Final = "coalesce(flow_id, (SELECT u.flow_id FROM run u WHERE u.id = r.run_id))"
_LARGEST: Final = """
SELECT NULL::timestamptz, NULL, source_noun, hostname, shard, flow_id, count(*) AS n,
       grouping(source_noun, hostname, shard, flow_id) AS which
  FROM (SELECT noun, {host}, shard, {flow}
          FROM (SELECT * FROM found ORDER BY filtered_at DESC NULLS LAST LIMIT {most}) r
         WHERE filtered_at >= %s) s (source_noun, hostname, shard, flow_id)
 GROUP BY GROUPING SETS ((source_noun), (hostname), (shard), (flow_id)) ORDER BY n DESC
"""
_SOURCES: Final = ("noun", "hostname", "shard", "flow_id")
# grouping() has a bit for each column that is not part of the set, the first column highest.
_GROUPING: Final = (0b0111, 0b1011, 0b1101, 0b1110)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastChanges:
    """When leaders last changed; null: they never did."""

    fail_over: datetime | None  # from a leader that had not given its shard up
    planned: datetime | None  # from one that had: a stop, a drain, a fairer share


def last_changes(scope: Scope) -> LastChanges:
    """When a shard was last taken over, and when one was last handed over, by their take-overs."""
    if not scope.sees_shared:
        return LastChanges(fail_over=None, planned=None)
    with connection.cursor() as cursor:
        cursor.execute(_LAST, [[cause.value for cause in (*FAIL_OVERS, Cause.RELEASED)]])
        found: dict[str, datetime] = dict(cursor.fetchall())
    return LastChanges(
        fail_over=max((found[cause] for cause in FAIL_OVERS if cause in found), default=None),
        planned=found.get(Cause.RELEASED),
    )


# Walks take_over_of_cause.
_LAST: Final = """
SELECT c.cause, t.at FROM unnest(%s::text[]) c (cause), LATERAL (
  SELECT coalesce(acquired_at, started_at) AS at FROM take_over WHERE cause = c.cause
   ORDER BY id DESC LIMIT 1) t
"""


def judged_events() -> int:
    """How many executor events have their verdict: of so many the filtered ones are a part."""
    name = "scheduler_executor_events_processed_total"
    return sum(Counter.objects.filter(name=name).values_list("value", flat=True))
