"""The room for task instances: pools, runs, flows, tasks, keys and queues, counted from live attempts.

One statement, whose cost follows what is live. What only some flows use (limits of keys, of tasks and over
all runs of a flow; deferred task instances that keep their slots) is read only where it is needed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import tuple_row

from scheduler_app.rules import capacity, limits
from scheduler_app.transitions.kept_room import (
    KEPT_COLUMNS,
    KEPT_ROWS,
    keep,
    let_go,
)
from scheduler_app.transitions.kept_room import kept_keys as read_kept_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import psycopg

    from scheduler_app.scheduler.dispatch_attempts import Ready
    from scheduler_app.scheduler.pace import Pace
    from scheduler_app.scheduler.run_views import Instance, RunView
    from scheduler_app.scheduler.versions import Version

QUEUE_PLACES_MIN: Final = 24  # deliveries that may wait in one queue, however few workers there are
KEYS_LOCK: Final = 0x6B657973  # the name of the advisory lock under which keys are counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A pool, locked."""

    slots: int
    include_deferred: bool = False
    kept: capacity.Keep | None = None  # for whom what becomes free in it is kept


@dataclass(slots=True, kw_only=True)
class Usage:
    """What live attempts hold now, and deferred task instances where their pool says so."""

    pool_slots: Counter[str] = field(default_factory=Counter)
    queue_issued: Counter[str] = field(default_factory=Counter)
    flows: Counter[str] = field(default_factory=Counter)
    tasks: Counter[tuple[str, str]] = field(default_factory=Counter)
    run_tasks: Counter[tuple[int, str]] = field(default_factory=Counter)
    keys: Counter[str] = field(default_factory=Counter)


def lock(connection: psycopg.Connection[Any], *, versions: Iterable[Version]) -> dict[str, Pool]:
    """The pools that these versions use, locked by name, so that no other dispatcher counts now.

    Where one of them has limits of keys, those too: a key may be of any flow, so that there is one
    lock for all.
    """
    names: set[str] = set()
    has_keys = False
    for version in versions:
        names |= version.pools
        has_keys |= version.has_keys
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(_LOCK_POOLS, [sorted(names)])
        found = {
            row[0]: Pool(
                slots=row[1],
                include_deferred=row[2],
                kept=None if row[3] is None else capacity.Keep(*row[3:]),
            )
            for row in cursor.fetchall()
        }
        if has_keys:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [KEYS_LOCK])
    return found


_LOCK_POOLS: Final = (
    f"SELECT p.name, p.slots, p.include_deferred, {KEPT_COLUMNS}"  # noqa: S608 - constants
    # A join, since PostgreSQL would plan a look for any of some names anew each time.
    " FROM pool p JOIN unnest(%s::text[]) AS n (name) ON n.name = p.name"
    f" LEFT JOIN ({KEPT_ROWS}) ON k.kind = 'pool' AND k.name = p.name"
    " ORDER BY p.name FOR NO KEY UPDATE OF p"
)


def count_usage(
    connection: psycopg.Connection[Any],
    *,
    deferred_in: Sequence[str] = (),
    is_detailed: bool = False,
) -> Usage:
    """What is taken, counted from live attempts; call it under ``lock``.

    Issued attempts whose task instance is held take no room: they will be refused, and a thaw waits
    for room. A key alone counts them. With ``is_detailed`` by flow, task and key too. In the pools
    ``deferred_in``, deferred task instances keep their slots. Walks ``attempt_live``, and
    ``trigger_wake``.
    """
    usage = Usage()
    with connection.cursor(row_factory=tuple_row) as cursor:
        if is_detailed:
            _count_detailed(cursor, usage)
        else:
            cursor.execute(_TAKEN)
            for pool, queue, state, slots, number in cursor.fetchall():
                usage.pool_slots[pool] += slots
                if state == "issued":
                    usage.queue_issued[queue] += number
        if deferred_in:
            cursor.execute(_DEFERRED, [list(deferred_in)])
            for pool, slots in cursor.fetchall():
                usage.pool_slots[pool] += slots
    return usage


def _count_detailed(cursor: psycopg.Cursor[Any], usage: Usage) -> None:
    cursor.execute(_TAKEN_DETAILED)
    for pool, queue, state, is_held, flow_id, run_id, task_id, keys, slots, number in cursor:
        for key in keys or ():
            usage.keys[key] += number
        if is_held:
            continue
        usage.flows[flow_id] += number
        usage.tasks[flow_id, task_id] += number
        usage.run_tasks[run_id, task_id] += number
        usage.pool_slots[pool] += slots
        if state == "issued":
            usage.queue_issued[queue] += number


_TAKEN: Final = (
    "SELECT a.pool, a.queue, a.state, sum(a.pool_slots)::int, count(*)::int FROM attempt a"
    " JOIN task_instance i ON i.id = a.ti_id"
    " WHERE a.is_live AND a.kind = 'task' AND a.filter_code IS NULL"
    " AND NOT (a.state = 'issued' AND i.held_by IS NOT NULL) GROUP BY 1, 2, 3"
)
_TAKEN_DETAILED: Final = (
    "SELECT a.pool, a.queue, a.state, a.state = 'issued' AND i.held_by IS NOT NULL, r.flow_id,"
    "  a.run_id, a.task_id, a.limit_keys, sum(a.pool_slots)::int, count(*)::int"
    " FROM attempt a JOIN task_instance i ON i.id = a.ti_id JOIN run r ON r.id = a.run_id"
    " WHERE a.is_live AND a.kind = 'task' AND a.filter_code IS NULL"
    " GROUP BY 1, 2, 3, 4, 5, 6, 7, 8"
)
_DEFERRED: Final = (
    "SELECT i.pool, sum(i.pool_slots)::int FROM trigger g JOIN task_instance i ON i.id = g.ti_id"
    " WHERE g.is_waiting AND i.state = 'deferred' AND i.pool = ANY(%s) GROUP BY 1"
)


def read(
    connection: psycopg.Connection[Any],
    ready: Sequence[Ready],
    *,
    pools: Mapping[str, Pool],
    queue_slots: Mapping[str, int],
    pace: Pace,
) -> capacity.Room:
    """The room that is left for ``ready`` under ``lock``; the keys of each are known afterwards."""
    views = {r.view.run_id: r.view for r in ready}
    _fill_in_keys(connection, [r for r in ready if r.instance.task_id in r.view.version.keys])
    usage = count_usage(
        connection,
        deferred_in=[name for name, pool in pools.items() if pool.include_deferred],
        is_detailed=any(view.version.is_detailed for view in views.values()),
    )
    pace.found(usage.queue_issued)
    keys = {key for r in ready for key, _ in r.instance.keys}
    return room_for(
        ready,
        pools=pools,
        usage=usage,
        queue_slots=queue_slots,
        pace=pace,
        kept_keys=read_kept_keys(connection, keys=keys) if keys else {},
    )


def room_for(
    ready: Sequence[Ready],
    *,
    pools: Mapping[str, Pool],
    usage: Usage,
    queue_slots: Mapping[str, int],
    pace: Pace,
    kept_keys: Mapping[str, capacity.Keep] | None = None,
) -> capacity.Room:
    """The room that is left in the pools, runs, flows, tasks and queues that ``ready`` needs.

    What is kept for one of ``ready`` is decided anew with it; what is for others stays theirs.
    """
    queues = {r.instance.queue for r in ready}
    own = {r.instance.ti_id for r in ready}
    views = {r.view.run_id: r.view for r in ready}
    flows: dict[str, int] = {}
    tasks: dict[tuple[str, str], int] = {}
    run_tasks: dict[tuple[int, str], int] = {}
    for view in views.values():
        per_flow = view.version.definition.max_active_tasks_per_flow
        if per_flow is not None:
            flows[view.flow_id] = min(per_flow, flows.get(view.flow_id, per_flow))
        for task in view.version.limited:
            if task.max_active_per_flow is not None:
                name = (view.flow_id, task.task_id)
                tasks[name] = min(
                    task.max_active_per_flow, tasks.get(name, task.max_active_per_flow)
                )
            if task.max_active_per_run is not None:
                run_tasks[view.run_id, task.task_id] = task.max_active_per_run
    return capacity.Room(
        pools={name: pool.slots - usage.pool_slots[name] for name, pool in pools.items()},
        pool_sizes={name: pool.slots for name, pool in pools.items()},
        runs={
            run_id: view.version.definition.max_active_tasks - view.active_count()
            for run_id, view in views.items()
        },
        queues={
            queue: max(QUEUE_PLACES_MIN, 2 * queue_slots.get(queue, 0), pace.places(queue))
            - usage.queue_issued[queue]
            for queue in queues
        },
        flows={flow_id: size - usage.flows[flow_id] for flow_id, size in flows.items()},
        tasks={name: size - usage.tasks[name] for name, size in tasks.items()},
        run_tasks={name: size - usage.run_tasks[name] for name, size in run_tasks.items()},
        keys=dict(usage.keys),
        kept_pools={
            name: pool.kept
            for name, pool in pools.items()
            if pool.kept is not None and pool.kept.ti_id not in own
        },
        kept_keys={key: kept for key, kept in (kept_keys or {}).items() if kept.ti_id not in own},
        own_keys=frozenset(key for key, kept in (kept_keys or {}).items() if kept.ti_id in own),
    )


def note_kept(
    connection: psycopg.Connection[Any],
    ready: Sequence[Ready],
    choice: capacity.Choice,
    *,
    pools: Mapping[str, Pool],
    left: capacity.Room,
) -> None:
    """Every scheduler knows from now on what is kept for those of ``ready`` who need much."""
    own = {r.instance.ti_id for r in ready}
    over = {
        name
        for name, pool in pools.items()
        if pool.kept is not None and pool.kept.ti_id in own and name not in choice.kept_pools
    }
    if over:
        let_go(connection, kind="pool", names=over, ti_ids=own)
    keep(connection, kind="pool", kept=choice.kept_pools)
    if keys := left.own_keys - choice.kept_keys.keys():
        let_go(connection, kind="key", names=keys, ti_ids=own)
    keep(connection, kind="key", kept=choice.kept_keys)


def _fill_in_keys(connection: psycopg.Connection[Any], asked: Sequence[Ready]) -> None:
    """Each task instance that needs slots of keys knows which, and how many slots each has now."""
    if not asked:
        return
    unknown = {r.view.run_id: r.view for r in asked if r.view.of_run is None}
    with connection.cursor(row_factory=tuple_row) as cursor:
        if unknown:
            cursor.execute(
                "SELECT id, run_key, conf, logical_date FROM run WHERE id = ANY(%s)",
                [list(unknown)],
            )
            for run_id, run_key, conf, logical_date in cursor.fetchall():
                view = unknown[run_id]
                view.of_run = {
                    "params": {**view.version.definition.params, **conf},
                    "conf": conf,
                    "flow_id": view.flow_id,
                    "run_id": run_key,
                    "ds": "" if logical_date is None else logical_date.strftime("%Y-%m-%d"),
                }
        labels = _labels(cursor, asked)
        found = {r.instance.ti_id: _keys(r.view, r.instance, labels) for r in asked}
        cursor.execute(
            "SELECT key, slots FROM key_limit WHERE key = ANY(%s) OR key LIKE '%%*'",
            [sorted({key for keys in found.values() for key, _ in keys})],
        )
        rules: dict[str, int] = dict(cursor.fetchall())
    for r in asked:
        r.instance.keys = tuple(
            (key, limits.slots_of(key, own, rules)) for key, own in found[r.instance.ti_id]
        )


def _labels(cursor: psycopg.Cursor[Any], asked: Sequence[Ready]) -> dict[int, str | None]:
    """What the mapped instances are called whose keys name that and are not known yet."""
    new = [
        r.instance.ti_id
        for r in asked
        if r.instance.ti_id not in r.view.keys
        and r.instance.map_index >= 0
        and any("{map_label}" in one.key for one in r.view.version.keys[r.instance.task_id])
    ]
    if not new:
        return {}
    cursor.execute("SELECT id, map_label FROM task_instance WHERE id = ANY(%s)", [new])
    return dict(cursor.fetchall())


def _keys(
    view: RunView, instance: Instance, labels: Mapping[int, str | None]
) -> tuple[tuple[str, int], ...]:
    """The keys, each with the task's own number; what one run says of them never changes."""
    known = view.keys.get(instance.ti_id)
    if known is None:
        values = {
            **(view.of_run or {}),
            "task_id": instance.task_id,
            "map_index": instance.map_index,
            "map_label": labels.get(instance.ti_id) or str(instance.map_index),
        }
        known = tuple(
            (limits.key(one.key, values), one.slots) for one in view.version.keys[instance.task_id]
        )
        view.keys[instance.ti_id] = known
    return known
