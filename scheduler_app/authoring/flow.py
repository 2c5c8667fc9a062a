"""Flows: a function with ``@flow`` whose body calls tasks, and what it says as a definition."""

from __future__ import annotations

import inspect
import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final, Unpack, overload
from zoneinfo import ZoneInfo

from scheduler_app.authoring import callbacks, limits, params, run_retry, schedules
from scheduler_app.authoring import options as option_checks
from scheduler_app.authoring.building import Building, building
from scheduler_app.authoring.call import TaskCall
from scheduler_app.authoring.defaults import checked_defaults
from scheduler_app.authoring.faults import (
    Fault,
    Place,
    fault,
    faults_of,
    place_of_caller,
    place_of_function,
    refuse,
)
from scheduler_app.authoring.groups import resolve_links
from scheduler_app.authoring.notifiers import KINDS as NOTIFIERS
from scheduler_app.authoring.notifiers import Notifier
from scheduler_app.authoring.options import BadOption, check_options
from scheduler_app.authoring.registry import register
from scheduler_app.authoring.rehearsal import Rehearsal, rehearse
from scheduler_app.authoring.template import faults_of as faults_of_templates
from scheduler_app.authoring.wiring import Step, leaves_in
from scheduler_app.rules import graph, ties, timetable
from scheduler_app.rules import schedule as schedule_rules
from scheduler_app.rules.callbacks import OF_RUN
from scheduler_app.rules.definition import (
    DEADLINE_FROM,
    FLOW_OR_TASK_ID,
    ID_RULE,
    FlowDefinition,
    Overlap,
    TaskDefinition,
    to_dict,
)
from scheduler_app.rules.errors import DefinitionError, InvalidInput
from scheduler_app.rules.weights import weighed

if TYPE_CHECKING:
    from scheduler_app.authoring.typed import FlowOptions

ACTIVE_MAX: Final = 100_000  # runs of a flow, or tasks of a run, at a time
TAG_COUNT_MAX: Final = 100
ALERTS_MAX: Final = 20


class Flow:
    """A named graph of tasks with a schedule, as one ``@flow`` defines it."""

    def __init__(
        self,
        flow_id: str,
        place: Place,
        calls: dict[str, TaskCall],
        definition: FlowDefinition | None,
        run_callbacks: callbacks.Callbacks,
        group_callbacks: Mapping[str, callbacks.Callbacks],  # by group id
    ) -> None:
        self.flow_id = flow_id
        self.place = place
        self.calls = calls
        self.run_callbacks = run_callbacks
        self.group_callbacks = group_callbacks
        self._definition = definition  # None for a faulty flow

    def definition(self) -> FlowDefinition:
        """What the flow says, as values. Raises ``DefinitionError`` for a faulty flow."""
        if self._definition is None:
            raise refuse(
                f"Flow {self.flow_id!r} is faulty.",
                f"Correct what `flows validate {self.place.file}` tells.",
                self.place,
            )
        return self._definition

    def test(
        self,
        *,
        conf: Mapping[str, Any] | None = None,
        logical_date: datetime | None = None,
        at: datetime | None = None,
        events: Mapping[str, Any] | None = None,
        flows: Sequence[Flow] = (),
    ) -> Rehearsal:
        """A run of the flow in this process, by the same rules, with a clock of its own.

        Tasks are executed one by one and take no time by that clock; retries, reschedules and waits for
        a moment move it. ``at`` is when it begins, ``logical_date`` of the run (by default the same).
        ``events`` has, by task, what the trigger fires with that the task defers to: the event, an
        exception (``TimeoutError``: it does not come in time), or a function of the trigger that returns
        either. Runs of other flows that are triggered are noted; those of ``flows`` are rehearsed too,
        with ``events`` under ``"flow_id.task_id"``, and of any other one that is waited for, ``events``
        has the state that it ends in. Callbacks are noted and not called. Raises ``InvalidInput`` for
        parameters that do not fit.
        """
        return rehearse(
            self.definition(),
            self.calls,
            conf=conf,
            logical_date=logical_date,
            at=at,
            events=events,
            flows=flows,
        )

    def __call__(self) -> Flow:
        """The flow itself: it is registered where it is defined, and need not be called."""
        return self

    def __repr__(self) -> str:
        return f"<flow {self.flow_id}>"


@overload
def flow(function: Callable[[], object], /) -> Flow: ...


@overload
def flow(**options: Unpack[FlowOptions]) -> Callable[[Callable[[], object]], Flow]: ...


def flow(function: Callable[[], object] | None = None, /, **options: Unpack[FlowOptions]) -> Any:
    """The flow that the function's body describes: ``@flow`` or ``@flow(schedule="@daily")``.

    Options: flow_id, schedule (a cron expression or preset, a list of them, a timedelta, a list of
    dates, ``Schedule(...)`` or None), timezone, start_date, end_date, catchup (True, False or a
    timedelta: how old a missed run may be), overlap ("queue", "skip" or "cancel_older": what a due
    schedule does at max_active_runs), max_consecutive_failed_runs (so many in a row and the flow is
    paused), max_active_runs, max_active_tasks (of one run), max_active_tasks_per_flow, run_timeout, run_retry, guards, deadline,
    deadline_from ("start" or "data_interval_end"), expected_within, alerts (notifiers), description, tags, owner, params,
    default_args
    (options for every task), on_success_callback, on_failure_callback (of its runs),
    run_on_latest_version (of cleared runs), is_paused_upon_creation. The body runs once, here.
    """
    place = place_of_caller()
    if function is None:
        return lambda decorated: _define(decorated, options, place)
    return _define(function, options, place)


def _define(function: Any, options: Mapping[str, Any], place: Place) -> Flow:
    if not inspect.isfunction(function):
        raise refuse(
            f"@flow stands on {function!r}, which is no function.",
            "Put @flow on a def whose body calls tasks.",
            place,
        )
    place = place_of_function(function)
    given = dict(options)
    default_args = given.pop("default_args", None)
    default_args = {} if default_args is None else default_args
    defaults, owner, faults = _checked_default_args(default_args, place)
    fields, wrong = check_options(
        given, FLOW_OPTIONS, place, f"Flow {function.__name__!r}", _OF_TASKS
    )
    faults += wrong
    fields.setdefault("owner", owner)
    fields.setdefault("description", inspect.getdoc(function) or "")
    flow_id = fields.setdefault("flow_id", function.__name__)
    if "flow_id" not in options and not FLOW_OR_TASK_ID.fullmatch(flow_id):
        message = f"The name of the flow function, {flow_id!r}, is no id of a flow."
        faults.append(
            fault(
                place, message, f"Ids are {ID_RULE}: write a def with a name, or give flow_id=..."
            )
        )
    work = Building(flow_id=flow_id, place=place, defaults=defaults, faults=faults)
    fields = _checked_times(work, fields)
    _plan(work, fields)
    is_scheduled = bool(fields.get("schedule") or fields.get("timetable"))
    faults += params.taken_from(fields, place, f"flow {flow_id!r}", is_scheduled=is_scheduled)
    run_callbacks = callbacks.taken_from(fields)
    fields["callbacks"] = callbacks.names_of(run_callbacks)
    wrong = _faults_of_function(function)
    faults += wrong
    if not wrong:
        _run_body(function, work)
    made = Flow(
        flow_id,
        place,
        work.calls,
        _definition(work, fields),
        run_callbacks,
        {group.group_id: group.callbacks for group in work.groups.values()},
    )
    register(made, faults)
    return made


def _faults_of_function(function: Callable[..., object]) -> list[Fault]:
    place = place_of_function(function)
    parameters = inspect.signature(function).parameters
    if parameters:
        names = ", ".join(parameters)
        return [
            fault(
                place,
                f"Flow function {function.__name__!r} takes arguments ({names}).",
                "Declare params={...} on @flow and read ctx.params inside tasks.",
            )
        ]
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        return [
            fault(
                place,
                f"Flow function {function.__name__!r} is async or yields.",
                "Write a plain def whose body calls tasks.",
            )
        ]
    return []


def _run_body(function: Callable[[], object], work: Building) -> None:
    """The flow function has run once; what it did wrong is in ``work.faults``."""
    faults_before = len(work.faults)
    has_ended = False
    try:
        with building(work):
            function()
        has_ended = True
    except DefinitionError as error:
        work.faults.extend(faults_of(error, work.place))
    except Exception as error:  # noqa: BLE001 - user code: what it raises is a fault of this flow
        place = _place_in_file(error, work.place)
        said = f"{type(error).__name__}: {error}".rstrip(".: ")
        message = f"The body of flow {work.flow_id!r} raised {said}."
        work.faults.append(fault(place, message, _remedy_of(error)))
    for instance in work.instances:
        # One that was being made when the body broke off is told of by that.
        if has_ended or instance.is_made:
            work.faults.extend(instance.faults(work))
    if not work.calls and len(work.faults) == faults_before:
        work.faults.append(
            fault(
                work.place,
                f"Flow {work.flow_id!r} has no tasks.",
                "Call at least one task in its body.",
            )
        )


def _remedy_of(error: Exception) -> str:
    if isinstance(error, NameError):
        return "The body runs where the flow is defined: define what it calls above it."
    is_of_result = TaskCall.__name__ in str(error) and f"{TaskCall.__name__}." not in str(error)
    if is_of_result or isinstance(getattr(error, "obj", None), Step):
        return (
            "What a task returns is not there while the flow is being built: pass it whole to"
            " another task, and do this inside that task."
        )
    return "The body runs while the file is loaded; move work that can fail into a task."


def _place_in_file(error: BaseException, otherwise: Place) -> Place:
    lines = [
        Place(file=frame.filename, line=frame.lineno or otherwise.line)
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == otherwise.file
    ]
    return lines[-1] if lines else otherwise


def _definition(work: Building, fields: dict[str, Any]) -> FlowDefinition | None:
    """The definition; None where the flow has faults, of which this adds those of the whole."""
    faults = work.faults
    resolve_links(work)
    tasks: dict[str, TaskDefinition] = {}
    for call in work.calls.values():
        try:
            tasks[call.task_id] = call.definition()
        except DefinitionError as error:
            faults.extend(faults_of(error, call.place))
    upstream = {
        task_id: tuple(other for other in task.upstream if other in tasks)
        for task_id, task in tasks.items()
    }
    if cycle := graph.find_cycle(upstream):
        shown = " -> ".join([*cycle, cycle[0]] if cycle[0] != cycle[-1] else cycle)
        faults.append(
            fault(
                work.calls[cycle[0]].place,
                f"The tasks of flow {work.flow_id!r} wait for each other: {shown}.",
                "Remove one of these dependencies.",
            )
        )
    if faults:
        return None
    ordered = weighed([tasks[task_id] for task_id in graph.topological_order(upstream)])
    groups = tuple(made.definition() for made in work.groups.values())
    made = FlowDefinition(**fields, tasks=ordered, groups=groups)
    wrong = limits.faults_of(made, lambda task_id: work.calls[task_id].place)
    # Runs by hand may bring what is not declared; those of a schedule bring nothing.
    for call in work.calls.values() if made.schedule else ():
        wrong += faults_of_templates(
            leaves_in(call.body.arguments()),
            {**made.params, **made.param_schemas},
            call.name,
            call.place,
        )
    if wrong:
        faults += wrong
        return None
    if cycle := ties.cycle_through_unit(made):
        faults.append(_comes_back(work, made, cycle))
        return None
    if remedy := _unstorable(made):
        faults.append(fault(work.place, f"Flow {work.flow_id!r} cannot be stored.", remedy))
        return None
    return made


def _comes_back(work: Building, made: FlowDefinition, cycle: tuple[str, ...]) -> Fault:
    units = {task_id: ties.unit_of(made, task_id) for task_id in cycle}
    outside = next(task_id for task_id in cycle if units[task_id] is None)
    group_id = next(unit for unit in units.values() if unit is not None)
    return fault(
        work.calls[outside].place,
        f"Task {outside!r} waits for group {group_id!r}, which is retried as a whole, and the group"
        " waits for it.",
        "Take the task into the group, or one of its two dependencies away.",
    )


def _unstorable(definition: FlowDefinition) -> str | None:
    text = json.dumps(to_dict(definition), ensure_ascii=False)
    if "\\u0000" in text:
        return "Take the NUL character out of its texts, docstrings too."
    try:
        text.encode()
    except UnicodeEncodeError:
        return "Take the lone surrogate out of its texts, docstrings too."
    return None


def _checked_times(work: Building, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with dates in the flow's zone; faults for a bad schedule, zone or order."""
    checked = dict(fields)
    zone = checked.setdefault("timezone", "UTC")
    window = checked.get("catchup")
    if window is not None and not isinstance(window, bool):
        checked["catchup"], checked["catchup_window_s"] = True, window
    try:
        schedule_rules.check_schedule(None, zone)
        schedule = _stored_schedule(checked.get("schedule"), zone)
        schedule_rules.check_schedule(schedule, zone)
        if isinstance(schedule, schedule_rules.Schedule):
            checked["timetable"], schedule = schedule, schedule.text
        checked["schedule"] = schedule
        for name in ("start_date", "end_date"):
            if checked.get(name) is not None:
                checked[name] = schedules.in_zone(checked[name], zone).isoformat()
    except InvalidInput as error:
        remedy = str(error.extra.get("remedy") or "Correct schedule=... or timezone=... on @flow.")
        work.faults.append(fault(work.place, f"Flow {work.flow_id!r}: {error}", remedy))
        return checked
    start, end = checked.get("start_date"), checked.get("end_date")
    if start and end and datetime.fromisoformat(end) < datetime.fromisoformat(start):
        work.faults.append(
            fault(
                work.place,
                f"Flow {work.flow_id!r} ends on {end}, before it starts on {start}.",
                "Give an end_date after start_date.",
            )
        )
    return checked


def _plan(work: Building, fields: Mapping[str, Any]) -> None:
    """Tasks that ask when the flow runs next know it; not of a flow that is faulty anyway."""
    if work.faults:
        return
    work.schedule = fields.get("timetable") or fields.get("schedule")
    work.timezone = fields["timezone"]
    work.start_date = timetable.instant(fields.get("start_date"))
    work.end_date = timetable.instant(fields.get("end_date"))


def _stored_schedule(value: Any, zone: str) -> str | schedule_rules.Schedule | None:
    """What the definition keeps of a schedule. Raises ``InvalidInput``."""
    if value is None:
        return None
    try:
        return schedules.stored(value, zone)
    except BadOption as error:
        message = f"schedule=... must be {error}."
        raise InvalidInput(message, field="schedule") from error


def _checked_default_args(
    default_args: object, place: Place
) -> tuple[dict[str, Any], str, list[Fault]]:
    """Fields of TaskDefinition, the owner, and faults."""
    owner: object = ""
    if isinstance(default_args, Mapping):
        default_args = dict(default_args)
        owner = default_args.pop("owner", "")
    fields, faults = checked_defaults(default_args, place, "default_args")
    if not isinstance(owner, str):
        faults.append(fault(place, f"default_args has owner={owner!r}.", "Give owner a text."))
        owner = ""
    return fields, str(owner), faults


def _catchup(value: object) -> bool | float:
    """True, False, or how old (in seconds) a missed interval may be that is made up for."""
    if isinstance(value, bool):
        return value
    try:
        return option_checks.positive_duration_s(value)
    except BadOption:
        raise BadOption("True, False or a timedelta (how old a missed run may be)") from None


def _overlap(value: object) -> str:
    if value not in [str(word) for word in Overlap]:
        raise BadOption(f"one of {', '.join(Overlap)}")
    return str(value)


def _timezone(value: object) -> str:
    if isinstance(value, ZoneInfo) and value.key:
        return value.key
    if not isinstance(value, str):
        raise BadOption("an IANA name such as 'Europe/Paris'")
    return value


def _moment(value: object) -> date:
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            raise BadOption("a date, a datetime or its ISO 8601 text") from None
    if not isinstance(value, date):
        raise BadOption("a date, a datetime or its ISO 8601 text")
    return value


def _tags(value: object) -> tuple[str, ...]:
    if (
        isinstance(value, str)
        or not isinstance(value, (list, tuple, set, frozenset))
        or len(value) > TAG_COUNT_MAX
        or not all(isinstance(tag, str) and 0 < len(tag) <= 100 for tag in value)
    ):
        raise BadOption(f"a list of at most {TAG_COUNT_MAX} texts of 1 to 100 characters")
    return tuple(sorted(value)) if isinstance(value, (set, frozenset)) else tuple(value)


def _deadline_from(value: object) -> str:
    if not isinstance(value, str) or value not in DEADLINE_FROM:
        raise BadOption(f"one of {', '.join(DEADLINE_FROM)}")
    return str(value)


def _alerts(value: object) -> tuple[dict[str, Any], ...]:
    given = [value] if isinstance(value, Notifier) else value
    if (
        not isinstance(given, (list, tuple))
        or len(given) > ALERTS_MAX
        or not all(isinstance(one, Notifier) and one.kind in NOTIFIERS for one in given)
    ):
        raise BadOption(
            f"a list of at most {ALERTS_MAX} of WebhookNotifier, EmailNotifier, SlackNotifier and"
            " AppriseNotifier"
        )
    return tuple(one.described() for one in given)


_OF_TASKS: Final = {
    name: f"It is an option of tasks: default_args={{{name!r}: ...}} gives it to all of the flow."
    for name in option_checks.TASK_OPTIONS
}
_active_count: Final = option_checks.whole_number(1, ACTIVE_MAX)

FLOW_OPTIONS: Final[Mapping[str, tuple[str, Callable[[object], Any]]]] = {
    "flow_id": ("flow_id", option_checks.identifier),
    "schedule": ("schedule", option_checks.optional(schedules.checked)),
    "timezone": ("timezone", _timezone),
    "start_date": ("start_date", option_checks.optional(_moment)),
    "end_date": ("end_date", option_checks.optional(_moment)),
    "catchup": ("catchup", _catchup),
    "overlap": ("overlap", _overlap),
    "max_consecutive_failed_runs": (
        "max_consecutive_failed_runs",
        option_checks.whole_number(0, ACTIVE_MAX),
    ),
    "max_active_runs": ("max_active_runs", _active_count),
    "max_active_tasks": ("max_active_tasks", _active_count),
    "max_active_tasks_per_flow": (
        "max_active_tasks_per_flow",
        option_checks.optional(_active_count),
    ),
    "run_timeout": ("run_timeout_s", option_checks.optional(option_checks.positive_duration_s)),
    "deadline": ("deadline_s", option_checks.optional(option_checks.positive_duration_s)),
    "deadline_from": ("deadline_from", _deadline_from),
    "expected_within": (
        "expected_within_s",
        option_checks.optional(option_checks.positive_duration_s),
    ),
    "alerts": ("alerts", _alerts),
    "run_retry": ("run_retry", run_retry.run_retry),
    "guards": ("guards", run_retry.guards),
    "description": ("description", option_checks.text),
    "tags": ("tags", _tags),
    "owner": ("owner", option_checks.text),
    "params": ("params", params.declared),
    "default_args": ("default_args", lambda value: value),  # checked by itself
    "is_paused_upon_creation": ("is_paused_upon_creation", option_checks.flag),
    "run_on_latest_version": (
        "run_on_latest_version",
        option_checks.optional(option_checks.flag),
    ),
    **option_checks.callback_options(OF_RUN),
}
