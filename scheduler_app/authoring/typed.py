"""What a type checker knows of options and of results; at run time the checks of each option decide.

An option that is added to ``TASK_OPTIONS``, ``FLOW_OPTIONS`` or ``GROUP_OPTIONS`` gets its line here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypedDict,
    TypeVar,
    overload,
)

from scheduler_app.authoring.call import TaskCall

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet
    from zoneinfo import ZoneInfo

    from scheduler_app.authoring.context import Context
    from scheduler_app.authoring.groups import GroupRetry
    from scheduler_app.authoring.limits import Limit
    from scheduler_app.authoring.notifiers import Notifier
    from scheduler_app.authoring.run_retry import Guards, RunRetry
    from scheduler_app.authoring.schedules import Schedule
    from scheduler_app.authoring.sensors import SensorFunction
    from scheduler_app.authoring.task import TaskFunction
    from scheduler_app.rules.definition import RetryRule

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Duration: TypeAlias = timedelta | float  # a number counts seconds
OneException: TypeAlias = type[BaseException] | str
Exceptions: TypeAlias = "OneException | Sequence[OneException] | AbstractSet[OneException] | None"
Callback: TypeAlias = Callable[[Any], object]
Callbacks: TypeAlias = Callback | Sequence[Callback] | None
Moment: TypeAlias = date | str | None  # a datetime is a date too
TriggerRuleName: TypeAlias = Literal[
    "all_success",
    "all_failed",
    "all_done",
    "all_done_min_one_success",
    "all_skipped",
    "one_success",
    "one_failed",
    "one_done",
    "none_failed",
    "none_failed_min_one_success",
    "none_skipped",
    "always",
]
WeightRuleName: TypeAlias = Literal["absolute", "downstream", "upstream"]
OverlapName: TypeAlias = Literal["queue", "skip", "cancel_older"]
DeadlineFromName: TypeAlias = Literal["start", "data_interval_end"]

if TYPE_CHECKING:

    class TaskResult(TaskCall, Any, Generic[R_co]):  # type: ignore[misc] # it fits where any value does
        """What calling a task in a flow body gives: it stands for the task, and for its later result.

        It may be passed to another task whatever type that takes, for which no checker has a word.
        """

else:
    TaskResult = TaskCall


class MakesTask(Protocol):
    """A decorator that makes a function a task, or gives a task other options."""

    @overload
    def __call__(self, function: TaskFunction[P, R], /) -> TaskFunction[P, R]: ...

    @overload
    def __call__(self, function: TakesContext[P, R], /) -> TaskFunction[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskFunction[P, R]: ...


class MakesSensor(Protocol):
    """A decorator that makes a function a sensor."""

    @overload
    def __call__(self, function: TakesContext[P, R], /) -> SensorFunction[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> SensorFunction[P, R]: ...


class TakesContext(Protocol[P, R_co]):
    """A task function whose first parameter is ``ctx``, which a call leaves out."""

    def __call__(self, ctx: Context, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """As it is executed."""


class PlainTaskOptions(TypedDict, total=False):
    """The options of ``@task`` beside ``task_id``."""

    retries: int
    retry_delay: Duration
    backoff: float
    max_retry_delay: Duration | None
    jitter: float | None
    retry_on: Exceptions
    fail_on: Exceptions
    retry_policies: Mapping[OneException | tuple[OneException, ...], RetryRule] | None
    timeout: Duration | None
    suspect_factor: float | None
    suspect_after: Duration | None
    pool: str
    slots: int
    priority: int
    weight_rule: WeightRuleName
    limit: Limit | Sequence[Limit] | None
    max_active_per_flow: int | None
    max_active_per_run: int | None
    map_label: str
    max_map_length: int | None
    queue: str
    trigger_rule: TriggerRuleName
    depends_on_past: bool
    wait_for_downstream: bool
    doc: str
    on_execute_callback: Callbacks
    on_retry_callback: Callbacks
    on_success_callback: Callbacks
    on_failure_callback: Callbacks
    on_skipped_callback: Callbacks


class TaskOptions(PlainTaskOptions, total=False):
    """The options of ``@task``."""

    task_id: str


class SensorOptions(TaskOptions, total=False):
    """The options of ``@sensor``."""

    mode: Literal["defer", "reschedule", "poke"]
    poll_interval: Duration
    poll_backoff: float
    poll_interval_max: Duration | None
    give_up_after: Duration | None
    soft_fail: bool
    silent_failures: bool


class GroupOptions(TypedDict, total=False):
    """The options of ``@group``."""

    group_id: str
    prefix: bool
    doc: str
    retry: GroupRetry | None
    compensate: TaskFunction[[], Any] | None
    default_args: Mapping[str, Any] | None
    on_retry_callback: Callbacks
    on_success_callback: Callbacks
    on_failure_callback: Callbacks


class FlowOptions(TypedDict, total=False):
    """The options of ``@flow``."""

    flow_id: str
    schedule: str | timedelta | Sequence[str] | Sequence[date] | Schedule | None
    timezone: str | ZoneInfo
    start_date: Moment
    end_date: Moment
    catchup: bool | timedelta
    overlap: OverlapName
    max_consecutive_failed_runs: int
    max_active_runs: int
    max_active_tasks: int
    max_active_tasks_per_flow: int | None
    run_timeout: Duration | None
    deadline: Duration | None
    deadline_from: DeadlineFromName
    expected_within: Duration | None
    alerts: Notifier | Sequence[Notifier]
    run_retry: RunRetry | None
    guards: Guards | None
    description: str
    tags: Sequence[str] | AbstractSet[str]
    owner: str
    params: Mapping[str, Any]
    default_args: Mapping[str, Any] | None
    is_paused_upon_creation: bool
    run_on_latest_version: bool | None
    on_success_callback: Callbacks
    on_failure_callback: Callbacks


class RetryOptions(TypedDict, total=False):
    """The options of ``retry(...)``."""

    retries: int
    retry_delay: Duration
    backoff: float
    max_retry_delay: Duration
    jitter: float | None
