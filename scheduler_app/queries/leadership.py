"""Who leads, since when, and whether it is settled: the whole of leadership in one reading."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db import connection

from scheduler_app.queries import leases, take_overs
from scheduler_app.queries.filters import LeaseFilter, TakeOverFilter
from scheduler_app.queries.list_filter import LIMIT_MAX
from scheduler_app.rules import leadership as rules

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from scheduler_app.queries.leases import LeaseRow
    from scheduler_app.queries.scope import Scope
    from scheduler_app.queries.take_overs import TakeOverRow

NEAR_MAX: Final = 20  # changes told of beside one execution


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One shard as the map shows it."""

    lease: LeaseRow
    active_runs: int
    live_attempts: int
    changes: int  # of leader, in the window of flapping
    is_flapping: bool
    is_retiring: bool  # beyond the number of shards; led until nothing is left in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """Every shard, and what a person must know first."""

    shards: tuple[Shard, ...]
    shard_count: int
    is_whole: bool  # every shard is in ``shards``
    last_fail_over: TakeOverRow | None
    missing: dict[int, int]  # shards without a lease in which something waits -> active runs

    @property
    def vacant(self) -> tuple[int, ...]:
        """Shards for which nobody decides now."""
        return tuple(one.lease.shard for one in self.shards if one.lease.state != "held")

    @property
    def flapping(self) -> tuple[int, ...]:
        """Shards whose leader changed so often of late that nothing settles."""
        return tuple(one.lease.shard for one in self.shards if one.is_flapping)

    @property
    def leaders(self) -> dict[str, int]:
        """Shards that each leader holds now, by ``host:pid``."""
        held: dict[str, int] = {}
        for one in self.shards:
            if one.lease.state == "held":
                place = f"{one.lease.holder_hostname}:{one.lease.holder_pid}"
                held[place] = held.get(place, 0) + 1
        return held


def leadership(scope: Scope, now: datetime) -> Leadership:
    """The leases of all shards (the first 500), with their load and their unrest."""
    found = leases.page(LeaseFilter(limit=LIMIT_MAX), scope)
    count, loads = _loads()
    changed = _changed_at(now)
    fail_overs = take_overs.page(TakeOverFilter(cause=rules.FAIL_OVERS, limit=1), scope).rows
    known = {row.shard for row in found.rows}
    return Leadership(
        shards=tuple(
            Shard(
                lease=row,
                active_runs=loads.get(row.shard, (0, 0))[0],
                live_attempts=loads.get(row.shard, (0, 0))[1],
                changes=len(changed.get(row.shard, ())),
                is_flapping=rules.is_flapping(changed.get(row.shard, ()), now),
                is_retiring=row.shard >= count,
            )
            for row in found.rows
        ),
        shard_count=count,
        is_whole=not found.next_cursor,
        last_fail_over=fail_overs[0] if fail_overs else None,
        missing={
            shard: runs
            for shard, (runs, live) in sorted(loads.items())
            if shard not in known and (runs or live) and not found.next_cursor
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NearChange:
    """A change of a lease within a minute of an execution."""

    event_id: int
    shard: int
    kind: str
    token: int
    at: datetime
    why: str  # the event in a sentence
    when: str  # how it lies to the execution, in words
    attempt_id: UUID | None  # null: the execution has no attempt that is known
    take_over: int | None  # the take-over that it led to, if it did


def near_attempt(scope: Scope, attempt_id: UUID) -> tuple[NearChange, ...]:
    """Changes of its shard's lease within 60 s of this attempt's life, oldest first."""
    return _near(scope, _ATTEMPTS.format(which="id = %(id)s"), {"id": attempt_id})


def near_task_instance(scope: Scope, ti: int) -> tuple[NearChange, ...]:
    """The same for every attempt of a task instance; each change once, at the attempt it is nearest."""
    return _near(scope, _ATTEMPTS.format(which="ti_id = %(id)s"), {"id": ti})


def near_run(scope: Scope, run: int) -> tuple[NearChange, ...]:
    """The same for every attempt of a run."""
    return _near(scope, _ATTEMPTS.format(which="run_id = %(id)s"), {"id": run})


def near_span(
    scope: Scope, *, shard: int | None, began_at: datetime, ended_at: datetime | None
) -> tuple[NearChange, ...]:
    """Changes of the shard's lease within 60 s of this span; without a shard, fail-overs of any."""
    values = {"shard": shard, "began_at": began_at, "ended_at": ended_at}
    return _near(scope, _SPAN if shard is not None else _SPAN_OF_ANY_SHARD, values)


def _near(scope: Scope, of_what: str, values: dict[str, Any]) -> tuple[NearChange, ...]:
    if not scope.sees_shared:
        return ()
    values = {**values, "near_s": rules.NEAR.total_seconds(), "limit": NEAR_MAX}
    with connection.cursor() as cursor:
        cursor.execute(_NEAR.format(of_what=of_what), values)
        names = [column.name for column in cursor.description or ()]
        rows = [dict(zip(names, line, strict=True)) for line in cursor.fetchall()]
    return tuple(
        NearChange(
            event_id=row["event_id"],
            shard=row["shard"],
            kind=row["kind"],
            token=row["token"],
            at=row["at"],
            # Django's cursors give JSON as text.
            why=rules.explain(row["kind"], row["token"], json.loads(row["detail"])),
            when=rules.how_near(row["at"], row["began_at"], row["ended_at"]),
            attempt_id=row["attempt_id"],
            take_over=row["take_over"],
        )
        for row in rows
    )


def _loads() -> tuple[int, dict[int, tuple[int, int]]]:
    """The number of shards; by shard: active runs and live attempts. Walks indexes over what is active."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT i.shard_count, u.shard, u.runs, u.live FROM installation i LEFT JOIN ("
            " SELECT shard, sum(runs)::int AS runs, sum(live)::int AS live FROM ("
            "  SELECT shard, count(*) AS runs, 0 AS live FROM run WHERE is_active GROUP BY shard"
            "  UNION ALL SELECT shard, 0, count(*) FROM attempt"
            "   WHERE is_live AND shard IS NOT NULL GROUP BY shard) a GROUP BY shard) u ON true"
        )
        rows = cursor.fetchall()
    loads = {shard: (runs, live) for _, shard, runs, live in rows if shard is not None}
    return (rows[0][0] if rows else 0), loads


def _changed_at(now: datetime) -> dict[int, list[datetime]]:
    """By shard: when its leader changed, in the window of flapping."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT l.shard, e.at FROM lease l JOIN LATERAL (SELECT at FROM lease_event"
            "  WHERE shard = l.shard AND kind = 'acquired' AND at > %s AND token > 1"
            "  ORDER BY at DESC LIMIT 50) e ON true",
            [now - rules.FLAPPING_WINDOW],
        )
        found: dict[int, list[datetime]] = {}
        for shard, at in cursor.fetchall():
            found.setdefault(shard, []).append(at)
        return found


_ATTEMPTS: Final = """SELECT id, shard, fence, coalesce(issued_at, started_at) AS began_at, ended_at
    FROM attempt WHERE {which} AND shard IS NOT NULL"""
_SPAN: Final = """SELECT NULL::uuid AS id, %(shard)s::int AS shard, 0::bigint AS fence,
         %(began_at)s::timestamptz AS began_at, %(ended_at)s::timestamptz AS ended_at"""
_SPAN_OF_ANY_SHARD: Final = """SELECT NULL::uuid AS id, t.shard, 0::bigint AS fence,
         %(began_at)s::timestamptz AS began_at, %(ended_at)s::timestamptz AS ended_at
    FROM take_over t
   WHERE t.cause IN ('expired', 'forced')
     AND t.acquired_at >= %(began_at)s - make_interval(secs => %(near_s)s::float8)
     AND t.acquired_at <= coalesce(%(ended_at)s::timestamptz, clock_timestamp())
                          + make_interval(secs => %(near_s)s::float8)"""

# The first holder of a shard is no change of leader. An attempt lives from its issue to its end.
_NEAR: Final = """
SELECT * FROM (
  SELECT DISTINCT ON (e.id) e.id AS event_id, e.shard, e.kind, e.token, e.at, e.detail,
         p.id AS attempt_id, p.began_at, p.ended_at,
         (SELECT t.id FROM take_over t
           WHERE t.shard = e.shard
             AND t.new_token = CASE WHEN e.kind = 'acquired' THEN e.token ELSE e.token + 1 END
           ORDER BY t.id LIMIT 1) AS take_over
    FROM ({of_what}) p JOIN lease_event e
      ON e.shard = p.shard
     AND e.at >= p.began_at - make_interval(secs => %(near_s)s::float8)
     AND e.at <= coalesce(p.ended_at, clock_timestamp()) + make_interval(secs => %(near_s)s::float8)
   WHERE NOT (e.kind = 'acquired' AND e.detail->>'cause' = 'first')
   ORDER BY e.id, greatest(p.began_at - e.at, e.at - coalesce(p.ended_at, clock_timestamp())),
            p.fence) near
 ORDER BY at, token, event_id LIMIT %(limit)s
"""
