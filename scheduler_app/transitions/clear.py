"""Clearing: task instances begin anew, their attempts are set aside, their run is open again; its plans."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import dict_row, tuple_row
from psycopg.types.json import Jsonb

from scheduler_app import sql
from scheduler_app.transitions.run import revise_runs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    import psycopg

    from scheduler_app.rules.definition import TaskDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """One task instance as it was seen, and its task in the version that will execute."""

    ti_id: int
    state: str
    attempt_id: UUID | None
    task: TaskDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class Clear:
    """The clear that all of them belong to."""

    id: UUID  # of its plan
    actor: str
    reason: str
    new_run_attempt: int | None  # the run attempt that it begins; null: it begins none
    cause: str = "clear"  # of that run attempt: clear or run_retry
    # Whether the run's policy has its whole budget of run retries again: a person cleared the run.
    is_afresh: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NewGroupAttempt:
    """The attempt of a transactional group that all of them begin anew under."""

    group_id: str
    number: int
    told: str  # which attempt of the budget it is, in words
    reason: str


def lock_instances(connection: psycopg.Connection[Any], *, run_id: int) -> list[dict[str, Any]]:
    """Every task instance of the run, locked in id order; the caller holds the run.

    One dict each: id, task_id, map_index, state, try_number, attempt_id, held_by (the freeze of it or of its
    task), is_asked_to_stop, pool, pool_slots, queue, priority. Walks ``task_instance_unique``.
    """
    return _instances(connection, run_id, _LOCK)


def read_instances(connection: psycopg.Connection[Any], *, run_id: int) -> list[dict[str, Any]]:
    """The same, read and not locked."""
    return _instances(connection, run_id, _READ)


# A freeze of the task marks what is open; what has ended by then must not be opened under it either.
_READ: Final = """
SELECT i.id, i.task_id, i.map_index, i.state, i.try_number, i.attempt_id,
       coalesce(i.held_by, z.id) AS held_by, i.pool, i.pool_slots, i.queue, i.priority,
       i.stop_requested_at IS NOT NULL AS is_asked_to_stop
  FROM task_instance i
  LEFT JOIN (SELECT scope_id, min(id) AS id FROM "freeze"
              WHERE ended_at IS NULL AND scope_kind = 'task' GROUP BY scope_id) z
    ON z.scope_id = i.run_id || ':' || i.task_id
 WHERE i.run_id = %s ORDER BY i.id
"""
_LOCK: Final = f"{_READ} FOR NO KEY UPDATE OF i"


def _instances(
    connection: psycopg.Connection[Any], run_id: int, statement: str
) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(statement, [run_id])
        return cursor.fetchall()


def clear_task_instances(
    connection: psycopg.Connection[Any],
    *,
    cleared: Sequence[Cleared],
    by: Clear | NewGroupAttempt,
) -> dict[int, str]:
    """By id, the state of each that was still as it was seen: none, or restarting while it stops.

    The caller holds the run and locked the task instances in an earlier statement.
    """
    if not cleared:
        return {}
    ordered = sorted(cleared, key=lambda one: one.ti_id)
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            sql.load("clear_task_instances"),
            {
                "ti": [one.ti_id for one in ordered],
                "seen_state": [one.state for one in ordered],
                "seen_attempt": [one.attempt_id for one in ordered],
                "retries": [one.task.retries for one in ordered],
                "pool": [one.task.pool for one in ordered],
                "pool_slots": [one.task.pool_slots for one in ordered],
                "queue": [one.task.queue for one in ordered],
                "priority": [one.task.priority for one in ordered],
                "code": _code(by),
                "cleared": Jsonb(_told(by) if isinstance(by, Clear) else _told_of_group(by)),
                "why": f"{by.actor} cleared it: {by.reason}"
                if isinstance(by, Clear)
                else f"group {by.group_id} is tried again as a whole: {by.reason}",
            },
        )
        opened: dict[int, str] = dict(cursor.fetchall())
    revise_runs(connection, ti_ids=list(opened))
    return opened


def _code(by: Clear | NewGroupAttempt) -> str:
    if isinstance(by, NewGroupAttempt):
        return "superseded_by_group_attempt"
    return "superseded_by_clear" if by.new_run_attempt is None else "superseded_by_run_attempt"


def _told_of_group(by: NewGroupAttempt) -> dict[str, Any]:
    return {
        "group": by.group_id,
        "new_group_attempt": by.number,
        "group_attempt": by.number - 1,
        "told": by.told,
        "reason": by.reason,
        "new_run_attempt": None,
    }


def reopen_run(connection: psycopg.Connection[Any], *, run_id: int, by: Clear) -> None:
    """The run, which the caller holds, is open: queued if it had ended, else as it was.

    Where the clear begins a run attempt, that is its newest one, and the one before is set aside.
    """
    values = {
        "run": run_id,
        "number": by.new_run_attempt,
        "actor": by.actor,
        "cause": by.cause,
        "reason": by.reason,
        "is_afresh": by.is_afresh,
        "detail": Jsonb(_told(by)),
    }
    with connection.cursor() as cursor:
        if by.new_run_attempt is not None:
            cursor.execute(_BEGIN_RUN_ATTEMPT, values)
        cursor.execute(_REOPEN, values)
        cursor.execute(_FORGET_RETRY, values)
        # Whatever a person had said of its end: it goes on.
        cursor.execute("UPDATE run SET mark = NULL WHERE id = %(run)s AND mark IS NOT NULL", values)


_BEGIN_RUN_ATTEMPT: Final = """
WITH old AS (
  UPDATE run_attempt ra
     SET state = CASE WHEN ra.ended_at IS NULL THEN 'failed' ELSE ra.state END,
         ended_at = coalesce(ra.ended_at, clock_timestamp()),
         filter_code = 'superseded_by_run_attempt', filtered_at = clock_timestamp(),
         filter_detail = %(detail)s::jsonb || jsonb_build_object('rule', 'clear', 'run_attempt', ra.number)
   WHERE ra.run_id = %(run)s AND ra.filter_code IS NULL
  RETURNING ra.id),
new AS (
  INSERT INTO run_attempt (run_id, number, cause, actor, reason, state, started_at)
  SELECT r.id, %(number)s, %(cause)s, %(actor)s, %(reason)s,
         CASE r.state WHEN 'running' THEN 'running' ELSE 'queued' END,
         CASE r.state WHEN 'running' THEN clock_timestamp() END
    FROM run r WHERE r.id = %(run)s AND (SELECT count(*) FROM old) >= 0
  RETURNING run_id)
UPDATE run SET run_attempt = %(number)s,
               retry_count = CASE WHEN %(is_afresh)s THEN 0 ELSE run.retry_count END
  FROM new WHERE run.id = new.run_id
"""
_REOPEN: Final = """
WITH r AS (
  UPDATE run
     SET state = 'queued', is_active = true, queued_at = clock_timestamp(), started_at = NULL,
         ended_at = NULL, deadline_at = NULL, state_reason = '', retry_at = NULL
   WHERE id = %(run)s AND state IN ('success', 'failed')
  RETURNING id, run_attempt)
UPDATE run_attempt ra SET state = 'queued', ended_at = NULL
  FROM r WHERE ra.run_id = r.id AND ra.number = r.run_attempt
"""
# Whatever its policy had said of the run's end is over with the clear.
_FORGET_RETRY: Final = """
UPDATE run SET retry_at = NULL, retry_reason = '', retry_barred = ''
 WHERE id = %(run)s AND (retry_at IS NOT NULL OR retry_reason <> '' OR retry_barred <> '')
"""


def put_checkpoints_away(
    connection: psycopg.Connection[Any], *, ti_ids: Sequence[int], by: Clear
) -> None:
    """The next tries begin without what earlier ones of these saved; its history stays."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE checkpoint SET scope = 'cleared', owner = owner || ':' || %s"
            " WHERE scope = 'task' AND owner = ANY(%s)",
            [str(by.id), [str(ti_id) for ti_id in ti_ids]],
        )


def move_to_version(
    connection: psycopg.Connection[Any],
    *,
    run_id: int,
    version_id: int,
    number: int,
    tasks: Sequence[TaskDefinition],
) -> None:
    """The run, which the caller holds, executes this version, which has these tasks.

    Tasks that it had no instance of have one; instances of tasks that are not in the version are set
    aside, and those that are in it again are current.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            _MOVE,
            {
                "run": run_id,
                "version": version_id,
                "number": number,
                "task_id": [task.task_id for task in tasks],
                "max_tries": [task.retries for task in tasks],
                "pool": [task.pool for task in tasks],
                "pool_slots": [task.pool_slots for task in tasks],
                "queue": [task.queue for task in tasks],
                "priority": [task.priority for task in tasks],
            },
        )


_MOVE: Final = """
WITH r AS (
  UPDATE run SET version_id = %(version)s WHERE id = %(run)s RETURNING id, shard),
gone AS (
  UPDATE task_instance i
     SET filter_code = 'removed_from_flow', filtered_at = clock_timestamp(),
         filter_detail = jsonb_build_object('rule', 'clear', 'task_id', i.task_id,
                                            'version', %(number)s::int)
    FROM r WHERE i.run_id = r.id AND i.filter_code IS NULL
     AND NOT i.task_id = ANY(%(task_id)s::text[])
  RETURNING i.id),
back AS (
  UPDATE task_instance i SET filter_code = NULL, filtered_at = NULL, filter_detail = NULL
    FROM r WHERE i.run_id = r.id AND i.filter_code = 'removed_from_flow'
     AND i.task_id = ANY(%(task_id)s::text[])
  RETURNING i.id)
INSERT INTO task_instance (run_id, shard, task_id, map_index, state, is_open, try_number, max_tries,
                           resume_index, dispatch_no, budget_start, infra_losses, pool, pool_slots,
                           queue, priority)
SELECT r.id, r.shard, u.task_id, -1, 'none', true, 0, u.max_tries, 0, 0, 0, 0, u.pool, u.pool_slots,
       u.queue, u.priority
  FROM r, unnest(%(task_id)s::text[], %(max_tries)s::int[], %(pool)s::text[], %(pool_slots)s::int[],
                 %(queue)s::text[], %(priority)s::int[])
            AS u(task_id, max_tries, pool, pool_slots, queue, priority)
 WHERE NOT EXISTS (SELECT 1 FROM task_instance i WHERE i.run_id = r.id AND i.task_id = u.task_id)
   AND (SELECT count(*) FROM gone) + (SELECT count(*) FROM back) >= 0
"""


def note_run(connection: psycopg.Connection[Any], *, run_id: int, note: str) -> None:
    """The note of the run is this one."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE run SET note = %s WHERE id = %s", [note, run_id])


def _told(by: Clear) -> dict[str, Any]:
    return {
        "clear": str(by.id),
        "actor": by.actor,
        "reason": by.reason,
        "new_run_attempt": by.new_run_attempt,
    }


# -- plans ---------------------------------------------------------------------------------------


def keep_plan(
    connection: psycopg.Connection[Any],
    *,
    plan_id: UUID,
    run_id: int,
    ti_ids: Sequence[int] | None,
    options: dict[str, Any],
    fingerprint: str,
    content: dict[str, Any],
    actor: str,
    valid_s: float,
    batch_id: UUID | None = None,
) -> dict[str, Any]:
    """The plan is kept for so many seconds; what ``read_plan`` gives. Old unused ones are gone."""
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            # Those of a batch go with it.
            "DELETE FROM clear_plan WHERE used_at IS NULL AND batch_id IS NULL"
            " AND expires_at < clock_timestamp() - interval '1 day'"
        )
        cursor.execute(
            "INSERT INTO clear_plan (id, run_id, ti_ids, options, hash, content, actor, created_at,"
            "  expires_at, batch_id) VALUES (%s, %s, %s, %s, %s, %s, %s, clock_timestamp(),"
            "  clock_timestamp() + make_interval(secs => %s), %s)"
            " RETURNING expires_at",
            [
                plan_id,
                run_id,
                None if ti_ids is None else Jsonb(list(ti_ids)),
                Jsonb(options),
                fingerprint,
                Jsonb(content),
                actor,
                valid_s,
                batch_id,
            ],
        )
        row = cursor.fetchone()
    assert row is not None
    return row


def read_plan(connection: psycopg.Connection[Any], *, plan_id: UUID) -> dict[str, Any] | None:
    """The plan, or ``None``: run_id, ti_ids, options, hash, content, expires_at, used_at, is_expired."""
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            # As text: what reads JSON differs between Django's connections and others.
            "SELECT run_id, ti_ids::text, options::text, hash, content::text, expires_at, used_at,"
            "  expires_at < clock_timestamp() AS is_expired FROM clear_plan WHERE id = %s",
            [plan_id],
        )
        row = cursor.fetchone()
    if row is None:
        return None
    decoded = {key: json.loads(row[key] or "null") for key in ("ti_ids", "options", "content")}
    return {**row, **decoded}


def use_plan(connection: psycopg.Connection[Any], *, plan_id: UUID) -> bool:
    """Whether the plan is used from now on; false if it was before."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE clear_plan SET used_at = clock_timestamp() WHERE id = %s AND used_at IS NULL",
            [plan_id],
        )
        return cursor.rowcount == 1
