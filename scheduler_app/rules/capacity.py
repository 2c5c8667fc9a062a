"""Which ready task instances start now, and what the others wait for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

POOL_FULL: Final = "pool_full"
UNKNOWN_POOL: Final = "unknown_pool"
RUN_LIMIT: Final = "run_limit"
QUEUE_FULL: Final = "queue_full"
TICK_LIMIT: Final = "tick_limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A task instance that may start as far as its own run's graph is concerned."""

    ti_id: int
    run_id: int
    flow_id: str
    pool: str
    slots: int  # of the pool
    priority: int  # higher first
    queue: str
    ready_since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What is free now. What is not named has no room; free may be negative after a shrink."""

    pools: Mapping[str, int]  # pool -> free slots; a pool that does not exist is left out
    runs: Mapping[int, int]  # run -> how many more of its task instances may be active
    queues: Mapping[str, int]  # queue -> how many more deliveries may wait in it
    pool_sizes: Mapping[str, int] = field(default_factory=dict)  # pool -> all its slots, if known


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Why a candidate does not start now."""

    code: str  # pool_full, unknown_pool, run_limit, queue_full, tick_limit
    detail: str  # a sentence with the numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What starts now, in order, and why each other candidate waits, by ``ti_id``."""

    chosen: tuple[Candidate, ...]
    waiting: dict[int, Wait]


def choose(candidates: Iterable[Candidate], room: Room, limit: int) -> Choice:
    """At most ``limit`` candidates that all fit into the room together, and what the rest wait for.

    Higher priority first, then who is ready longer, then the lower id. A candidate that does not
    fit is passed over and takes nothing, so that no full pool, run or queue holds up another; the
    numbers in its reason are those it met.
    """
    pools, runs, queues = dict(room.pools), dict(room.runs), dict(room.queues)
    chosen: list[Candidate] = []
    waiting: dict[int, Wait] = {}
    for one in sorted(candidates, key=lambda c: (-c.priority, c.ready_since, c.ti_id)):
        wait = _what_is_full(one, pools, runs, queues, room.pool_sizes)
        if wait is None and len(chosen) >= limit:
            wait = Wait(
                code=TICK_LIMIT,
                detail=f"There is room; {limit} others were started first in this round.",
            )
        if wait is not None:
            waiting[one.ti_id] = wait
            continue
        pools[one.pool] -= one.slots
        runs[one.run_id] -= 1
        queues[one.queue] -= 1
        chosen.append(one)
    return Choice(chosen=tuple(chosen), waiting=waiting)


def _what_is_full(
    one: Candidate,
    pools: Mapping[str, int],
    runs: Mapping[int, int],
    queues: Mapping[str, int],
    pool_sizes: Mapping[str, int],
) -> Wait | None:
    """The first thing that has no room for the candidate: a wait for the hardest obstacle first."""
    if one.pool not in pools:
        return Wait(
            code=UNKNOWN_POOL,
            detail=f"There is no pool {one.pool!r}. Create it, or name another pool in the flow.",
        )
    size = pool_sizes.get(one.pool)
    if size is not None and one.slots > size:
        return Wait(
            code=POOL_FULL,
            detail=(
                f"It needs {one.slots} slots and pool {one.pool!r} has {size} in all: it can never"
                " start. Enlarge the pool, or give the task fewer slots."
            ),
        )
    if runs.get(one.run_id, 0) < 1:
        return Wait(
            code=RUN_LIMIT,
            detail="As many tasks of its run are active as max_active_tasks allows.",
        )
    if one.slots > pools[one.pool]:
        free = max(0, pools[one.pool])
        return Wait(
            code=POOL_FULL,
            detail=f"It needs {_slots(one.slots)} of pool {one.pool!r}, which has {free} free.",
        )
    if queues.get(one.queue, 0) < 1:
        return Wait(
            code=QUEUE_FULL,
            detail=f"Enough deliveries wait in queue {one.queue!r} for its workers.",
        )
    return None


def _slots(number: int) -> str:
    return "1 slot" if number == 1 else f"{number} slots"
