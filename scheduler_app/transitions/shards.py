"""The number of shards, and which shard a flow belongs to.

A run keeps the shard it was created in, and so do its task instances, attempts and triggers; a flow
moves only while it has no active run, so that never two leaders decide for runs of one flow. A shard
beyond the number retires: it is led like any other until nothing is left in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import class_row, tuple_row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import psycopg


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowShard:
    """Where a flow is, and whether it may move now."""

    flow_id: str
    shard: int
    active_runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """A scheduler that takes part, or that holds a lease which has not run out."""

    job_id: str
    place: str  # host:pid


def shard_count(connection: psycopg.Connection[Any]) -> int:
    """Into how many shards new flows are hashed."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute("SELECT shard_count FROM installation LIMIT 1")
        row = cursor.fetchone()
    assert row is not None, "the first migration makes it"
    return int(row[0])


def leaders(connection: psycopg.Connection[Any], *, dead_after_s: float) -> list[Leader]:
    """Whoever may be deciding now."""
    with connection.cursor(row_factory=class_row(Leader)) as cursor:
        cursor.execute(
            "SELECT j.id::text AS job_id, j.hostname || ':' || j.pid AS place FROM job j"
            " WHERE j.kind = 'scheduler' AND (j.ended_at IS NULL AND j.heartbeat_at"
            "   > clock_timestamp() - make_interval(secs => %s::float8)"
            "  OR EXISTS (SELECT 1 FROM lease l WHERE l.holder = j.id"
            "   AND l.expires_at > clock_timestamp()))"
            " UNION SELECT l.holder::text, 'unknown' FROM lease l"
            "  WHERE l.expires_at > clock_timestamp()"
            "   AND NOT EXISTS (SELECT 1 FROM job j WHERE j.id = l.holder)"
            "   AND l.holder IS NOT NULL"
            " ORDER BY 2",
            [dead_after_s],
        )
        return cursor.fetchall()


def lock_shards(connection: psycopg.Connection[Any]) -> list[int]:
    """The shards that have a lease, their rows locked: nobody acquires or proves one meanwhile."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute("SELECT shard FROM lease ORDER BY shard FOR UPDATE")
        return [row[0] for row in cursor.fetchall()]


def lock_flows(connection: psycopg.Connection[Any]) -> list[FlowShard]:
    """Every flow, locked against new runs, with its active runs."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM flow ORDER BY flow_id FOR UPDATE")
    with connection.cursor(row_factory=class_row(FlowShard)) as cursor:
        cursor.execute(
            "SELECT f.flow_id, f.shard, (SELECT count(*) FROM run r"
            "  WHERE r.flow_id = f.flow_id AND r.is_active)::int AS active_runs"
            " FROM flow f ORDER BY f.flow_id"
        )
        return cursor.fetchall()


def used_shards(connection: psycopg.Connection[Any]) -> dict[int, int]:
    """Shards in which something waits to be decided: active runs of each, 0 for other work."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT shard, sum(runs)::int FROM ("
            " SELECT shard, count(*) AS runs FROM run WHERE is_active GROUP BY shard"
            " UNION ALL SELECT DISTINCT shard, 0 FROM attempt WHERE is_live AND shard IS NOT NULL"
            " UNION ALL SELECT DISTINCT shard, 0 FROM trigger WHERE is_waiting"
            " UNION ALL SELECT DISTINCT shard, 0 FROM executor_event"
            "  WHERE verdict = 'pending' AND shard IS NOT NULL) u GROUP BY shard"
        )
        return dict(cursor.fetchall())


def fence_off(connection: psycopg.Connection[Any], *, why: str) -> int:
    """No lease has a holder: a process that had one and sleeps can prove nothing when it wakes."""
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH gone AS (UPDATE lease l SET holder = NULL, expires_at = clock_timestamp()"
            "  FROM lease o WHERE o.shard = l.shard AND l.holder IS NOT NULL"
            "  RETURNING l.shard, o.holder, l.token)"
            " INSERT INTO lease_event (shard, kind, holder, token, at, detail)"
            " SELECT shard, 'released', holder, token, clock_timestamp(),"
            "  jsonb_build_object('why', %s::text) FROM gone",
            [why],
        )
        return cursor.rowcount


_ADD: Final = """
INSERT INTO lease (shard, token)
SELECT s.shard, greatest(
         (SELECT coalesce(max(e.token), 0) FROM lease_event e WHERE e.shard = s.shard),
         (SELECT coalesce(max(t.new_token), 0) FROM take_over t WHERE t.shard = s.shard),
         (SELECT coalesce(max(p.lease_token), 0) FROM attempt p WHERE p.shard = s.shard AND p.is_live))
  FROM unnest(%s::int[]) AS s(shard)
ON CONFLICT (shard) DO NOTHING
"""


def set_shards(
    connection: psycopg.Connection[Any],
    *,
    count: int,
    add: Sequence[int],
    remove: Sequence[int],
    moves: Mapping[str, int],
) -> None:
    """There are ``count`` shards, the flows of ``moves`` are where it says.

    A lease that is added again goes on with the tokens that the shard had.
    """
    with connection.cursor() as cursor:
        cursor.execute("UPDATE installation SET shard_count = %s", [count])
        cursor.execute(_ADD, [list(add)])
        cursor.execute("DELETE FROM lease WHERE shard = ANY(%s)", [list(remove)])
        cursor.execute(
            "UPDATE flow f SET shard = m.shard FROM unnest(%s::text[], %s::int[])"
            " AS m(flow_id, shard) WHERE f.flow_id = m.flow_id",
            [list(moves), list(moves.values())],
        )
