"""Runs and tasks that have ended, looked up for all who wait for them together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg.rows import dict_row

from scheduler_app.rules.states import RUN_TERMINAL, TASK_TERMINAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from scheduler_app.authoring.triggers import RunTrigger

# Per trigger: the run by its id, or the newest of its date; then the run or its task, once ended.
_ENDED = """
SELECT u.number, r.flow_id, r.run_key AS run_id, u.task_id,
       CASE WHEN u.task_id IS NULL THEN r.state ELSE i.state END AS state,
       CASE WHEN u.task_id IS NULL THEN r.ended_at ELSE i.ended_at END AS ended_at,
       CASE WHEN u.task_id IS NULL THEN r.state_reason ELSE '' END AS reason, r.id AS run
  FROM unnest(%(number)s::int[], %(flow_id)s::text[], %(run_id)s::text[],
              %(logical_date)s::timestamptz[], %(task_id)s::text[], %(map_index)s::int[])
         AS u(number, flow_id, run_key, logical_date, task_id, map_index)
  JOIN LATERAL (
    (SELECT r.id, r.flow_id, r.run_key, r.state, r.ended_at, r.retry_at, r.state_reason FROM run r
      WHERE r.flow_id = u.flow_id AND r.run_key = u.run_key AND r.filter_code IS NULL)
    UNION ALL
    (SELECT r.id, r.flow_id, r.run_key, r.state, r.ended_at, r.retry_at, r.state_reason FROM run r
      WHERE r.flow_id = u.flow_id AND r.logical_date = u.logical_date AND r.filter_code IS NULL
      ORDER BY r.id DESC LIMIT 1)) r ON true
  LEFT JOIN task_instance i ON u.task_id IS NOT NULL AND i.run_id = r.id
        AND i.task_id = u.task_id AND i.map_index = u.map_index
 -- A failed run that its policy begins again has not come to its end.
 WHERE CASE WHEN u.task_id IS NULL THEN r.state = ANY(%(run_ended)s) AND r.retry_at IS NULL
            ELSE i.state = ANY(%(task_ended)s) END
"""


def ended_runs(
    connection: psycopg.Connection[Any], triggers: Sequence[RunTrigger]
) -> dict[int, dict[str, Any]]:
    """What has ended, by its place in ``triggers``. Walks ``run_key_unique`` or ``run_of_date``."""
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            _ENDED,
            {
                "number": list(range(len(triggers))),
                "flow_id": [one.flow_id for one in triggers],
                "run_id": [one.run_id for one in triggers],
                "logical_date": [one.logical_date for one in triggers],
                "task_id": [one.task_id for one in triggers],
                "map_index": [one.map_index for one in triggers],
                "run_ended": sorted(RUN_TERMINAL),
                "task_ended": sorted(TASK_TERMINAL),
            },
        )
        return {row.pop("number"): row for row in cursor.fetchall()}
