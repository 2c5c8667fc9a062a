"""What a flow definition says, as frozen values that travel as canonical JSON.

Comes in: values that ``authoring`` builds, or JSON that ``catalog`` stored.
Goes out: the same values everywhere: scheduler, worker, pages.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import MISSING, asdict, dataclass, field, fields
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

from scheduler_app.rules import schedule as schedules
from scheduler_app.rules.errors import DefinitionError
from scheduler_app.rules.guards import GuardLimits, limits_from
from scheduler_app.rules.mapping import MapOver, map_over_from
from scheduler_app.rules.roles import Picks, Role, Running
from scheduler_app.rules.run_retry import RunRetryPolicy, policy_from

FORMAT: Final = 1  # grows when the stored shape changes in a way that from_dict must know
ID_CHARACTERS_MAX: Final = 250
# "." and ".." alone would be lost on the way: every browser takes them out of an address.
FLOW_OR_TASK_ID: Final = re.compile(r"(?!\.{1,2}(?:/|\Z))[\w.-]{1,250}")
RUN_ID: Final = re.compile(r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9_.~:+-]{1,250}")
ID_RULE: Final = "1 to 250 letters, digits, '_', '.' or '-' (not '.' or '..' alone)"
RUN_ID_RULE: Final = "1 to 250 of A-Z a-z 0-9 _ . ~ : + - (not . or .. alone)"


# What a deadline is counted from.
DEADLINE_FROM: Final = ("start", "data_interval_end")


class Overlap(StrEnum):
    """What a due schedule does while its flow has as many active runs as it may have."""

    QUEUE = "queue"  # it waits; nothing is left out
    SKIP = "skip"  # the run is created set aside, and never starts
    CANCEL_OLDER = "cancel_older"  # the oldest active scheduled run is terminated for it


class TriggerRule(StrEnum):
    """When a task may start, seen from its direct upstream task instances."""

    ALL_SUCCESS = "all_success"
    ALL_FAILED = "all_failed"
    ALL_DONE = "all_done"
    ALL_DONE_MIN_ONE_SUCCESS = "all_done_min_one_success"
    ALL_DONE_SETUP_SUCCESS = "all_done_setup_success"  # of teardowns
    ALL_SKIPPED = "all_skipped"
    ONE_SUCCESS = "one_success"
    ONE_FAILED = "one_failed"
    ONE_DONE = "one_done"
    NONE_FAILED = "none_failed"
    NONE_FAILED_MIN_ONE_SUCCESS = "none_failed_min_one_success"
    NONE_SKIPPED = "none_skipped"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRule:
    """How a task is tried again after certain exceptions; None: as the task itself says."""

    on: tuple[str, ...]  # names of exception classes, as rules/retry.py compares them
    retries: int | None = None  # 0: it fails at once
    retry_delay_s: float | None = None
    backoff: float | None = None
    max_retry_delay_s: float | None = None
    jitter: float | None = None


class WeightRule(StrEnum):
    """What the priority of a task is made of."""

    ABSOLUTE = "absolute"  # its own number
    DOWNSTREAM = "downstream"  # and those of all that comes after it
    UPSTREAM = "upstream"  # and those of all that it comes after


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitDefinition:
    """At most so many executions at once that share a key, of whatever flow."""

    key: str  # with names in braces, as rules/limits.py fills them in
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDefinition:
    """One task of a flow. Durations in seconds."""

    task_id: str
    upstream: tuple[str, ...] = ()  # task ids, sorted
    trigger_rule: str = TriggerRule.ALL_SUCCESS
    depends_on_past: bool = False  # it waits for itself in the run before
    wait_for_downstream: bool = False  # and for what comes directly after it there
    retries: int = 0
    retry_delay_s: float = 300.0
    backoff: float = 0.0  # multiplier; 0 = fixed delay
    max_retry_delay_s: float | None = None
    jitter: float | None = None  # share of the delay that chance may add; None = 1 where it grows
    retry_on: tuple[str, ...] = ()  # exception names; none = every exception
    fail_on: tuple[str, ...] = ()  # exception names after which no try follows
    retry_rules: tuple[RetryRule, ...] = ()
    timeout_s: float | None = None
    suspect_factor: float | None = None  # times the P99 of its history; None = the stack's setting
    suspect_after_s: float | None = None  # of running, whatever its history says; None = by that
    pool: str = "default"
    pool_slots: int = 1
    priority: int = 0  # higher first; what its weight rule makes of the flow's numbers
    own_priority: int | None = None  # the number as written, where the rule makes another of it
    weight_rule: str = WeightRule.ABSOLUTE
    limits: tuple[LimitDefinition, ...] = ()
    max_active_per_flow: int | None = None  # of its instances, in all runs; None = no limit
    max_active_per_run: int | None = None
    queue: str = "default"
    # CallbackOn -> names
    callbacks: dict[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    doc: str = ""
    line: int | None = None  # in the flow file, for messages
    group: str = ""  # id of the innermost group that it is in
    role: str = Role.WORK
    fails_run: bool = False  # of a teardown: its failure fails the run
    picks: str = Picks.NOTHING
    compensates: str = ""  # id of the group that it is the compensation of
    mapped: MapOver | None = field(default=None, hash=False)  # what it maps over, itself
    map_label: str = ""  # how its mapped instances are called: "{path}"
    max_map_length: int | None = (
        None  # of its result, where that is mapped over; None = the setting
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRetry:
    """How a group is retried as a whole when one of its tasks has failed for good. In seconds."""

    max_attempts: int = 2  # of the group, the first one included
    delay_s: float = 0.0
    backoff: float = 0.0  # multiplier; 0 = fixed delay
    max_delay_s: float | None = None
    running: str = Running.WAIT


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDefinition:
    """One group of tasks. With ``retry`` it is one unit: retried, and visible downstream, as a whole."""

    group_id: str  # with the prefixes of the groups around it
    parent: str = ""  # id of the group that it lies in
    doc: str = ""
    retry: GroupRetry | None = None
    # CallbackOn -> names; only where it is one unit, for only then it ends as a whole
    callbacks: dict[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    line: int | None = None
    mapped: MapOver | None = field(default=None, hash=False)  # what the whole group maps over


# Without slots, so that what is looked up by id is put together once.
@dataclass(frozen=True, kw_only=True)
class FlowDefinition:
    """One flow: its tasks, edges and schedule, as one immutable version stores them."""

    flow_id: str
    tasks: tuple[TaskDefinition, ...]  # in topological order, ties by id
    schedule: str | None = None  # cron expression or preset, or what says it; None = only by hand
    timetable: schedules.Schedule | None = None  # the long form, where one expression is not all
    timezone: str = "UTC"  # IANA name, for the schedule
    start_date: str | None = None  # ISO 8601 with offset
    end_date: str | None = None
    catchup: bool = False
    catchup_window_s: float | None = None  # how old a missed interval may be that is made up for
    overlap: str = Overlap.QUEUE
    run_on_latest_version: bool | None = None  # of cleared runs; None = as the installation has it
    max_consecutive_failed_runs: int = 0  # so many and the flow is paused; 0 = never
    max_active_runs: int = 16
    max_active_tasks: int = 64  # in one run
    max_active_tasks_per_flow: int | None = None  # in all its runs; None = no limit
    run_timeout_s: float | None = None
    run_retry: RunRetryPolicy | None = None
    guards: GuardLimits | None = (
        None  # of automatic actions on it; None = as the installation has it
    )
    description: str = ""
    tags: tuple[str, ...] = ()
    owner: str = ""
    params: dict[str, Any] = field(default_factory=dict)  # declared defaults of conf
    param_schemas: dict[str, Any] = field(default_factory=dict)  # JSON Schema, by parameter
    # The parameters as the file declares them; empty: as the database keeps the keys of an object.
    param_order: tuple[str, ...] = ()
    callbacks: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of its runs
    # A run should have ended so long after its start, or after the end of its data interval.
    deadline_s: float | None = None
    deadline_from: str = DEADLINE_FROM[0]
    # A scheduled run should have begun so long after it was due.
    expected_within_s: float | None = None
    alerts: tuple[dict[str, Any], ...] = field(default=(), hash=False)  # notifiers, described
    is_paused_upon_creation: bool = False
    groups: tuple[GroupDefinition, ...] = ()  # outer before inner, else in the order of the file

    def task(self, task_id: str) -> TaskDefinition:
        """The task with this id. Raises ``KeyError``."""
        return self._by_id[task_id]

    @cached_property
    def _by_id(self) -> dict[str, TaskDefinition]:
        return {task.task_id: task for task in self.tasks}


# What came later is left out of the stored picture where it says nothing more than its default, so
# that the digests of flows without it are what they always were.
_LATER_OF_FLOW: Final = (
    "callbacks",
    "deadline_s",
    "deadline_from",
    "expected_within_s",
    "alerts",
    "run_retry",
    "guards",
    "groups",
    "timetable",
    "catchup_window_s",
    "overlap",
    "max_consecutive_failed_runs",
    "run_on_latest_version",
    "param_schemas",
    "param_order",
    "max_active_tasks_per_flow",
)
_LATER_OF_TASK: Final = (
    "callbacks",
    "suspect_factor",
    "suspect_after_s",
    "group",
    "role",
    "fails_run",
    "picks",
    "compensates",
    "jitter",
    "retry_on",
    "fail_on",
    "retry_rules",
    "depends_on_past",
    "wait_for_downstream",
    "own_priority",
    "weight_rule",
    "limits",
    "max_active_per_flow",
    "max_active_per_run",
    "mapped",
    "map_label",
    "max_map_length",
)


def to_dict(definition: FlowDefinition) -> dict[str, Any]:
    """The definition as plain JSON values, with the format number."""
    raw: dict[str, Any] = {"format": FORMAT, **json.loads(json.dumps(asdict(definition)))}
    raw["timetable"] = definition.timetable and schedules.to_dict(definition.timetable)
    _leave_out(raw, _SILENT_FLOW)
    for task in raw["tasks"]:
        _leave_out(task, _SILENT_TASK)
    for group in raw.get("groups", ()):
        _leave_out(group, {"callbacks": {}, "mapped": None})
    return raw


def _leave_out(raw: dict[str, Any], silent: dict[str, Any]) -> None:
    for name, value in silent.items():
        if raw[name] == value:
            del raw[name]


def _silent(kind: type[FlowDefinition | TaskDefinition], names: tuple[str, ...]) -> dict[str, Any]:
    """The defaults of these fields as plain JSON values."""
    defaults = {
        f.name: f.default if f.default_factory is MISSING else f.default_factory()
        for f in fields(kind)
    }
    return {name: json.loads(json.dumps(defaults[name])) for name in names}


_SILENT_FLOW: Final = _silent(FlowDefinition, _LATER_OF_FLOW)
_SILENT_TASK: Final = _silent(TaskDefinition, _LATER_OF_TASK)


def from_dict(raw: dict[str, Any]) -> FlowDefinition:
    """The definition that ``to_dict`` wrote; unknown keys of a newer writer are ignored.

    Raises ``DefinitionError`` for what nobody wrote so.
    """
    try:
        return _from_dict(raw)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        message = f"the stored definition cannot be read: {type(error).__name__}: {error}"
        raise DefinitionError(message) from error


def _from_dict(raw: dict[str, Any]) -> FlowDefinition:
    known = {f.name for f in fields(FlowDefinition)}
    values = {key: value for key, value in raw.items() if key in known}
    values["tasks"] = tuple(_task_from_dict(task) for task in raw["tasks"])
    values["tags"] = tuple(raw.get("tags", ()))
    if values.get("timetable") is not None:
        values["timetable"] = schedules.from_dict(values["timetable"])
    values["callbacks"] = _callbacks_from_dict(raw)
    values["alerts"] = tuple(raw.get("alerts", ()))
    values["param_order"] = tuple(raw.get("param_order", ()))
    if raw.get("run_retry") is not None:
        values["run_retry"] = policy_from(raw["run_retry"])
    if raw.get("guards") is not None:
        values["guards"] = limits_from(raw["guards"])
    values["groups"] = tuple(_group_from_dict(group) for group in raw.get("groups", ()))
    return FlowDefinition(**values)


def _group_from_dict(raw: dict[str, Any]) -> GroupDefinition:
    known = {f.name for f in fields(GroupDefinition)}
    values = {key: value for key, value in raw.items() if key in known}
    if raw.get("retry") is not None:
        known = {f.name for f in fields(GroupRetry)}
        retry = {key: value for key, value in raw["retry"].items() if key in known}
        values["retry"] = GroupRetry(**retry)
    if raw.get("mapped") is not None:
        values["mapped"] = map_over_from(raw["mapped"])
    values["callbacks"] = _callbacks_from_dict(raw)
    return GroupDefinition(**values)


def _task_from_dict(raw: dict[str, Any]) -> TaskDefinition:
    known = {f.name for f in fields(TaskDefinition)}
    values = {key: value for key, value in raw.items() if key in known}
    for name in ("upstream", "retry_on", "fail_on"):
        values[name] = tuple(raw.get(name, ()))
    values["retry_rules"] = tuple(map(_retry_rule_from_dict, raw.get("retry_rules", ())))
    values["limits"] = tuple(
        LimitDefinition(key=one["key"], slots=one["slots"]) for one in raw.get("limits", ())
    )
    if raw.get("mapped") is not None:
        values["mapped"] = map_over_from(raw["mapped"])
    values["callbacks"] = _callbacks_from_dict(raw)
    return TaskDefinition(**values)


def _retry_rule_from_dict(raw: dict[str, Any]) -> RetryRule:
    known = {f.name for f in fields(RetryRule)}
    values = {key: value for key, value in raw.items() if key in known}
    return RetryRule(**{**values, "on": tuple(raw["on"])})


def _callbacks_from_dict(raw: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    return {on: tuple(names) for on, names in raw.get("callbacks", {}).items()}


def digest(definition: FlowDefinition, bundle_digest: str) -> str:
    """The content address of a version: the graph and its source bundle, nothing volatile."""
    canonical = json.dumps(to_dict(definition), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{canonical}\n{bundle_digest}".encode()).hexdigest()
