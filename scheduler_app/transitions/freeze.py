"""Freezes: marks over scopes. What lies beneath stays as it is, and goes on when the mark is gone.

``frozen_at`` stands on flows and runs, ``held_by`` and ``held_at`` on task instances; all of them
follow from the rows of ``freeze`` that have not ended. Freezing and thawing take turns.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, LiteralString

from psycopg.rows import dict_row, tuple_row

from scheduler_app import sql
from scheduler_app.rules.definition import from_dict
from scheduler_app.rules.errors import DefinitionError
from scheduler_app.rules.freezing import (
    WIDE,
    Mode,
    Place,
    Queued,
    Scope,
    ScopeKind,
    scope_of,
    who_goes_on,
)
from scheduler_app.transitions.run import revise_runs

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    import psycopg

    from scheduler_app.rules.definition import FlowDefinition, TaskDefinition

TURN: Final = 0x6461_796C_6667  # of the advisory lock


@dataclass(slots=True, kw_only=True)
class Frozen:
    """What a freeze marked."""

    freeze_id: int = 0
    at: datetime | None = None
    flow_ids: list[str] = field(default_factory=list)
    run_ids: list[int] = field(default_factory=list)
    held: int = 0  # task instances
    stopped: int = 0  # attempts that were asked to stop


@dataclass(slots=True, kw_only=True)
class Thawed:
    """What a thaw let go, and what it did not."""

    flow_ids: list[str] = field(default_factory=list)
    run_ids: list[int] = field(default_factory=list)
    released: int = 0  # task instances
    kept: int = 0  # by another freeze
    waiting: int = 0  # queued ones for which there is no room yet


def take_turn(connection: psycopg.Connection[Any], *, shared: bool = False) -> None:
    """No other freeze or thaw goes on until this transaction ends; ``shared``: but others like it."""
    mode: LiteralString = "_shared" if shared else ""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock" + mode + "(%s)", [TURN])


def live_freezes(
    connection: psycopg.Connection[Any], *, scope: Scope | None = None, overdue: bool = False
) -> list[dict[str, Any]]:
    """The freezes that have not ended, oldest first: of just this scope, or that should have ended."""
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            'SELECT * FROM "freeze" WHERE ended_at IS NULL'
            " AND (%(kind)s::text IS NULL OR scope_kind = %(kind)s AND scope_id = %(id)s)"
            " AND (NOT %(overdue)s OR until_at <= clock_timestamp()) ORDER BY id",
            {
                "kind": None if scope is None else scope.kind.value,
                "id": "" if scope is None else scope.id,
                "overdue": overdue,
            },
        )
        return cursor.fetchall()


def freeze(
    connection: psycopg.Connection[Any],
    *,
    scope: Scope,
    mode: Mode,
    actor: str,
    reason: str,
    until_at: datetime | None,
) -> Frozen:
    """Nothing of the scope starts from ``at`` on; what runs is asked to stop in hard mode.

    Whatever claims, dispatches or makes a run holds a row that this waits for, or finds the mark.
    Part of the caller's transaction, which took its turn.
    """
    done = Frozen()
    with connection.cursor(row_factory=tuple_row) as cursor:
        names = {"kind": scope.kind.value, "id": scope.id, "number": scope.number}
        if scope.kind in WIDE:
            # Not only against other writers: a run that is just being made refers to its flow.
            cursor.execute(_FLOWS, names)
            done.flow_ids = [row[0] for row in cursor.fetchall()]
        cursor.execute(_RUNS, names)
        done.run_ids = [row[0] for row in cursor.fetchall()]
        ti = scope.number if scope.kind is ScopeKind.TASK_INSTANCE else None
        cursor.execute(
            "SELECT id FROM task_instance WHERE run_id = ANY(%s) AND is_open"
            " AND (%s::bigint IS NULL OR id = %s::bigint)"
            " AND (%s::text IS NULL OR task_id = %s::text) ORDER BY id FOR NO KEY UPDATE",
            [done.run_ids, ti, ti, scope.task_id, scope.task_id],
        )
        ids = [row[0] for row in cursor.fetchall()]
        # Not before everything is locked: what had begun to start has started before this moment.
        cursor.execute(
            'INSERT INTO "freeze" (scope_kind, scope_id, mode, actor, reason, until_at, created_at)'
            " VALUES (%s, %s, %s, %s, %s, %s, clock_timestamp()) RETURNING id, created_at",
            [scope.kind.value, scope.id, mode.value, actor, reason, until_at],
        )
        row = cursor.fetchone()
        assert row is not None
        done.freeze_id, done.at = row
        cursor.execute(
            "UPDATE flow SET frozen_at = %s WHERE flow_id = ANY(%s) AND frozen_at IS NULL",
            [done.at, done.flow_ids],
        )
        if ti is None and scope.task_id is None:
            cursor.execute(
                "UPDATE run SET frozen_at = %s WHERE id = ANY(%s) AND frozen_at IS NULL",
                [done.at, done.run_ids],
            )
        cursor.execute(
            "UPDATE task_instance SET held_by = %s, held_at = %s"
            " WHERE id = ANY(%s) AND is_open AND held_by IS NULL",
            [done.freeze_id, done.at, ids],
        )
        done.held = len(ids)
        cursor.execute(_GIVE_KEYS_BACK, [ids])
        revise_runs(connection, ti_ids=ids)
        if mode is Mode.HARD:
            cursor.execute(
                "WITH x AS (UPDATE attempt p SET stop_requested_at = clock_timestamp(),"
                "  stop_reason = %s FROM task_instance i"
                "  WHERE i.id = ANY(%s) AND p.id = i.attempt_id AND i.state = 'running'"
                "   AND i.stop_requested_at IS NULL AND p.state = 'running'"
                "   AND p.stop_requested_at IS NULL RETURNING p.id, p.ti_id)"
                " UPDATE task_instance i SET frozen_attempt_id = x.id FROM x WHERE i.id = x.ti_id",
                [f"{actor} froze {scope.name}: {reason}", ids],
            )
            done.stopped = cursor.rowcount
    return done


def thaw(connection: psycopg.Connection[Any], *, freeze_ids: Collection[int]) -> Thawed:
    """The freezes have ended, and what no other freeze holds goes on, with its clocks where they were.

    A queued task instance goes on when its pool, run, flow and task have room: what has none is left to
    ``let_go``.
    Part of the caller's transaction, which took its turn.
    """
    done = Thawed()
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            'SELECT scope_kind, scope_id FROM "freeze" WHERE id = ANY(%s) AND ended_at IS NULL'
            " ORDER BY id",
            [list(freeze_ids)],
        )
        scopes = [scope_of(row["scope_kind"], row["scope_id"]) for row in cursor.fetchall()]
    flow_ids: set[str] = set()
    run_ids: set[int] = set()
    with connection.cursor(row_factory=tuple_row) as cursor:
        for scope in scopes:
            if scope.kind in WIDE:
                names = {"kind": scope.kind.value, "id": scope.id, "number": scope.number}
                cursor.execute(_FLOWS, names)
                flow_ids.update(row[0] for row in cursor.fetchall())
        _lock_pools(connection, freeze_ids)
        for scope in scopes:
            names = {"kind": scope.kind.value, "id": scope.id, "number": scope.number}
            cursor.execute(_RUNS, names)
            run_ids.update(row[0] for row in cursor.fetchall())
        cursor.execute(
            "SELECT id FROM task_instance WHERE held_by = ANY(%s) ORDER BY id FOR NO KEY UPDATE",
            [list(freeze_ids)],
        )
        cursor.execute(
            'UPDATE "freeze" SET ended_at = clock_timestamp()'
            " WHERE id = ANY(%s) AND ended_at IS NULL",
            [list(freeze_ids)],
        )
        done.flow_ids, done.run_ids = sorted(flow_ids), sorted(run_ids)
        cursor.execute(
            _THAW_FLOWS,
            [done.flow_ids],
        )
        cursor.execute(_THAW_RUNS, [done.run_ids])
        cursor.execute(_HAND_OVER, [list(freeze_ids)])
        done.kept = cursor.rowcount
    done.released = let_go(connection, freeze_ids=freeze_ids)
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT count(*) FROM task_instance WHERE held_by = ANY(%s)", [list(freeze_ids)]
        )
        row = cursor.fetchone()
        done.waiting = row[0] if row is not None else 0
    return done


def ended_that_hold(connection: psycopg.Connection[Any]) -> list[int]:
    """Freezes that have ended and hold queued task instances still, for want of room.

    Walks ``task_instance_held``.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            'SELECT DISTINCT z.id FROM task_instance i JOIN "freeze" z ON z.id = i.held_by'
            " WHERE i.held_by IS NOT NULL AND z.ended_at IS NOT NULL ORDER BY z.id"
        )
        return [row[0] for row in cursor.fetchall()]


def lock_for_let_go(
    connection: psycopg.Connection[Any], *, freeze_ids: Collection[int]
) -> list[int]:
    """The runs of what these freezes hold; pools, runs and task instances are locked, in that order."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        _lock_pools(connection, freeze_ids)
        cursor.execute(
            "SELECT r.id FROM run r WHERE r.id IN"
            " (SELECT run_id FROM task_instance WHERE held_by = ANY(%s))"
            " ORDER BY r.id FOR NO KEY UPDATE",
            [list(freeze_ids)],
        )
        run_ids = [row[0] for row in cursor.fetchall()]
        cursor.execute(
            "SELECT id FROM task_instance WHERE held_by = ANY(%s) ORDER BY id FOR NO KEY UPDATE",
            [list(freeze_ids)],
        )
    return run_ids


def let_go(connection: psycopg.Connection[Any], *, freeze_ids: Collection[int]) -> int:
    """What these ended freezes hold goes on, queued ones as far as there is room; how many.

    Pools, runs and task instances are locked by earlier statements of the transaction.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(_NOT_QUEUED, [list(freeze_ids)])
        ids = [row[0] for row in cursor.fetchall()]
        ids += _queued_that_fit(cursor, freeze_ids)
        if ids:
            cursor.execute("SELECT clock_timestamp()")
            row = cursor.fetchone()
            assert row is not None
            cursor.execute(sql.load("thaw_task_instances"), {"ti": ids, "at": row[0]})
    revise_runs(connection, ti_ids=ids)
    return len(ids)


def _queued_that_fit(cursor: psycopg.Cursor[Any], freeze_ids: Collection[int]) -> list[int]:
    """Which of the queued task instances that these freezes hold have room, in their order."""
    cursor.execute(_QUEUED, [list(freeze_ids)])
    rows = cursor.fetchall()
    if not rows:
        return []
    definitions = _definitions(cursor, {row[8] for row in rows})
    tasks: dict[tuple[int, str], TaskDefinition] = {
        (version_id, task.task_id): task
        for version_id, definition in definitions.items()
        for task in definition.tasks
    }
    free: dict[Place, int] = {}
    queued = []
    for ti_id, run_id, flow_id, task_id, pool, slots, priority, since, version_id in rows:
        bounds: dict[Place, int | None] = {}
        if (definition := definitions.get(version_id)) is not None:
            bounds["run", run_id] = definition.max_active_tasks
            bounds["flow", flow_id] = definition.max_active_tasks_per_flow
        if (task := tasks.get((version_id, task_id))) is not None:
            bounds["task", flow_id, task_id] = task.max_active_per_flow
            bounds["run_task", run_id, task_id] = task.max_active_per_run
        needs: dict[Place, int] = {("pool", pool): slots}
        for place, bound in bounds.items():
            if bound is not None:
                free[place] = min(bound, free.get(place, bound))
                needs[place] = 1
        queued.append(Queued(ti_id=ti_id, priority=priority, since=since, needs=needs))
    cursor.execute("SELECT name, slots FROM pool")
    free.update({("pool", name): slots for name, slots in cursor.fetchall()})
    cursor.execute(_TAKEN)
    for pool, run_id, flow_id, task_id, slots, number in cursor.fetchall():
        for place, taken in (
            (("pool", pool), slots),
            (("run", run_id), number),
            (("flow", flow_id), number),
            (("task", flow_id, task_id), number),
            (("run_task", run_id, task_id), number),
        ):
            if place in free:
                free[place] -= taken
    return who_goes_on(queued, free)


def _definitions(
    cursor: psycopg.Cursor[Any], version_ids: Collection[int]
) -> dict[int, FlowDefinition]:
    """Those that can be read: no thaw fails for one that cannot, and no run of it is decided."""
    cursor.execute(
        "SELECT id, definition::text FROM flow_version WHERE id = ANY(%s)", [list(version_ids)]
    )
    found = {}
    for version_id, read in cursor.fetchall():
        with contextlib.suppress(DefinitionError):
            found[version_id] = from_dict(json.loads(read))
    return found


def _lock_pools(connection: psycopg.Connection[Any], freeze_ids: Collection[int]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT name FROM pool WHERE name IN (SELECT pool FROM task_instance"
            "  WHERE held_by = ANY(%s) AND state = 'queued') ORDER BY name FOR NO KEY UPDATE",
            [list(freeze_ids)],
        )


_OF_FLOW: Final = (
    "(z.scope_kind = 'all' OR z.scope_kind = 'flow' AND z.scope_id = f.flow_id"
    " OR z.scope_kind = 'shard' AND z.scope_id = f.shard::text)"
)
_OF_RUN: Final = (
    "("
    + _OF_FLOW
    + (
        " OR z.scope_kind = 'shard' AND z.scope_id = r.shard::text"
        " OR z.scope_kind = 'run' AND z.scope_id = r.id::text)"
    )
)

_THAW_FLOWS: Final = (
    "UPDATE flow f SET frozen_at = NULL, scheduled_since = CASE WHEN f.frozen_at IS NULL"  # noqa: S608 - constants
    "  THEN f.scheduled_since ELSE clock_timestamp() END WHERE f.flow_id = ANY(%s) AND NOT EXISTS ("
    ' SELECT 1 FROM "freeze" z WHERE z.ended_at IS NULL AND ' + _OF_FLOW + ")"
)

_FLOWS: Final = """
SELECT flow_id FROM flow
 WHERE %(kind)s = 'all' OR %(kind)s = 'flow' AND flow_id = %(id)s
    OR %(kind)s = 'shard' AND shard = %(number)s::bigint
 ORDER BY flow_id FOR UPDATE
"""

# A run that waits for its next run attempt is over, and its clock stands still too.
_RUNS: Final = """
SELECT r.id FROM run r JOIN flow f ON f.flow_id = r.flow_id
 WHERE (r.is_active OR r.retry_at IS NOT NULL) AND (%(kind)s = 'all' OR %(kind)s = 'flow' AND r.flow_id = %(id)s
    OR %(kind)s = 'shard' AND (r.shard = %(number)s::bigint OR f.shard = %(number)s::bigint)
    OR %(kind)s IN ('run', 'task') AND r.id = %(number)s::bigint
    OR %(kind)s = 'task_instance'
       AND r.id = (SELECT run_id FROM task_instance WHERE id = %(number)s::bigint))
 ORDER BY r.id FOR NO KEY UPDATE OF r
"""

# The clocks of a run stand still for as long as it was frozen.
_THAW_RUNS: Final = (
    'WITH n AS (SELECT r.id, r.frozen_at, (SELECT min(z.created_at) FROM "freeze" z'  # noqa: S608 - constants
    "   WHERE z.ended_at IS NULL AND " + _OF_RUN + ") AS still"
    "  FROM run r JOIN flow f ON f.flow_id = r.flow_id"
    "  WHERE r.id = ANY(%s) AND r.frozen_at IS NOT NULL)"
    " UPDATE run r SET frozen_at = CASE WHEN n.still IS NOT NULL THEN r.frozen_at END,"
    "  deadline_at = r.deadline_at + CASE WHEN n.still IS NULL"
    "   THEN clock_timestamp() - greatest(r.frozen_at, r.created_at) ELSE '0' END,"
    "  late_at = r.late_at + CASE WHEN n.still IS NULL"
    "   THEN clock_timestamp() - greatest(r.frozen_at, r.created_at) ELSE '0' END,"
    "  retry_at = r.retry_at + CASE WHEN n.still IS NULL"
    "   THEN clock_timestamp() - greatest(r.frozen_at, r.created_at) ELSE '0' END"
    " FROM n WHERE r.id = n.id"
)

_HAND_OVER: Final = (
    'WITH n AS (SELECT i.id, (SELECT min(z.id) FROM "freeze" z'  # noqa: S608 - constants
    " WHERE z.ended_at IS NULL AND ("
    + _OF_RUN
    + " OR z.scope_kind = 'task_instance' AND z.scope_id = i.id::text"
    " OR z.scope_kind = 'task' AND z.scope_id = i.run_id || ':' || i.task_id)) AS holder"
    "  FROM task_instance i JOIN run r ON r.id = i.run_id JOIN flow f ON f.flow_id = r.flow_id"
    "  WHERE i.held_by = ANY(%s))"
    " UPDATE task_instance i SET held_by = n.holder FROM n"
    " WHERE i.id = n.id AND n.holder IS NOT NULL"
)

# What is queued and held takes no room, and a thaw waits for it; but how many slots a key has only a dispatch
# knows, so that who holds some is dispatched anew. No budget is used.
_GIVE_KEYS_BACK: Final = """
WITH t AS (
  UPDATE task_instance i SET state = 'scheduled' FROM attempt p
   WHERE i.id = ANY(%s) AND i.state = 'queued' AND p.id = i.attempt_id AND p.state = 'issued'
     AND p.limit_keys <> '[]'
  RETURNING i.attempt_id)
UPDATE attempt p
   SET state = 'ended', is_live = false, outcome = 'lost', ended_at = clock_timestamp(),
       outcome_reason = 'frozen before a worker took it; its slots of keys went back'
  FROM t WHERE p.id = t.attempt_id
"""

_NOT_QUEUED: Final = "SELECT id FROM task_instance WHERE held_by = ANY(%s) AND state <> 'queued'"
_QUEUED: Final = (
    "SELECT i.id, i.run_id, r.flow_id, i.task_id, i.pool, i.pool_slots, i.priority, i.queued_at,"
    "  r.version_id FROM task_instance i JOIN run r ON r.id = i.run_id"
    " WHERE i.held_by = ANY(%s) AND i.state = 'queued'"
)
# As a dispatch counts it.
_TAKEN: Final = """
SELECT a.pool, a.run_id, r.flow_id, a.task_id, sum(a.pool_slots)::int, count(*)::int
  FROM attempt a JOIN task_instance i ON i.id = a.ti_id JOIN run r ON r.id = a.run_id
 WHERE a.is_live AND a.kind = 'task' AND a.filter_code IS NULL
   AND NOT (a.state = 'issued' AND i.held_by IS NOT NULL)
 GROUP BY 1, 2, 3, 4
UNION ALL
SELECT i.pool, NULL, NULL, NULL, sum(i.pool_slots)::int, 0
  FROM trigger g JOIN task_instance i ON i.id = g.ti_id
  JOIN pool p ON p.name = i.pool AND p.include_deferred
 WHERE g.is_waiting AND i.state = 'deferred' GROUP BY 1
"""
