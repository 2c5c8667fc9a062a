"""Who holds the slots of a pool, a limit or a queue, and who waits for them in which order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from django.db import connection

from scheduler_app import sql
from scheduler_app.rules import capacity
from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from scheduler_app.queries.scope import Scope

PLACES_MAX: Final = 500  # of one page
PLACES: Final = 50
OFFSET_MAX: Final = 1_000_000
OF_POOL: Final = (
    capacity.POOL_FULL,
    capacity.POOL_KEPT,
    capacity.UNKNOWN_POOL,
    capacity.RUN_LIMIT,
    capacity.FLOW_LIMIT,
    capacity.TASK_LIMIT,
    capacity.TASK_RUN_LIMIT,
    capacity.KEY_LIMIT,
    capacity.KEY_KEPT,
    capacity.QUEUE_FULL,
    capacity.TICK_LIMIT,
)

RowT = TypeVar("RowT")


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderRow:
    """A task instance that holds slots."""

    ti: int
    run: int
    flow_id: str
    run_key: str
    task_id: str
    map_index: int
    map_label: str | None
    slots: int  # of its pool
    state: str  # running, queued or deferred
    since: datetime

    @property
    def name(self) -> str:
        """Flow, run and task in a line."""
        return _name(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaiterRow:
    """A task instance that waits for slots."""

    ti: int
    run: int
    flow_id: str
    run_key: str
    task_id: str
    map_index: int
    map_label: str | None
    slots: int
    priority: int
    code: str
    detail: str
    since: datetime

    @property
    def name(self) -> str:
        """Flow, run and task in a line."""
        return _name(self)


def _name(row: HolderRow | WaiterRow) -> str:
    index = "" if row.map_index < 0 else f" [{row.map_label or row.map_index}]"
    return f"{row.flow_id} {row.run_key} {row.task_id}{index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Places(Generic[RowT]):
    """Some of them, in order, and how many there are."""

    rows: tuple[RowT, ...]
    total: int
    offset: int

    @property
    def next_offset(self) -> int | None:
        """Where the rest begins; null: these are the last."""
        end = self.offset + len(self.rows)
        return end if self.rows and end < self.total else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """What the slots are of; what says nothing is null."""

    pool: str | None = None
    run: int | None = None
    flow: str | None = None
    task: str | None = None
    key: str | None = None
    queue: str | None = None


def what_is_waited_for(wait: Mapping[str, Any] | None, *, of: Slots) -> Slots | None:
    """What the slots are of that the wait of a task instance asks for; ``of``: all that it is in."""
    match (wait or {}).get("code"):
        case capacity.POOL_FULL | capacity.POOL_KEPT:
            return Slots(pool=of.pool)
        case capacity.RUN_LIMIT:
            return Slots(run=of.run)
        case capacity.FLOW_LIMIT:
            return Slots(flow=of.flow)
        case capacity.TASK_LIMIT:
            return Slots(flow=of.flow, task=of.task)
        case capacity.TASK_RUN_LIMIT:
            return Slots(run=of.run, task=of.task)
        case capacity.KEY_LIMIT | capacity.KEY_KEPT:
            return Slots(key=str((wait or {}).get("about", "")))
        case capacity.QUEUE_FULL:
            return Slots(queue=of.queue)
    return None


def holders(
    scope: Scope, slots: Slots, *, limit: int = PLACES, offset: int = 0
) -> Places[HolderRow]:
    """Who holds them, longest first. Raises ``InvalidInput`` for a page that there cannot be."""
    rows, total = _read(
        sql.load("holders_of_slots"),
        {
            "pool": slots.pool,
            "run": slots.run,
            "flow": slots.flow,
            "task": slots.task,
            "key": slots.key,
            "queue": slots.queue,
        },
        scope,
        limit,
        offset,
    )
    return Places(rows=tuple(HolderRow(**row) for row in rows), total=total, offset=offset)


def waiters(
    scope: Scope,
    *,
    pool: str | None = None,
    key: str | None = None,
    limit: int = PLACES,
    offset: int = 0,
) -> Places[WaiterRow]:
    """Who waits, in order. Raises ``InvalidInput`` for a page that there cannot be."""
    codes = [capacity.KEY_LIMIT, capacity.KEY_KEPT] if key is not None else list(OF_POOL)
    rows, total = _read(
        sql.load("waiting_for_slots"),
        {"pool": pool, "key": key, "codes": codes},
        scope,
        limit,
        offset,
    )
    return Places(rows=tuple(WaiterRow(**row) for row in rows), total=total, offset=offset)


def before(*, ti: int) -> int:
    """How many wait for its pool with a higher priority, or as high, in its flow and for longer.

    Flows take turns at equal priority: how long those of others have waited says nothing.
    """
    with connection.cursor() as cursor:
        cursor.execute(_BEFORE, {"ti": ti, "codes": list(_CONTENDED)})
        (number,) = cursor.fetchone()
    return int(number)


_CONTENDED: Final = (
    capacity.POOL_FULL,
    capacity.POOL_KEPT,
    capacity.QUEUE_FULL,
    capacity.TICK_LIMIT,
)
_BEFORE: Final = """
SELECT count(*) FROM task_instance i JOIN task_instance w ON w.is_open AND w.pool = i.pool
  JOIN run r ON r.id = w.run_id AND r.is_active AND r.filter_code IS NULL
  JOIN run o ON o.id = i.run_id
 WHERE i.id = %(ti)s AND w.id <> i.id AND w.held_by IS NULL AND w.filter_code IS NULL
   AND w.state IN ('scheduled', 'up_for_retry', 'up_for_reschedule')
   AND w.wait->>'code' = ANY(%(codes)s::text[])
   AND (w.priority > i.priority OR (w.priority = i.priority AND r.flow_id = o.flow_id
        AND (w.wait->>'since', w.id) < (i.wait->>'since', i.id)))
"""


def _read(
    statement: str, asked: dict[str, Any], scope: Scope, limit: int, offset: int
) -> tuple[list[dict[str, Any]], int]:
    for field, value, low, high in (
        ("limit", limit, 1, PLACES_MAX),
        ("offset", offset, 0, OFFSET_MAX),
    ):
        if not low <= value <= high:
            raise InvalidInput(f"{field}: {value} is not from {low} to {high}.", field=field)
    flow_ids = None if scope.flow_ids is None else sorted(scope.flow_ids)
    with connection.cursor() as cursor:
        cursor.execute(statement, {**asked, "flow_ids": flow_ids, "limit": limit, "offset": offset})
        names = [column.name for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    totals = [row.pop("total") for row in rows]
    return rows, totals[0] if totals else 0
