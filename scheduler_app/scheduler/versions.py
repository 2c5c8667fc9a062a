"""Flow versions in memory: immutable, so read once a process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.rows import tuple_row

from scheduler_app.rules.board import Graph, can_be_held
from scheduler_app.rules.definition import FlowDefinition, from_dict
from scheduler_app.rules.errors import DefinitionError
from scheduler_app.rules.mapping import MappedTask, mapped_tasks, producers
from scheduler_app.rules.past import tasks_with_past
from scheduler_app.rules.ties import Ties, ties_of

if TYPE_CHECKING:
    import psycopg

    from scheduler_app.rules.definition import LimitDefinition, TaskDefinition

DEFAULT_QUEUE = "default"
CACHED_MAX = 2000  # versions; each a few kilobytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A definition with what every look at it needs."""

    id: int
    definition: FlowDefinition
    upstream: dict[str, tuple[str, ...]]
    trigger_rules: dict[str, str]
    ties: Ties
    graph: Graph | None  # where a board can keep its runs' readiness: without units
    mapped: dict[str, MappedTask]  # the tasks that are expanded, upstream first
    mapped_inputs: frozenset[str]  # the tasks whose results they map over
    pools: frozenset[str]
    limited: tuple[TaskDefinition, ...]  # those with limits of their own
    limited_ids: frozenset[str]  # their ids
    keys: dict[str, tuple[LimitDefinition, ...]]  # of the tasks that have some
    is_detailed: bool  # its limits ask for more than slots of pools
    past: dict[str, tuple[str, ...]]  # tasks that wait for the run before
    callbacks: dict[str, dict[str, tuple[str, ...]]]  # of the tasks that have some
    group_callbacks: dict[str, dict[str, tuple[str, ...]]]  # of the groups that have some
    queue: str  # on which callbacks of its runs are delivered

    @property
    def has_keys(self) -> bool:
        """Whether a task of it needs slots of keys."""
        return bool(self.keys)


class Versions:
    """Cache of versions by id."""

    def __init__(self) -> None:
        self._known: dict[int, Version] = {}
        self.unreadable: dict[int, str] = {}  # what is wrong with each of those asked for last

    def get(self, connection: psycopg.Connection[Any], ids: set[int]) -> dict[int, Version]:
        """The versions with these ids that can be read; one query for those not seen yet."""
        self.unreadable = {}
        missing = [i for i in ids if i not in self._known]
        if missing:
            if len(self._known) > CACHED_MAX:
                self._known.clear()
                missing = list(ids)
            with connection.cursor(row_factory=tuple_row) as cursor:
                cursor.execute(
                    "SELECT id, definition FROM flow_version WHERE id = ANY(%s)", [missing]
                )
                for version_id, raw in cursor.fetchall():
                    try:
                        self._known[version_id] = _version(version_id, from_dict(raw))
                    except DefinitionError as error:
                        self.unreadable[version_id] = str(error)
        return {i: self._known[i] for i in ids if i in self._known}


def _version(version_id: int, definition: FlowDefinition) -> Version:
    limited = tuple(task for task in definition.tasks if _has_limits(task))
    keys = {task.task_id: task.limits for task in definition.tasks if task.limits}
    upstream = {task.task_id: task.upstream for task in definition.tasks}
    trigger_rules = {task.task_id: task.trigger_rule for task in definition.tasks}
    ties = ties_of(definition)
    mapped = mapped_tasks(definition)
    past = tasks_with_past(definition)
    return Version(
        id=version_id,
        definition=definition,
        upstream=upstream,
        trigger_rules=trigger_rules,
        graph=Graph(
            upstream=upstream,
            trigger_rules=trigger_rules,
            priorities={task.task_id: task.priority for task in definition.tasks},
            lines={
                task.task_id: _line(task)
                for task in definition.tasks
                # One instance may wait for its key, or for its own in the run before, while the next could start.
                if not task.limits and task.task_id not in past
            },
            mapped=mapped,
            ties=ties,
        )
        if can_be_held(ties)
        else None,
        past=past,
        ties=ties,
        mapped=mapped,
        mapped_inputs=producers(definition),
        pools=frozenset(task.pool for task in definition.tasks),
        limited=limited,
        limited_ids=frozenset(task.task_id for task in limited),
        keys=keys,
        is_detailed=bool(limited or keys) or definition.max_active_tasks_per_flow is not None,
        callbacks={task.task_id: task.callbacks for task in definition.tasks if task.callbacks},
        group_callbacks={one.group_id: one.callbacks for one in definition.groups if one.callbacks},
        queue=_queue(definition),
    )


def _line(task: TaskDefinition) -> tuple[object, ...]:
    """What its instances wait for. One with limits of its own may stand still while others could start."""
    own = task.task_id if _has_limits(task) else None
    return (task.pool, task.pool_slots, task.queue, own)


def _has_limits(task: TaskDefinition) -> bool:
    return task.max_active_per_flow is not None or task.max_active_per_run is not None


def _queue(definition: FlowDefinition) -> str:
    """Where workers of this flow listen: the default queue if a task uses it, else its first task's."""
    queues = [task.queue for task in definition.tasks]
    return queues[0] if queues and DEFAULT_QUEUE not in queues else DEFAULT_QUEUE
