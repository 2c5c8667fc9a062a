"""Tasks that wait for what became of them in the run before, by its logical date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import dict_row

from scheduler_app.rules import past
from scheduler_app.rules.states import TaskState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import psycopg

    from scheduler_app.rules.capacity import Wait
    from scheduler_app.scheduler.dispatch_attempts import Ready

# Of each task instance the run before: the newest current one of an earlier logical date. Walks the
# primary key, run_of_date backwards and task_instance_unique.
_BEFORE: Final = """
SELECT i.id, b.run_key, t.state AS own,
       (SELECT jsonb_object_agg(d.task_id, d.state) FROM task_instance d
         WHERE d.run_id = b.id AND d.task_id = ANY(u.after::text[]) AND d.filter_code IS NULL
           AND d.state NOT IN ('success', 'skipped')) AS after
  FROM unnest(%(ti)s::bigint[], %(after)s::text[]) AS u(ti, after)
  JOIN task_instance i ON i.id = u.ti
  JOIN run r ON r.id = i.run_id
 CROSS JOIN LATERAL (
       SELECT p.id, p.run_key FROM run p
        WHERE p.flow_id = r.flow_id AND p.logical_date < r.logical_date AND p.filter_code IS NULL
        ORDER BY p.logical_date DESC LIMIT 1) b
  LEFT JOIN task_instance t ON t.run_id = b.id AND t.task_id = i.task_id
        AND t.map_index = i.map_index AND t.filter_code IS NULL
"""


def held_back(
    connection: psycopg.Connection[Any], ready: Sequence[Ready], *, now: datetime
) -> dict[int, Wait]:
    """Which of the ready task instances wait for the run before, and for what of it."""
    asked = [r for r in ready if _asks(r)]
    if not asked:
        return {}
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            _BEFORE,
            {
                "ti": [r.instance.ti_id for r in asked],
                "after": ["{" + ",".join(f'"{one}"' for one in _after(r)) + "}" for r in asked],
            },
        )
        waits = {
            row["id"]: past.wait_for(
                run_key=row["run_key"],
                own=None if row["own"] is None else TaskState(row["own"]),
                after={name: TaskState(state) for name, state in (row["after"] or {}).items()},
            )
            for row in cursor.fetchall()
        }
    held = {ti_id: wait for ti_id, wait in waits.items() if wait is not None}
    for r in asked:
        if r.instance.ti_id in held and r.instance.ready_since is None:
            r.instance.ready_since = now
    return held


def _asks(ready: Ready) -> bool:
    """A first execution does, also after a clear; what was let go once goes on: retries, resumes."""
    one = ready.instance
    return (
        one.task_id in ready.view.version.past
        and one.attempt_id is None
        and one.state in (TaskState.NONE, TaskState.SCHEDULED)
    )


def _after(ready: Ready) -> tuple[str, ...]:
    """The tasks directly after it, where those of the run before count too."""
    return ready.view.version.past[ready.instance.task_id]
