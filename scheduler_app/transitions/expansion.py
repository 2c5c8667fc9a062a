"""Mapped tasks: a summary becomes its instances, and instances follow what is mapped over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import class_row, tuple_row
from psycopg.types.json import Jsonb

from scheduler_app import sql

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import psycopg

    from scheduler_app.rules.definition import TaskDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFacts:
    """What is known of the result of one task of one run."""

    run_id: int
    task_id: str
    has_ended: bool  # nothing of it is unfinished
    results: int  # of its expanded instances that succeeded and returned something
    length: int | None  # of the result of the one instance that is not expanded


def read_inputs(
    connection: psycopg.Connection[Any], *, run_ids: Sequence[int], task_ids: Sequence[str]
) -> list[InputFacts]:
    """What these tasks of these runs have come to. Walks ``task_instance_unique``."""
    with connection.cursor(row_factory=class_row(InputFacts)) as cursor:
        cursor.execute(_INPUTS, {"run": list(run_ids), "task": list(task_ids)})
        return cursor.fetchall()


# Lists as they are, tuples and dicts that keep their order in their stored form.
_INPUTS: Final = """
SELECT i.run_id, i.task_id, bool_and(NOT i.is_open) AS has_ended,
       (count(*) FILTER (WHERE i.map_index >= 0 AND p.result IS NOT NULL))::int AS results,
       (max(CASE WHEN i.map_index < 0 THEN
         CASE WHEN jsonb_typeof(p.result) = 'array' THEN jsonb_array_length(p.result)
              WHEN p.result->>'__daylight__' IN ('tuple', 'dict')
                THEN jsonb_array_length(p.result->'value')
              WHEN jsonb_typeof(p.result) = 'object' AND p.result->>'__daylight__' IS NULL
                THEN (SELECT count(*) FROM jsonb_object_keys(p.result)) END END))::int AS length
  FROM task_instance i
  LEFT JOIN attempt p ON p.id = i.attempt_id AND p.is_accepted AND i.state = 'success'
 WHERE i.run_id = ANY(%(run)s) AND i.task_id = ANY(%(task)s) AND i.filter_code IS NULL
 GROUP BY 1, 2
"""


def add_instances(
    connection: psycopg.Connection[Any],
    *,
    run_id: int,
    task: TaskDefinition,
    indexes: Sequence[int],
    labels: Mapping[int, str],
) -> list[int]:
    """The ids of the instances of the task that were added, in ``none``; those that are there stay as they are.

    A freeze of the task holds them from their first moment. The caller proved its lease and holds the run.
    """
    if not indexes:
        return []
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            _ADD,
            {
                "run": run_id,
                "task_id": task.task_id,
                "max_tries": task.retries,
                "pool": task.pool,
                "pool_slots": task.pool_slots,
                "queue": task.queue,
                "priority": task.priority,
                "map_index": list(indexes),
                "label": [labels.get(index) for index in indexes],
            },
        )
        return [row[0] for row in cursor.fetchall()]


_ADD: Final = """
INSERT INTO task_instance (run_id, shard, task_id, map_index, map_label, state, is_open, try_number,
                           max_tries, resume_index, dispatch_no, budget_start, infra_losses, pool,
                           pool_slots, queue, priority, held_by, held_at)
SELECT r.id, r.shard, %(task_id)s, u.map_index, u.label, 'none', true, 0, %(max_tries)s, 0, 0, 0, 0,
       %(pool)s, %(pool_slots)s, %(queue)s, %(priority)s, z.id,
       CASE WHEN z.id IS NOT NULL THEN clock_timestamp() END
  FROM run r
 CROSS JOIN unnest(%(map_index)s::int[], %(label)s::text[]) AS u(map_index, label)
  LEFT JOIN (SELECT min(id) AS id FROM "freeze" WHERE ended_at IS NULL AND scope_kind = 'task'
              AND scope_id = %(run)s::bigint || ':' || %(task_id)s::text) z ON true
 WHERE r.id = %(run)s
ON CONFLICT (run_id, task_id, map_index) DO NOTHING
RETURNING id
"""


def end_expansion(
    connection: psycopg.Connection[Any], *, ti_id: int, label: str | None, is_needed: bool
) -> bool:
    """Whether the summary, in ``none`` still, is index 0 now; where that is there (not ``is_needed``), removed."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "UPDATE task_instance"
            "   SET map_index = CASE WHEN %(is_needed)s THEN 0 ELSE map_index END,"
            "       map_label = CASE WHEN %(is_needed)s THEN %(label)s::varchar END,"
            "       state = CASE WHEN %(is_needed)s THEN state ELSE 'removed' END,"
            "       is_open = %(is_needed)s,"
            "       ended_at = CASE WHEN NOT %(is_needed)s THEN clock_timestamp() END"
            " WHERE id = %(ti)s AND map_index = -1 AND state IN ('none', 'scheduled')"
            "   AND held_by IS NULL RETURNING id",
            {"ti": ti_id, "label": label, "is_needed": is_needed},
        )
        return cursor.fetchone() is not None


def held_summaries(
    connection: psycopg.Connection[Any], *, run_ids: Sequence[int], task_ids: Sequence[str]
) -> frozenset[int]:
    """The summaries of these tasks that a freeze holds. The caller holds the runs, as a freeze does."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT id FROM task_instance WHERE run_id = ANY(%s) AND task_id = ANY(%s)"
            " AND map_index = -1 AND held_by IS NOT NULL",
            [list(run_ids), list(set(task_ids))],
        )
        return frozenset(row[0] for row in cursor.fetchall())


def note_reasons(connection: psycopg.Connection[Any], *, reasons: Mapping[int, str]) -> None:
    """Summaries that are about to be marked say why; it stays until they are cleared."""
    if not reasons:
        return
    ordered = sorted(reasons.items())
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE task_instance i SET stop_reason = u.why"
            "  FROM unnest(%s::bigint[], %s::text[]) AS u(id, why)"
            " WHERE i.id = u.id AND i.state IN ('none', 'scheduled')",
            [[ti_id for ti_id, _ in ordered], [why for _, why in ordered]],
        )


def remove_instances(
    connection: psycopg.Connection[Any],
    *,
    seen: Mapping[int, str],
    why: str,
) -> frozenset[int]:
    """The ids that are removed, or will be when the attempt that is asked to stop has ended.

    ``seen`` holds the state of each as it was seen. The caller holds the run and locked them in an
    earlier statement.
    """
    if not seen:
        return frozenset()
    ids = sorted(seen)
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT id FROM task_instance WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE", [ids]
        )
        cursor.execute(
            sql.load("mark_by_hand"),
            {
                "ti": ids,
                "seen_state": [seen[ti_id] for ti_id in ids],
                "state": ["removed"] * len(ids),
                "mark": Jsonb({"actor": "scheduler", "reason": why, "callbacks": False}),
                "why": why,
            },
        )
        return frozenset(row[0] for row in cursor.fetchall())


def restore_instances(
    connection: psycopg.Connection[Any], *, ti_ids: Sequence[int], retries: int
) -> int:
    """How many removed instances begin anew, with a whole budget of retries; a freeze of their task holds them.

    The caller holds the run.
    """
    if not ti_ids:
        return 0
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "UPDATE task_instance i"
            "   SET state = 'none', is_open = true, ended_at = NULL, mark = NULL,"
            "       stop_requested_at = NULL, stop_reason = NULL, budget_start = try_number,"
            "       max_tries = try_number + %(retries)s, held_by = z.id,"
            "       held_at = CASE WHEN z.id IS NOT NULL THEN clock_timestamp() END"
            "  FROM task_instance o"
            '  LEFT JOIN (SELECT scope_id, min(id) AS id FROM "freeze" WHERE ended_at IS NULL'
            "              AND scope_kind = 'task' GROUP BY scope_id) z"
            "    ON z.scope_id = o.run_id || ':' || o.task_id"
            " WHERE i.id = ANY(%(ti)s) AND o.id = i.id AND i.state = 'removed' AND i.held_by IS NULL",
            {"ti": sorted(ti_ids), "retries": retries},
        )
        return cursor.rowcount


def settle_summary(
    connection: psycopg.Connection[Any], *, run_id: int, task: TaskDefinition, is_empty: bool
) -> None:
    """A skipped summary stands for the empty list; where the list is not empty, none stands for it."""
    with connection.cursor() as cursor:
        if is_empty:
            add_instances(connection, run_id=run_id, task=task, indexes=[-1], labels={})
        cursor.execute(
            "UPDATE task_instance SET state = %(state)s, is_open = false, ended_at = clock_timestamp()"
            " WHERE run_id = %(run)s AND task_id = %(task)s AND map_index = -1"
            "   AND held_by IS NULL AND state = ANY(%(from)s)",
            {
                "run": run_id,
                "task": task.task_id,
                "state": "skipped" if is_empty else "removed",
                "from": ["none", "removed"] if is_empty else ["skipped"],
            },
        )


def read_result(connection: psycopg.Connection[Any], *, run_id: int, task_id: str) -> Any:
    """The stored result of the one instance of the task, or ``None``."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT p.result FROM task_instance i JOIN attempt p ON p.id = i.attempt_id"
            " WHERE i.run_id = %s AND i.task_id = %s AND i.map_index = -1 AND i.state = 'success'"
            "   AND p.is_accepted",
            [run_id, task_id],
        )
        row = cursor.fetchone()
        return None if row is None else row[0]


def read_results(connection: psycopg.Connection[Any], *, run_id: int, task_id: str) -> list[Any]:
    """The stored results of the instances of a mapped task that returned something, in their order."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT p.result FROM task_instance i JOIN attempt p ON p.id = i.attempt_id"
            " WHERE i.run_id = %s AND i.task_id = %s AND i.map_index >= 0 AND i.state = 'success'"
            "   AND p.is_accepted AND p.result IS NOT NULL ORDER BY i.map_index",
            [run_id, task_id],
        )
        return [row[0] for row in cursor.fetchall()]
