"""Take-overs: the record of what a new holder found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uuid import UUID

    import psycopg

_RECORD = """
WITH live AS (
  SELECT p.id,
         CASE WHEN p.state = 'issued' AND p.published_at IS NULL THEN 'publish'
              WHEN p.state = 'issued' THEN 'wait'
              WHEN greatest(p.started_at, p.heartbeat_at, pg_postmaster_start_time())
                   > clock_timestamp() - make_interval(secs => %(dead_after_s)s::float8) THEN 'adopt'
              ELSE 'silent' END AS decision,
         p.lease_token
    FROM attempt p WHERE p.shard = %(shard)s AND p.is_live AND p.kind = 'task'),
t AS (
  INSERT INTO take_over (shard, holder, old_token, new_token, started_at, ended_at, counts)
  SELECT %(shard)s, %(holder)s, nullif(%(new_token)s - 1, 0), %(new_token)s, clock_timestamp(),
         clock_timestamp(),
         (SELECT coalesce(jsonb_object_agg(decision, n), '{}')
            FROM (SELECT decision, count(*) AS n FROM live GROUP BY 1) c)
  RETURNING id)
INSERT INTO take_over_item (take_over_id, attempt_id, decision, reason)
SELECT t.id, live.id, live.decision, format('issued under token %%s', live.lease_token) FROM t, live
"""


def record_take_over(
    connection: psycopg.Connection[Any],
    *,
    shard: int,
    holder: UUID,
    new_token: int,
    dead_after_s: float,
) -> None:
    """A take-over row says what was live in the shard, with an item per attempt."""
    with connection.cursor() as cursor:
        cursor.execute(
            _RECORD,
            {
                "shard": shard,
                "holder": holder,
                "new_token": new_token,
                "dead_after_s": dead_after_s,
            },
        )
