"""What a flow definition says, as frozen values that travel as canonical JSON.

Comes in: values that ``authoring`` builds, or JSON that ``catalog`` stored.
Goes out: the same values everywhere: scheduler, worker, pages.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Final

from scheduler_app.rules.errors import DefinitionError
from scheduler_app.rules.guards import GuardLimits, limits_from
from scheduler_app.rules.run_retry import RunRetryPolicy, policy_from

FORMAT: Final = 1  # grows when the stored shape changes in a way that from_dict must know
FLOW_OR_TASK_ID: Final = re.compile(r"[\w.-]{1,250}")
RUN_ID: Final = re.compile(r"[A-Za-z0-9_.~:+-]{1,250}")
ID_RULE: Final = "1 to 250 letters, digits, '_', '.' or '-'"
RUN_ID_RULE: Final = "1 to 250 of A-Z a-z 0-9 _ . ~ : + -"


# What a deadline is counted from.
DEADLINE_FROM: Final = ("start", "data_interval_end")


class TriggerRule(StrEnum):
    """When a task may start, seen from its direct upstream task instances."""

    ALL_SUCCESS = "all_success"
    ALL_DONE = "all_done"
    ONE_FAILED = "one_failed"
    NONE_FAILED = "none_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDefinition:
    """One task of a flow. Durations in seconds."""

    task_id: str
    upstream: tuple[str, ...] = ()  # task ids, sorted
    trigger_rule: str = TriggerRule.ALL_SUCCESS
    retries: int = 0
    retry_delay_s: float = 300.0
    backoff: float = 0.0  # multiplier; 0 = fixed delay
    max_retry_delay_s: float | None = None
    timeout_s: float | None = None
    suspect_factor: float | None = None  # times the P99 of its history; None = the stack's setting
    pool: str = "default"
    pool_slots: int = 1
    priority: int = 0  # higher first
    queue: str = "default"
    # CallbackOn -> names
    callbacks: dict[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    doc: str = ""
    line: int | None = None  # in the flow file, for messages


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowDefinition:
    """One flow: its tasks, edges and schedule, as one immutable version stores them."""

    flow_id: str
    tasks: tuple[TaskDefinition, ...]  # in topological order, ties by id
    schedule: str | None = None  # cron expression or preset; None = only by hand
    timezone: str = "UTC"  # IANA name, for the schedule
    start_date: str | None = None  # ISO 8601 with offset
    end_date: str | None = None
    catchup: bool = False
    max_active_runs: int = 16
    max_active_tasks: int = 64
    run_timeout_s: float | None = None
    run_retry: RunRetryPolicy | None = None
    guards: GuardLimits | None = (
        None  # of automatic actions on it; None = as the installation has it
    )
    description: str = ""
    tags: tuple[str, ...] = ()
    owner: str = ""
    params: dict[str, Any] = field(default_factory=dict)  # declared defaults of conf
    callbacks: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of its runs
    # A run should have ended so long after its start, or after the end of its data interval.
    deadline_s: float | None = None
    deadline_from: str = DEADLINE_FROM[0]
    # A scheduled run should have begun so long after it was due.
    expected_within_s: float | None = None
    alerts: tuple[dict[str, Any], ...] = field(default=(), hash=False)  # notifiers, described
    is_paused_upon_creation: bool = False

    def task(self, task_id: str) -> TaskDefinition:
        """The task with this id. Raises ``KeyError``."""
        for candidate in self.tasks:
            if candidate.task_id == task_id:
                return candidate
        raise KeyError(task_id)


# Options of flows that came later: left out where they have their default, for the same reason.
_LATER_OPTIONS: Final = (
    "deadline_s",
    "deadline_from",
    "expected_within_s",
    "alerts",
    "run_retry",
    "guards",
)
_DEFAULTS: Final = {f.name: f.default for f in fields(FlowDefinition) if f.name in _LATER_OPTIONS}


def to_dict(definition: FlowDefinition) -> dict[str, Any]:
    """The definition as plain JSON values, with the format number."""
    raw: dict[str, Any] = {"format": FORMAT, **json.loads(json.dumps(asdict(definition)))}
    # Left out where there are none, so that the digests of such flows are what they always were.
    for part in (raw, *raw["tasks"]):
        if not part["callbacks"]:
            del part["callbacks"]
    for name in _LATER_OPTIONS:
        if raw[name] == json.loads(json.dumps(_DEFAULTS[name])):
            del raw[name]
    for task in raw["tasks"]:
        if task["suspect_factor"] is None:
            del task["suspect_factor"]
    return raw


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
    values["callbacks"] = _callbacks_from_dict(raw)
    values["alerts"] = tuple(raw.get("alerts", ()))
    if raw.get("run_retry") is not None:
        values["run_retry"] = policy_from(raw["run_retry"])
    if raw.get("guards") is not None:
        values["guards"] = limits_from(raw["guards"])
    return FlowDefinition(**values)


def _task_from_dict(raw: dict[str, Any]) -> TaskDefinition:
    known = {f.name for f in fields(TaskDefinition)}
    values = {key: value for key, value in raw.items() if key in known}
    values["upstream"] = tuple(raw.get("upstream", ()))
    values["callbacks"] = _callbacks_from_dict(raw)
    return TaskDefinition(**values)


def _callbacks_from_dict(raw: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    return {on: tuple(names) for on, names in raw.get("callbacks", {}).items()}


def digest(definition: FlowDefinition, bundle_digest: str) -> str:
    """The content address of a version: the graph and its source bundle, nothing volatile."""
    canonical = json.dumps(to_dict(definition), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{canonical}\n{bundle_digest}".encode()).hexdigest()
