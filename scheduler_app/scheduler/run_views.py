"""Runs in memory: their task instances as last read, refreshed by reading only what may have moved.

A view is valid for one lease token, one run attempt and one version. Most looks read only the instances
that were let go and have not ended: the others move by this process's own decisions, or by a person's act,
which raises the run's revision or rings without saying that it is only about an end. Such a view, and
every one that a sweep or a refused dispatch casts doubt on, reads all that is open. A terminal state
changes only by a clear or a mark by hand, which raise the revision: closed rows need no second look.
Sweeps doubt by the way, in case that a hint was lost: a run so large that reading it takes long is read
so seldom that it costs a small share of the time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import tuple_row

from scheduler_app.rules import values
from scheduler_app.rules.board import Board
from scheduler_app.rules.states import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from uuid import UUID

    import psycopg

    from scheduler_app.rules.group_retry import GroupAttemptFacts
    from scheduler_app.scheduler.versions import Version

VIEWS_MAX = 5000  # runs kept in memory
READING_SHARE: Final = 0.05  # of the time, at most, goes into doubts that sweeps have by the way

_STATES = {str(state): state for state in TaskState}
_ACTIVE = frozenset({TaskState.QUEUED, TaskState.RUNNING, TaskState.RESTARTING})


@dataclass(slots=True, kw_only=True)
class Instance:
    """One task instance as last read. Not frozen: refreshed in place."""

    ti_id: int
    task_id: str
    map_index: int
    state: TaskState
    try_number: int
    resume_index: int
    dispatch_no: int
    attempt_id: UUID | None
    held: bool
    pool: str
    slots: int
    queue: str
    priority: int
    next_retry_at: datetime | None
    wait_mark: str  # what it is noted to wait for: code, what it is about, and what of it lasts
    keys: tuple[tuple[str, int], ...] = ()  # limits that it needs a slot of, with their sizes
    ready_since: datetime | None = None  # when this process first saw it ready


@dataclass(slots=True, kw_only=True)
class RunView:
    """One active run."""

    run_id: int
    flow_id: str
    shard: int
    token: int
    run_attempt: int
    version: Version
    revision: int = 0  # of the run, when all that is open was last read
    is_doubted: bool = False
    settled_until: float = 0.0  # monotonic time before which no sweep doubts it
    board: Board | None = None
    instances: dict[int, Instance] = field(default_factory=dict)
    by_key: dict[tuple[str, int], int] = field(default_factory=dict)
    open_ids: set[int] = field(default_factory=set)
    let_go: set[int] = field(default_factory=set)  # of those, all that are not in ``none``, or held
    held_ids: set[int] = field(default_factory=set)  # that ended while a freeze held them
    # Made since the last look, and not read yet: a person may have ended one before it is first seen.
    added_ids: set[int] = field(default_factory=set)
    # What the tasks that pick have picked: the attempt whose result it is, whether there is one, and it.
    picked: dict[int, tuple[UUID | None, bool, object]] = field(default_factory=dict)

    groups: dict[str, GroupAttemptFacts] = field(default_factory=dict)  # transactional ones
    # What the keys of limits are filled in from, and what they came to; read when one is needed.
    of_run: dict[str, Any] | None = None
    keys: dict[int, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    # Tasks that others map over and that moved since the mapped ones were last compared with them.
    moved_inputs: set[str] = field(default_factory=set)
    # Instances of tasks that pick which have succeeded since the last look.
    moved_pickers: set[int] = field(default_factory=set)

    def put(self, instance: Instance, *, is_open: bool) -> None:
        """The instance is as given, which is newer than what the view held of it."""
        ti_id, is_held, state = instance.ti_id, instance.held, instance.state
        task_id, map_index = key = instance.task_id, instance.map_index
        old = self.instances.get(ti_id)
        if old is not None and old.map_index != map_index:
            self._forget_summary(old)
        self.instances[ti_id] = instance
        self.by_key[key] = ti_id
        if self.board is not None:
            self.board.put(task_id, map_index, state, held=is_held)
        _belongs(self.open_ids, ti_id, is_open)
        _belongs(self.let_go, ti_id, is_open and (is_held or state is not TaskState.NONE))
        _belongs(self.held_ids, ti_id, is_held and not is_open)

    def _forget_summary(self, old: Instance) -> None:
        """It has become the first of the instances that it stood for."""
        self.by_key.pop((old.task_id, old.map_index), None)
        if self.board is not None:
            self.board.drop(old.task_id, old.map_index)

    def pick(self, ti_id: int, attempt_id: UUID | None, *, is_there: bool, choice: object) -> None:
        """What the result of this attempt says, if there is one, is what the instance picked."""
        self.picked[ti_id] = (attempt_id, is_there, choice)
        if self.board is None:
            return
        instance = self.instances[ti_id]
        if is_there:
            self.board.pick(instance.task_id, instance.map_index, choice)
        else:
            self.board.forget_pick(instance.task_id, instance.map_index)

    def choices(self) -> dict[tuple[str, int], object]:
        """By task that picks and map index, what it picked; what was marked by hand has picked nothing."""
        found = ((self.instances[ti_id], how) for ti_id, how in self.picked.items())
        return {(i.task_id, i.map_index): value for i, (_, is_there, value) in found if is_there}

    def active_count(self) -> int:
        """How many task instances hold a place under ``max_active_tasks``.

        What was frozen while it was queued holds none: its delivery is refused.
        """
        found = (self.instances[ti_id] for ti_id in self.let_go)
        return sum(
            1
            for one in found
            if one.state in _ACTIVE and not (one.held and one.state is TaskState.QUEUED)
        )


class RunViews:
    """Views by run id."""

    def __init__(self) -> None:
        self._views: dict[int, RunView] = {}

    def forget(self, run_ids: Iterable[int]) -> None:
        """The views are gone; the next look reads the runs anew."""
        for run_id in run_ids:
            self._views.pop(run_id, None)

    def doubt(self, run_ids: Iterable[int], *, by_the_way: bool = False) -> None:
        """The next look at these runs reads all that is open in them.

        ``by_the_way``: without a cause, as sweeps do; large runs that were read lately are left as they are.
        """
        now = time.monotonic()
        for run_id in run_ids:
            view = self._views.get(run_id)
            if view is not None and not (by_the_way and now < view.settled_until):
                view.is_doubted = True

    def version_ids(self, run_ids: Iterable[int]) -> dict[int, int]:
        """By run, of those in memory, the version that it had when it was last read."""
        return {
            run_id: view.version.id
            for run_id in run_ids
            if (view := self._views.get(run_id)) is not None
        }

    def refresh(
        self,
        connection: psycopg.Connection[Any],
        *,
        runs: Iterable[dict[str, Any]],
        versions: dict[int, Version],
        terms: dict[int, int],
    ) -> list[RunView]:
        """The views of these locked runs, true as of this transaction's newest snapshot."""
        if len(self._views) > VIEWS_MAX:
            self._views.clear()
        known: list[RunView] = []
        doubted: list[RunView] = []
        new: list[RunView] = []
        for run in runs:
            view = self._views.get(run["id"])
            token = terms[run["shard"]]
            if (
                view is None
                or view.token != token
                or view.run_attempt != run["run_attempt"]
                or view.version.id != run["version_id"]
            ):
                view = RunView(
                    run_id=run["id"],
                    flow_id=run["flow_id"],
                    shard=run["shard"],
                    token=token,
                    run_attempt=run["run_attempt"],
                    version=versions[run["version_id"]],
                )
                if view.version.graph is not None:
                    view.board = Board(view.version.graph)
                self._views[run["id"]] = view
                new.append(view)
            elif view.is_doubted or view.revision != run["revision"]:
                doubted.append(view)
            else:
                known.append(view)
            view.revision = run["revision"]
        if new:
            self._read(connection, new, only_open=False)
        if doubted:
            for view in doubted:
                view.is_doubted = False
            self._read(connection, doubted, only_open=True)
        if known:
            self._read_added(connection, known)
            self._read_let_go(connection, known)
        views = known + doubted + new
        _read_choices(connection, views)
        return views

    def _read_let_go(self, connection: psycopg.Connection[Any], views: list[RunView]) -> None:
        """Those that were let go and have moved since, or wait for a time, are as they are now."""
        by_run = {view.run_id: view for view in views}
        known = [view.instances[ti_id] for view in views for ti_id in view.let_go | view.held_ids]
        if not known:
            return
        with connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(
                _SELECT_MOVED,
                [
                    [one.ti_id for one in known],
                    [one.state for one in known],
                    [one.held for one in known],
                    [one.attempt_id for one in known],
                ],
            )
            for row in cursor.fetchall():
                _take(by_run[row[0]], row)

    def _read_added(self, connection: psycopg.Connection[Any], views: list[RunView]) -> None:
        """Those that an expansion made since the last look are known."""
        by_run = {view.run_id: view for view in views if view.added_ids}
        if not by_run:
            return
        with connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(
                _SELECT + " WHERE i.id = ANY(%s)",
                [[ti_id for view in by_run.values() for ti_id in view.added_ids]],
            )
            for row in cursor.fetchall():
                _take(by_run[row[0]], row)
        for view in by_run.values():
            view.added_ids.clear()

    def _read(
        self, connection: psycopg.Connection[Any], views: list[RunView], *, only_open: bool
    ) -> None:
        by_run = {view.run_id: view for view in views}
        seen: dict[int, set[int]] = {run_id: set() for run_id in by_run}
        began = time.monotonic()
        with connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(
                _SELECT + " WHERE i.run_id = ANY(%s)" + (" AND i.is_open" if only_open else ""),
                [list(by_run)],
            )
            for row in cursor.fetchall():
                seen[row[0]].add(row[1])
                _take(by_run[row[0]], row)
            if only_open:
                closed = [
                    ti_id
                    for run_id, view in by_run.items()
                    for ti_id in (view.open_ids | view.held_ids | view.added_ids) - seen[run_id]
                ]
                for view in views:
                    view.added_ids.clear()
                if closed:
                    cursor.execute(_SELECT + " WHERE i.id = ANY(%s)", [closed])
                    for row in cursor.fetchall():
                        _take(by_run[row[0]], row)
        ended = time.monotonic()
        each_s = (ended - began) / max(1, sum(map(len, seen.values())))
        for run_id, view in by_run.items():
            view.settled_until = ended + each_s * len(seen[run_id]) / READING_SHARE


def _read_choices(connection: psycopg.Connection[Any], views: list[RunView]) -> None:
    """What the tasks that pick, and have succeeded since the last look, have picked."""
    asked = {
        ti_id: view
        for view in views
        for ti_id in view.moved_pickers
        if ti_id not in view.picked or view.picked[ti_id][0] != view.instances[ti_id].attempt_id
    }
    for view in views:
        view.moved_pickers.clear()
    if not asked:
        return
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT i.id, p.id, p.result FROM task_instance i JOIN attempt p ON p.id = i.attempt_id"
            " WHERE i.id = ANY(%s) AND p.is_accepted AND p.outcome = 'success'",
            [list(asked)],
        )
        found = {row[0]: row[1:] for row in cursor.fetchall()}
    for ti_id, view in asked.items():
        attempt_id, result = found.get(ti_id, (view.instances[ti_id].attempt_id, None))
        is_there = ti_id in found
        choice = values.decode(result) if is_there else None
        view.pick(ti_id, attempt_id, is_there=is_there, choice=choice)


_COLUMNS: Final = (
    "i.run_id, i.id, i.task_id, i.map_index, i.state, i.try_number, i.resume_index, i.dispatch_no,"
    " i.attempt_id, i.held_by IS NOT NULL, i.pool, i.pool_slots, i.queue, i.priority,"
    " i.next_retry_at, CASE WHEN i.wait IS NULL THEN '' ELSE concat_ws(':', i.wait->>'code',"
    "  coalesce(i.wait->>'about', ''), coalesce(i.wait->>'sign', '')) END, i.is_open,"
    " CASE WHEN i.state = 'scheduled' THEN (i.wait->>'since')::timestamptz END"
)
_SELECT: Final = f"SELECT {_COLUMNS} FROM task_instance i"  # noqa: S608 - names of ours
# Of what is with workers or triggers nothing but these is looked at before it moves on.
_SELECT_MOVED: Final = (
    f"SELECT {_COLUMNS}"  # noqa: S608 - names of ours
    " FROM unnest(%s::bigint[], %s::text[], %s::bool[], %s::uuid[]) AS k(id, state, held, attempt_id)"
    " JOIN task_instance i ON i.id = k.id"
    " WHERE i.state <> k.state OR (i.held_by IS NOT NULL) <> k.held"
    "  OR i.attempt_id IS DISTINCT FROM k.attempt_id"
    "  OR i.state NOT IN ('queued', 'running', 'restarting', 'deferred')"
)


def _take(view: RunView, row: tuple[Any, ...]) -> None:
    ti_id = row[1]
    old = view.instances.get(ti_id)
    state = _STATES[row[4]]
    if row[2] in view.version.mapped_inputs and (old is None or old.state is not state):
        view.moved_inputs.add(row[2])
    if state is TaskState.SUCCESS and row[2] in view.version.ties.pickers:
        view.moved_pickers.add(ti_id)
    found = Instance(
        ti_id=ti_id,
        task_id=row[2],
        map_index=row[3],
        state=state,
        try_number=row[5],
        resume_index=row[6],
        dispatch_no=row[7],
        attempt_id=row[8],
        held=row[9],
        pool=row[10],
        slots=row[11],
        queue=row[12],
        priority=row[13],
        next_retry_at=row[14],
        wait_mark=row[15],
        # Whoever reads it for the first time goes on with the wait that was noted.
        ready_since=(old and _waits_on(old.state, state) and old.ready_since) or row[17],
    )
    view.put(found, is_open=row[16])


def _belongs(ids: set[int], ti_id: int, whether: bool) -> None:
    (ids.add if whether else ids.discard)(ti_id)


def _waits_on(before: TaskState, now: TaskState) -> bool:
    """Whether what was ready then is ready since then: the note of a wait alone moves none on."""
    return before is now or (before is TaskState.NONE and now is TaskState.SCHEDULED)
