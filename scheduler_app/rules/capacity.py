"""Which ready task instances start now, and what the others wait for.

Priority is strict, over all pools. Among equals the lines take turns: a line is what one flow has ready
in one pool, and the one that was served longest ago, or waits longest, comes first. Whoever does not fit
is passed over, so that nothing full holds up anything else; but a task instance that has waited for
the slots of its pool for ``KEPT_AFTER_S`` has what becomes free in it kept for it, so that smaller ones
cannot overtake it for ever; and so have the keys of one that waits for several things at once. What is kept
for one that needs much holds wherever it is decided (``Keep``): one who is not among the ready ones has it too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

POOL_FULL: Final = "pool_full"
POOL_KEPT: Final = "pool_kept"
UNKNOWN_POOL: Final = "unknown_pool"
RUN_LIMIT: Final = "run_limit"
FLOW_LIMIT: Final = "flow_limit"
TASK_LIMIT: Final = "task_limit"
TASK_RUN_LIMIT: Final = "task_run_limit"
KEY_LIMIT: Final = "key_limit"
KEY_KEPT: Final = "key_kept"
QUEUE_FULL: Final = "queue_full"
TICK_LIMIT: Final = "tick_limit"

KEPT_AFTER_S: Final = 30.0


class Kind(NamedTuple):
    """What task instances take of the room; those of one kind take the same."""

    run_id: int
    flow_id: str
    task_id: str  # of a task that has limits of its own; else it may be empty: all are alike
    pool: str
    slots: int  # of the pool
    priority: int  # higher first
    queue: str
    keys: tuple[tuple[str, int], ...] = ()  # limits: key, and how many slots it has in all


class Ready(NamedTuple):
    """A task instance that may start as far as its own run's graph is concerned."""

    since: datetime
    ti_id: int
    task_id: str = ""  # where its kind does not say it


class Line(NamedTuple):
    """What one flow has ready in one pool at one priority."""

    priority: int
    flow_id: str
    pool: str


class Keep(NamedTuple):
    """For whom slots are kept, told to all who decide."""

    priority: int
    since: datetime  # when it began to wait
    ti_id: int
    slots: int  # how many it needs
    flow_id: str
    task_id: str

    def is_before(self, other: Keep) -> bool:
        """Whether it comes first, wherever both are decided: an order of all, so that each has its turn."""
        return (-self.priority, self.since, self.ti_id) < (
            -other.priority,
            other.since,
            other.ti_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What is free now; free may be negative after a shrink.

    A pool, run or queue that is not named has no room; a flow, task or key that is not, has no limit
    or has nothing taken.
    """

    pools: Mapping[str, int]  # pool -> free slots; a pool that does not exist is left out
    runs: Mapping[int, int]  # run -> how many more of its task instances may be active
    queues: Mapping[str, int]  # queue -> how many more deliveries may wait in it
    pool_sizes: Mapping[str, int] = field(default_factory=dict)  # pool -> all its slots, if known
    flows: Mapping[str, int] = field(default_factory=dict)  # flow -> how many more in all its runs
    tasks: Mapping[tuple[str, str], int] = field(default_factory=dict)  # the same by flow and task
    run_tasks: Mapping[tuple[int, str], int] = field(default_factory=dict)  # and by run and task
    keys: Mapping[str, int] = field(default_factory=dict)  # key -> slots of it that are taken
    # Pool or key -> for whom of those who are decided elsewhere some of it is kept.
    kept_pools: Mapping[str, Keep] = field(default_factory=dict)
    kept_keys: Mapping[str, Keep] = field(default_factory=dict)
    own_keys: frozenset[str] = frozenset()  # keys of which some was kept for one of the ready ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Why a task instance does not start now."""

    code: str  # one of those above
    detail: str  # a sentence with the numbers
    about: str = ""  # the key that is full or kept, or the task instance that slots are kept for
    # What of the detail lasts: where it changes, so does what is told. Not what is free just now.
    sign: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What starts now, in order, why each other waits, and which lines were served."""

    chosen: tuple[int, ...]
    waiting: dict[int, Wait]
    served: frozenset[Line]
    # What is to be kept for those who need much, whoever decides next.
    kept_pools: Mapping[str, Keep] = field(default_factory=dict)
    kept_keys: Mapping[str, Keep] = field(default_factory=dict)


def choose(
    ready: Mapping[Kind, Sequence[Ready]],
    room: Room,
    *,
    limit: int,
    now: datetime,
    served: Mapping[Line, datetime] | None = None,
) -> Choice:
    """At most ``limit`` task instances that all fit into the room together, and what the rest wait for.

    Higher priority first, then the lines in turn (``served``: when each was served last), then who is
    ready longer, then the lower id. Who does not fit takes nothing; the numbers in its reason are
    those it met. Costs as much as there are kinds and chosen ones, not as many as wait.
    """
    left = _Left(room, now)
    last = served or {}
    lines: dict[Line, list[_Group]] = {}
    for kind, members in ready.items():
        if members:
            line = Line(kind.priority, kind.flow_id, kind.pool)
            lines.setdefault(line, []).append(_Group(kind, members))
    # Priority, how often it was served in this round, since when it waits or is served (the latter comes
    # after whoever waits since that very moment), the lowest id.
    turns: list[tuple[int, int, datetime, bool, int, Line]] = []
    for line, groups in lines.items():
        heapify(groups)
        head = groups[0].members[0]
        before = last.get(line)
        is_served = before is not None and before >= head.since
        since = before if before is not None and is_served else head.since
        turns.append((-line.priority, 0, since, is_served, head.ti_id, line))
    heapify(turns)
    chosen: list[int] = []
    waiting: dict[int, Wait] = {}
    served_now: set[Line] = set()
    while turns:
        _, turn, since, is_served, _, line = heappop(turns)
        groups = lines[line]
        while groups:
            group = groups[0]
            wait = left.refusal(group.kind, group.head)
            if wait is None and len(chosen) >= limit:
                wait = Wait(
                    code=TICK_LIMIT,
                    detail=f"There is room; {limit} others were started first in this round.",
                )
            if wait is not None:
                # The room only shrinks: what did not fit the first of a kind fits none of them.
                waiting.update(dict.fromkeys(group.rest(), wait))
                heappop(groups)
                continue
            left.take(group.kind)
            chosen.append(group.head.ti_id)
            served_now.add(line)
            heappop(groups)
            if group.step():
                heappush(groups, group)
            if groups:
                head_id = groups[0].head.ti_id
                heappush(turns, (-line.priority, turn + 1, since, is_served, head_id, line))
            break
    return Choice(
        chosen=tuple(chosen),
        waiting=waiting,
        served=frozenset(served_now),
        kept_pools=left.told_pools,
        kept_keys=left.told_keys,
    )


class _Group:
    """Task instances of one kind, longest ready first; ordered by the first that is left."""

    __slots__ = ("at", "head", "kind", "members")

    def __init__(self, kind: Kind, members: Sequence[Ready]) -> None:
        self.kind = kind
        self.members = sorted(members)
        self.at = 0
        self.head = self.members[0]

    def __lt__(self, other: _Group) -> bool:
        return self.head < other.head

    def step(self) -> bool:
        """The next one is first; whether there is one."""
        self.at += 1
        if self.at < len(self.members):
            self.head = self.members[self.at]
        return self.at < len(self.members)

    def rest(self) -> list[int]:
        """The ids of those that are left."""
        return [one.ti_id for one in self.members[self.at :]]


class _Left:
    """The room that is left, and for whom some of it is kept."""

    def __init__(self, room: Room, now: datetime) -> None:
        self._pools, self._runs, self._queues = dict(room.pools), dict(room.runs), dict(room.queues)
        self._flows, self._tasks = dict(room.flows), dict(room.tasks)
        self._run_tasks, self._keys = dict(room.run_tasks), dict(room.keys)
        self._sizes = room.pool_sizes
        self._old = now - timedelta(seconds=KEPT_AFTER_S)
        self._kept: dict[str, tuple[Kind, Ready]] = {}  # pool -> for whom
        self._kept_keys: dict[str, tuple[Kind, Ready]] = {}  # key -> for whom
        self._kept_elsewhere, self._keys_elsewhere = room.kept_pools, room.kept_keys
        self.told_pools: dict[str, Keep] = {}
        self.told_keys: dict[str, Keep] = {}

    def take(self, kind: Kind) -> None:
        """One of this kind has what it needs."""
        self._pools[kind.pool] -= kind.slots
        self._runs[kind.run_id] -= 1
        self._queues[kind.queue] -= 1
        if kind.flow_id in self._flows:
            self._flows[kind.flow_id] -= 1
        if (task := (kind.flow_id, kind.task_id)) in self._tasks:
            self._tasks[task] -= 1
        if (run_task := (kind.run_id, kind.task_id)) in self._run_tasks:
            self._run_tasks[run_task] -= 1
        for key, _ in kind.keys:
            self._keys[key] = self._keys.get(key, 0) + 1

    def refusal(self, kind: Kind, one: Ready) -> Wait | None:
        """The first thing that has no room for one of this kind: the hardest obstacle first."""
        if kind.pool not in self._pools:
            return Wait(
                code=UNKNOWN_POOL,
                detail=f"There is no pool {kind.pool!r}. Create it, or name another pool in the flow.",
            )
        size = self._sizes.get(kind.pool)
        if size is not None and kind.slots > size:
            return Wait(
                code=POOL_FULL,
                detail=(
                    f"It needs {told_slots(kind.slots)} and pool {kind.pool!r} has {size} in all: it"
                    " can never start. Enlarge the pool, or give the task fewer slots."
                ),
                sign=f"of {size}",
            )
        if (wait := self._limit_of(kind)) is not None:
            return wait
        if (wait := self._key_of(kind, one)) is not None:
            if wait.code == KEY_LIMIT and one.since <= self._old:
                self._keep_keys(kind, one)
            return wait
        if kind.slots > self._pools[kind.pool]:
            free = max(0, self._pools[kind.pool])
            if one.since <= self._old and kind.pool not in self._kept:
                self._kept[kind.pool] = (kind, one)
                self._keep_keys(kind, one)
                if kind.slots > 1:  # one slot is nobody's to be overtaken for: who is first has it
                    self.told_pools[kind.pool] = _keep(kind, one, kind.slots)
            return Wait(
                code=POOL_FULL,
                detail=f"It needs {told_slots(kind.slots)} of pool {kind.pool!r}, which has {free} free.",
            )
        if (kept := self._kept.get(kind.pool)) is not None:
            return _pool_kept(kind.pool, _keep(*kept, kept[0].slots))
        other = self._kept_elsewhere.get(kind.pool)
        if (
            other is not None
            and kind.slots > self._pools[kind.pool] - other.slots
            and not _keep(kind, one, kind.slots).is_before(other)
        ):
            return _pool_kept(kind.pool, other)
        if self._queues.get(kind.queue, 0) < 1:
            return Wait(
                code=QUEUE_FULL,
                detail=f"Enough deliveries wait in queue {kind.queue!r} for its workers.",
            )
        return None

    def _keep_keys(self, kind: Kind, one: Ready) -> None:
        """What it needs besides does not go to others before it has all of it, if it ever can."""
        if all(slots for _, slots in kind.keys):
            is_told = len(kind.keys) > 1 or kind.slots > 1
            for key, _ in kind.keys:
                self._kept_keys.setdefault(key, (kind, one))
                if is_told:
                    self.told_keys.setdefault(key, _keep(kind, one, 1))

    def _limit_of(self, kind: Kind) -> Wait | None:
        if self._runs.get(kind.run_id, 0) < 1:
            return Wait(
                code=RUN_LIMIT,
                detail="As many tasks of its run are active as max_active_tasks allows.",
            )
        if self._flows.get(kind.flow_id, 1) < 1:
            return Wait(
                code=FLOW_LIMIT,
                detail=(
                    f"As many tasks of flow {kind.flow_id!r} are active, in all its runs, as"
                    " max_active_tasks_per_flow allows."
                ),
            )
        if self._tasks.get((kind.flow_id, kind.task_id), 1) < 1:
            return Wait(
                code=TASK_LIMIT,
                detail=(
                    f"As many executions of task {kind.task_id!r} are active, in all runs of its flow,"
                    " as max_active_per_flow allows."
                ),
            )
        if self._run_tasks.get((kind.run_id, kind.task_id), 1) < 1:
            return Wait(
                code=TASK_RUN_LIMIT,
                detail=(
                    f"As many executions of task {kind.task_id!r} are active in its run as"
                    " max_active_per_run allows."
                ),
            )
        return None

    def _key_of(self, kind: Kind, one: Ready) -> Wait | None:
        for key, slots in kind.keys:
            if self._keys.get(key, 0) >= slots:
                taken = "has no slots" if not slots else f"has {told_slots(slots)}, all taken"
                return Wait(
                    code=KEY_LIMIT,
                    detail=f"It needs a slot of key {key!r}, which {taken}.",
                    about=key,
                    sign=f"of {slots}",
                )
        for key, slots in kind.keys:
            if (kept := self._kept_keys.get(key)) is not None:
                return _key_kept(key, _keep(*kept, 1))
            other = self._keys_elsewhere.get(key)
            if (
                other is not None
                and self._keys.get(key, 0) + other.slots >= slots
                and not _keep(kind, one, 1).is_before(other)
            ):
                return _key_kept(key, other)
        return None


def _keep(kind: Kind, one: Ready, slots: int) -> Keep:
    task_id = kind.task_id or one.task_id
    return Keep(kind.priority, one.since, one.ti_id, slots, kind.flow_id, task_id)


def _pool_kept(pool: str, keep: Keep) -> Wait:
    return Wait(
        code=POOL_KEPT,
        detail=(
            f"The free slots of pool {pool!r} are kept for task {keep.task_id!r} of flow"
            f" {keep.flow_id!r}, which needs {told_slots(keep.slots)} and waits longer."
        ),
        about=str(keep.ti_id),
    )


def _key_kept(key: str, keep: Keep) -> Wait:
    return Wait(
        code=KEY_KEPT,
        detail=(
            f"The free slots of key {key!r} are kept for task {keep.task_id!r} of flow"
            f" {keep.flow_id!r}, which needs more than them and waits longer."
        ),
        about=key,
        sign=str(keep.ti_id),
    )


def told_slots(number: int) -> str:
    """``1 slot``, ``3 slots``."""
    return "1 slot" if number == 1 else f"{number} slots"
