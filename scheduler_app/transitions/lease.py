"""Leases: acquire, renew, release and prove, each by compare-and-set on holder and token.

Safety rests on the token alone: every deciding transaction starts with ``prove``. ``expires_at``
only says who may try. A term is (shard, token); its times are the database's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb

from scheduler_app.rules.errors import Fenced
from scheduler_app.transitions.counters import count

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    import psycopg

# FOR UPDATE is the one row lock that KEY SHARE (the proof) conflicts with.
# A lease that this very process holds and does not know of (it stopped trusting it, or the answer
# to its acquisition was lost) may be taken back before it runs out: a new token all the same.
_ACQUIRE = """
WITH free AS (
  SELECT shard, holder AS old_holder, token AS old_token, renewed_at AS old_renewed_at,
         expires_at AS old_expires_at,
         CASE WHEN holder = %(holder)s THEN 'taken_back' WHEN holder IS NOT NULL THEN 'expired'
              WHEN token = 0 THEN 'first' WHEN forced_by <> '' THEN 'forced'
              ELSE 'released' END AS cause
    FROM lease LEFT JOIN unnest(%(silent_shard)s::int[], %(silent_seen)s::timestamptz[])
      AS s(silent, seen) ON s.silent = shard
   WHERE holder IS NULL OR expires_at < clock_timestamp() OR renewed_at = s.seen
      OR %(held)s::int[] IS NOT NULL AND holder = %(holder)s AND shard <> ALL(%(held)s::int[])
   ORDER BY expires_at NULLS FIRST, shard LIMIT %(want)s FOR UPDATE OF lease SKIP LOCKED),
taken AS (
  UPDATE lease l
     SET holder = %(holder)s, token = l.token + 1, forced_by = '', acquired_at = clock_timestamp(),
         renewed_at = clock_timestamp(),
         expires_at = clock_timestamp() + make_interval(secs => %(ttl_s)s::float8)
    FROM free WHERE l.shard = free.shard
  RETURNING l.shard, l.token, l.acquired_at, free.old_holder, free.old_token, free.old_renewed_at,
            free.old_expires_at, free.cause),
expired AS (
  INSERT INTO lease_event (shard, kind, holder, token, at, detail)
  SELECT shard, 'expired', old_holder, old_token, acquired_at,
         jsonb_build_object('expires_at', old_expires_at, 'renewed_at', old_renewed_at,
                            'taken_by', %(holder)s::text)
    FROM taken WHERE cause = 'expired'),
acquired AS (
  INSERT INTO lease_event (shard, kind, holder, token, at, detail)
  SELECT shard, 'acquired', %(holder)s, token, acquired_at,
         jsonb_build_object('cause', cause, 'from', old_holder::text, 'old_token', old_token,
                            'old_renewed_at', old_renewed_at, 'old_expires_at', old_expires_at,
                            'gap_s', CASE WHEN cause IN ('expired', 'released', 'forced') THEN
                               greatest(0, extract(epoch FROM acquired_at - old_expires_at)) END,
                            'ttl_s', %(ttl_s)s::float8)
    FROM taken)
SELECT shard, token, old_holder, old_token FROM taken ORDER BY shard
"""

# All terms of a holder at once. A renewal after the expiry is allowed while nobody took the shard.
# `seen` is the renewal that this process made last, null when it does not know: another value in the
# row is the hand of a copy of this process.
_RENEW = """
WITH mine AS (
  SELECT l.shard, l.token, l.expires_at FROM lease l
    JOIN unnest(%(shard)s::int[], %(token)s::bigint[], %(seen)s::timestamptz[])
         AS m(shard, token, seen)
      ON m.shard = l.shard AND m.token = l.token
   WHERE l.holder = %(holder)s AND (m.seen IS NULL OR l.renewed_at = m.seen)
   ORDER BY l.shard FOR NO KEY UPDATE OF l),
renewed AS (
  UPDATE lease l
     SET renewed_at = clock_timestamp(),
         expires_at = clock_timestamp() + make_interval(secs => %(ttl_s)s::float8)
    FROM mine WHERE l.shard = mine.shard
  RETURNING l.shard, l.token, l.renewed_at, mine.expires_at AS old_expires_at),
late AS (
  INSERT INTO lease_event (shard, kind, holder, token, at, detail)
  SELECT shard, 'renewed_late', %(holder)s, token, clock_timestamp(),
         jsonb_build_object('expired_at', old_expires_at,
                            'late_s', extract(epoch FROM renewed_at - old_expires_at))
    FROM renewed WHERE old_expires_at < renewed_at)
SELECT shard, renewed_at FROM renewed
"""

_RELEASE = """
WITH mine AS (
  SELECT l.shard, l.token FROM lease l
    JOIN unnest(%(shard)s::int[], %(token)s::bigint[]) AS m(shard, token)
      ON m.shard = l.shard AND m.token = l.token
   WHERE l.holder = %(holder)s ORDER BY l.shard FOR UPDATE OF l),
released AS (
  UPDATE lease l SET holder = NULL, expires_at = clock_timestamp() FROM mine
   WHERE l.shard = mine.shard RETURNING l.shard, l.token)
INSERT INTO lease_event (shard, kind, holder, token, at, detail)
SELECT shard, 'released', %(holder)s, token, clock_timestamp(),
       jsonb_build_object('why', %(why)s::text) FROM released
RETURNING shard
"""

# The holder may be alive: FOR UPDATE waits for its deciding transactions, and the next one is refused.
_FORCE = """
WITH it AS (
  SELECT shard, token, holder, expires_at FROM lease
   WHERE shard = %(shard)s AND token = %(token)s AND holder IS NOT NULL FOR UPDATE),
freed AS (
  UPDATE lease l SET holder = NULL, expires_at = clock_timestamp(), forced_by = %(actor)s
    FROM it WHERE l.shard = it.shard RETURNING l.shard)
INSERT INTO lease_event (shard, kind, holder, token, at, detail)
SELECT it.shard, 'released', it.holder, it.token, clock_timestamp(),
       jsonb_build_object('why', %(why)s::text, 'forced_by', %(actor)s::text,
                          'would_have_run_out_at', it.expires_at)
  FROM it JOIN freed USING (shard)
RETURNING shard
"""

_PROVE = """
SELECT l.shard FROM lease l
  JOIN unnest(%(shard)s::int[], %(token)s::bigint[]) AS m(shard, token)
    ON m.shard = l.shard AND m.token = l.token
 WHERE l.holder = %(holder)s ORDER BY l.shard FOR KEY SHARE OF l
"""


def acquire(
    connection: psycopg.Connection[Any],
    *,
    holder: UUID,
    want: int,
    ttl_s: float,
    held: Collection[int] | None = None,
    silent: Mapping[int, datetime] | None = None,
) -> dict[int, int]:
    """At most ``want`` free or expired shards are held by ``holder``: ``{shard: new token}``.

    ``held`` are the shards that the holder knows that it holds: others that have its name are taken
    back; without it none is. ``silent`` are shards whose renewal of that time has stood unchanged for
    longer than a ttl, whatever the database's clock says of it. Shards that another transaction is proving or taking are skipped. Runs in autocommit.
    """
    known = None if held is None else sorted(held)
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            _ACQUIRE,
            {
                "want": want,
                "holder": holder,
                "ttl_s": ttl_s,
                "held": known,
                "silent_shard": list(silent or {}),
                "silent_seen": list((silent or {}).values()),
            },
        )
        return {row[0]: row[1] for row in cursor.fetchall()}


def renew(
    connection: psycopg.Connection[Any],
    *,
    holder: UUID,
    terms: Mapping[int, int],
    ttl_s: float,
    seen: Mapping[int, datetime] | None = None,
) -> dict[int, datetime]:
    """The shards of ``terms`` (shard to token) that run for another ttl, each with its renewal.

    ``seen`` has the renewals that the holder made last, where it knows them: a shard that somebody
    renewed since under the same name is left alone.
    """
    arrays = _arrays(terms)
    known = [(seen or {}).get(shard) for shard in arrays["shard"]]
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(_RENEW, {**arrays, "seen": known, "holder": holder, "ttl_s": ttl_s})
        return dict(cursor.fetchall())


def still_named(
    connection: psycopg.Connection[Any], *, holder: UUID, terms: Mapping[int, int]
) -> frozenset[int]:
    """The shards of ``terms`` whose rows still name this holder and token."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT l.shard FROM lease l JOIN unnest(%(shard)s::int[], %(token)s::bigint[])"
            " AS m(shard, token) ON m.shard = l.shard AND m.token = l.token"
            " WHERE l.holder = %(holder)s",
            {**_arrays(terms), "holder": holder},
        )
        return frozenset(row[0] for row in cursor.fetchall())


def release(
    connection: psycopg.Connection[Any], *, holder: UUID, terms: Mapping[int, int], why: str
) -> frozenset[int]:
    """The shards of ``terms`` that were held are free; the next holder's token is one higher."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(_RELEASE, {**_arrays(terms), "holder": holder, "why": why})
        return frozenset(row[0] for row in cursor.fetchall())


def force_release(
    connection: psycopg.Connection[Any], *, shard: int, token: int, actor: str, why: str
) -> bool:
    """Nobody holds the shard, whatever its holder thinks; whether it was held with this token.

    Waits for a transaction that has proved the lease. What the holder decides after it is refused.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(_FORCE, {"shard": shard, "token": token, "actor": actor, "why": why})
        return cursor.fetchone() is not None


def prove(connection: psycopg.Connection[Any], *, holder: UUID, terms: Mapping[int, int]) -> None:
    """No take-over of ``terms`` can commit before this transaction ends. First in each of them.

    Locks the lease rows FOR KEY SHARE: renewals pass, take-overs wait or skip.
    Raises ``Fenced`` with the shards that are no longer held; the caller must roll back.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(_PROVE, {**_arrays(terms), "holder": holder})
        held = frozenset(row[0] for row in cursor.fetchall())
    missing = sorted(set(terms) - held)
    if missing:
        message = f"{len(missing)} of {len(terms)} leases are no longer held"
        raise Fenced(message, shards=missing)


def record_fenced_writes(
    connection: psycopg.Connection[Any],
    *,
    holder: UUID,
    terms: Mapping[int, int],
    shards: Sequence[int],
    step: str,
) -> None:
    """A lease event per shard says which token was presented and which one is current."""
    with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "INSERT INTO lease_event (shard, kind, holder, token, at, detail)"
            " SELECT m.shard, 'fenced_write', %(holder)s, m.token, clock_timestamp(),"
            "  jsonb_build_object('step', %(step)s::text, 'token_presented', m.token,"
            "   'token_current', l.token, 'holder_current', l.holder::text,"
            "   'sentence', CASE WHEN l.shard IS NULL THEN format('token %%s, no lease', m.token)"
            "    WHEN l.token = m.token THEN format('token %%s of another holder', m.token)"
            "    ELSE format('token %%s < %%s', m.token, l.token) END)"
            # A row that is gone refuses too: without a lease nobody decides.
            " FROM unnest(%(shard)s::int[], %(token)s::bigint[]) AS m(shard, token)"
            "  LEFT JOIN lease l ON l.shard = m.shard",
            {**_arrays({s: terms[s] for s in shards}), "holder": holder, "step": step},
        )
        cursor.execute(
            "UPDATE counter SET value = value + %s WHERE name = 'scheduler_fenced_writes_total'",
            [len(shards)],
        )


def record_demotion(
    connection: psycopg.Connection[Any], *, holder: UUID, terms: Mapping[int, int], why: str
) -> None:
    """A lease event per shard says that the holder stopped deciding of its own accord."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO lease_event (shard, kind, holder, token, at, detail)"
            " SELECT m.shard, 'demoted', %(holder)s, m.token, clock_timestamp(), %(detail)s"
            " FROM unnest(%(shard)s::int[], %(token)s::bigint[]) AS m(shard, token)",
            {**_arrays(terms), "holder": holder, "detail": Jsonb({"why": why})},
        )
    count(connection, "scheduler_demotions_total", len(terms))


def _arrays(terms: Mapping[int, int]) -> dict[str, list[int]]:
    shards = sorted(terms)
    return {"shard": shards, "token": [terms[shard] for shard in shards]}
