"""Terms: who led which shard from when to when, and what stands out about that."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db import connection

from scheduler_app.rules import leadership

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from scheduler_app.queries.scope import Scope

TERMS_MAX: Final = 2000  # of one reading; the newest


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One holding of a lease, as its events tell it."""

    shard: int
    token: int
    holder: UUID | None
    hostname: str | None
    pid: int | None
    cause: str
    began_at: datetime
    ended_at: datetime | None  # null: it goes on
    end: str  # held, expired, released, forced, demoted, followed
    gap_s: float | None  # for how long nobody led before it; null: it is the first that is known
    fault: str = ""  # what should not be: empty as a rule

    @property
    def is_fail_over(self) -> bool:
        """Whether the shard was taken from a leader that had not given it up."""
        return self.cause in leadership.FAIL_OVERS

    @property
    def place(self) -> str:
        """The process that led: ``host:pid``."""
        return f"{self.hostname or 'unknown'}:{self.pid or '?'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms that touch a time, by shard and then by beginning."""

    terms: tuple[Term, ...]
    is_whole: bool  # there are no more

    @property
    def faults(self) -> tuple[Term, ...]:
        """Terms that should not be as they are: a token that did not grow, two leaders at once."""
        return tuple(one for one in self.terms if one.fault)

    @property
    def fail_overs(self) -> int:
        """How many of them began by a fail-over."""
        return sum(1 for one in self.terms if one.is_fail_over)

    @property
    def longest_gap(self) -> Term | None:
        """The one before which nobody led for longest."""
        return max((t for t in self.terms if t.gap_s), key=lambda t: t.gap_s or 0.0, default=None)


def terms(scope: Scope, *, since: datetime, until: datetime, shards: Sequence[int] = ()) -> Terms:
    """The terms of these shards (of all without any) that began before ``until`` and had not ended at ``since``.

    The last term of each shard before ``since`` is among them: it may have gone on.
    """
    if not scope.sees_shared:
        return Terms(terms=(), is_whole=True)
    values = {
        "since": since,
        "until": until,
        "shards": list(shards) or None,
        "limit": TERMS_MAX + 1,
    }
    with connection.cursor() as cursor:
        cursor.execute(_TERMS, values)
        names = [column.name for column in cursor.description or ()]
        rows = [dict(zip(names, line, strict=True)) for line in cursor.fetchall()]
    is_whole = len(rows) <= TERMS_MAX
    rows = sorted(rows[:TERMS_MAX], key=lambda row: (row["shard"], row["event_id"]))
    found: list[Term] = []
    for place, row in enumerate(rows):
        following = rows[place + 1] if place + 1 < len(rows) else None
        if following is not None and following["shard"] != row["shard"]:
            following = None
        before = found[-1] if found and found[-1].shard == row["shard"] else None
        found.append(_term(row, following, before))
    kept = [one for one in found if one.ended_at is None or one.ended_at >= since]
    return Terms(terms=tuple(kept), is_whole=is_whole)


def _term(row: dict[str, Any], following: dict[str, Any] | None, before: Term | None) -> Term:
    # Django's cursors give JSON as text.
    said = json.loads(row["detail"])
    told = json.loads(row["end_detail"]) if row["end_detail"] else {}
    end, ended_at = row["end_kind"], row["ended_at"]
    if end == leadership.LeaseEventKind.RELEASED and told.get("forced_by"):
        end = "forced"
    if end is None and following is not None:
        end, ended_at = "followed", following["at"]
    elif end is None:
        end, ended_at = ("expired", row["ran_out_at"]) if row["ran_out_at"] else ("held", None)
    gap_s = None
    if before is not None and before.ended_at is not None:
        gap_s = max(0.0, (row["at"] - before.ended_at).total_seconds())
    elif isinstance(said.get("gap_s"), int | float):
        gap_s = float(said["gap_s"])
    return Term(
        shard=row["shard"],
        token=row["token"],
        holder=row["holder"],
        hostname=row["hostname"],
        pid=row["pid"],
        cause=str(said.get("cause", "")),
        began_at=row["at"],
        ended_at=ended_at,
        end=end,
        gap_s=gap_s,
        fault=_fault(row, before),
    )


def _fault(row: dict[str, Any], before: Term | None) -> str:
    if before is None:
        return ""
    if row["token"] <= before.token:
        return f"Token {row['token']} came after token {before.token}: tokens only grow."
    if before.ended_at is not None and before.ended_at > row["at"]:
        over_s = (before.ended_at - row["at"]).total_seconds()
        return (
            f"It began {over_s:.1f} s before token {before.token} had ended: a clock was set back,"
            " or two led at once."
        )
    return ""


# Walks lease_event_of_shard, shard by shard. A term ends with the first word that says so.
_TERMS: Final = """
WITH began AS (
  SELECT e.* FROM lease l JOIN LATERAL (
    (SELECT id, shard, holder, token, at, detail FROM lease_event
      WHERE shard = l.shard AND kind = 'acquired' AND at >= %(since)s AND at <= %(until)s)
    UNION ALL
    (SELECT id, shard, holder, token, at, detail FROM lease_event
      WHERE shard = l.shard AND kind = 'acquired' AND at < %(since)s ORDER BY at DESC LIMIT 1)) e ON true
   WHERE %(shards)s::int[] IS NULL OR l.shard = ANY(%(shards)s::int[])
   ORDER BY e.at DESC LIMIT %(limit)s)
SELECT b.id AS event_id, b.shard, b.token, b.holder, b.at, b.detail, j.hostname, j.pid,
       e.kind AS end_kind, e.ended_at, e.detail AS end_detail,
       CASE WHEN l.token = b.token AND l.expires_at < clock_timestamp() THEN l.expires_at END
         AS ran_out_at
  FROM began b
  JOIN lease l ON l.shard = b.shard
  LEFT JOIN job j ON j.id = b.holder
  LEFT JOIN LATERAL (
    SELECT kind, detail, CASE WHEN kind = 'expired'
             THEN coalesce((detail->>'expires_at')::timestamptz, at) ELSE at END AS ended_at
      FROM lease_event
     WHERE shard = b.shard AND at >= b.at AND id > b.id AND token = b.token
       AND kind IN ('released', 'expired', 'demoted')
     ORDER BY at, id LIMIT 1) e ON true
"""
